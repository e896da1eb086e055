"""Memory for rows of logits, used again and again; new memory is made ready beside the run that needs it.

Memory that was never touched costs several times what copying a row costs: the system hands out each page when it is
first written. So a thread writes the next rows once while the model runs; the run finds them ready.
"""

from __future__ import annotations

import ctypes
import threading

import numpy as np
from numpy.typing import NDArray

_ROWS_PER_SLAB = 32
_LOW = 16  # rows left when the next slab is asked for


class RowPool:
    """Rows of float32 of one length at a time.

    >>> pool = RowPool()
    >>> row = pool.take(8)
    >>> pool.give_back(row)
    >>> row.shape, row.dtype
    ((8,), dtype('float32'))
    """

    def __init__(self) -> None:
        self._spare: list[NDArray[np.float32]] = []
        self._size = 0
        self._maker: threading.Thread | None = None

    def take(self, size: int) -> NDArray[np.float32]:
        """A row [size] of whatever it holds."""
        if size != self._size:
            self._size, self._spare = size, []
        if len(self._spare) <= _LOW:
            self._ask_for_more()
        try:
            return self._spare.pop()
        except IndexError:  # the thread is not that far
            return np.empty(size, np.float32)

    def give_back(self, row: NDArray[np.float32]) -> None:
        """The row is not needed any more."""
        if row.size == self._size:
            self._spare.append(row)

    def _ask_for_more(self) -> None:
        if self._maker is None or not self._maker.is_alive():
            self._maker = threading.Thread(target=_make_ready, args=(self._size, self._spare), daemon=True)
            self._maker.start()


def _make_ready(size: int, spare: list[NDArray[np.float32]]) -> None:
    """Write a slab of rows once, without holding Python's lock, and add them to `spare`."""
    slab = np.empty((_ROWS_PER_SLAB, size), np.float32)
    ctypes.memset(slab.ctypes.data, 0, slab.nbytes)
    spare.extend(slab)
