"""Memory for rows of logits, used again and again; new memory is made ready beside the run that needs it.

Memory that was never touched costs several times what copying a row costs: the system hands out each page when it is
first written. So a thread touches each page of the next rows while the model runs; the run finds them ready.
"""

from __future__ import annotations

import threading
import weakref
from queue import Empty, SimpleQueue

import numpy as np
from numpy.typing import NDArray

_ROWS_PER_SLAB = 32
_PAGE = 1024  # floats in the smallest page that a system hands out
Slab = NDArray[np.float32]  # [rows, size]


class RowPool:
    """Rows of float32 of one length at a time.

    >>> pool = RowPool()
    >>> row = pool.take(8)
    >>> pool.give_back(row)
    >>> row.shape, row.dtype, pool.cut(3, 8).shape
    ((8,), dtype('float32'), (3, 8))
    """

    def __init__(self) -> None:
        self._size = 0
        self._spare: list[NDArray[np.float32]] = []
        self._slab: Slab = np.empty((0, 0), np.float32)
        self._used = 0  # rows of the slab that were handed out
        self._maker: _Maker | None = None

    def take(self, size: int) -> NDArray[np.float32]:
        """A row [size] of whatever it holds; may be given back."""
        if size == self._size and self._spare:
            return self._spare.pop()
        row: NDArray[np.float32] = self.cut(1, size)[0]
        return row

    def cut(self, rows: int, size: int) -> Slab:
        """Neighbouring rows [rows, size] of whatever they hold, to be kept; dropping them frees them."""
        if size != self._size:
            self._size, self._spare, self._used = size, [], len(self._slab)
        if self._used + rows > len(self._slab):
            self._slab, self._used = self._next_slab(rows), 0
        self._used += rows
        return self._slab[self._used - rows : self._used]

    def give_back(self, row: NDArray[np.float32]) -> None:
        """A row that `take` gave is not needed any more."""
        if row.size == self._size:
            self._spare.append(row)

    def _next_slab(self, rows: int) -> Slab:
        shape = (max(_ROWS_PER_SLAB, 4 * rows), self._size)
        if self._maker is None:
            self._maker = _Maker(self)
        slab = self._maker.made(shape)
        self._maker.ask(shape)
        return np.empty(shape, np.float32) if slab is None else slab  # the first, or the thread is not that far


class _Maker:
    """A thread that lives as long as its pool and makes slabs ready."""

    def __init__(self, pool: RowPool) -> None:
        self._wanted: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._made: SimpleQueue[Slab] = SimpleQueue()
        rows = self._wanted, self._made
        threading.Thread(target=_make_ready, args=rows, name="genai_lab rows", daemon=True).start()
        weakref.finalize(pool, self._wanted.put, None)

    def ask(self, shape: tuple[int, int]) -> None:
        """Make one ready."""
        self._wanted.put(shape)

    def made(self, shape: tuple[int, int]) -> Slab | None:
        """One of this shape, if it is ready; others are dropped."""
        while True:
            try:
                slab = self._made.get_nowait()
            except Empty:
                return None
            if slab.shape == shape:
                return slab


def _make_ready(wanted: SimpleQueue[tuple[int, int] | None], made: SimpleQueue[Slab]) -> None:
    """Touch the pages of each slab, without holding Python's lock."""
    while (shape := wanted.get()) is not None:
        slab = np.empty(shape, np.float32)
        slab.reshape(-1)[::_PAGE] = 0.0
        made.put(slab)
        del slab  # while it waits it holds nothing
