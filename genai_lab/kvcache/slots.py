"""The portable store: rows of their own for running sequences, and a pool with copies of the blocks that can be found.

A run writes into its row; a block that became findable is copied into the pool, an adopted one out of it. A row's
memory is its own, so sharing and copy-on-write concern the pool's bookkeeping only, and a released run leaves nothing
behind that a later one could read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.kvcache.contiguous import check_fits
from genai_lab.kvcache.facts import BlockCopy, Committed, Receipt
from genai_lab.kvcache.layout import KVLayout
from genai_lab.kvcache.stores import bytes_needed, check_range, check_row, check_sizes, still_open


class SlotStore:
    """Rows and a pool in ordinary memory.

    Args:
        layout: what one token needs.
        rows: sequences that can run at a time.
        capacity: tokens per row.
        num_blocks: blocks in the pool.
        block_size: tokens per block.

    Raises:
        CapacityError: rows and pool can never fit into this machine's memory; nothing was taken.

    >>> store = SlotStore(KVLayout(2, 1, 8, "float32"), rows=2, capacity=32, num_blocks=4, block_size=16)
    >>> store.slab.shape, store.nbytes
    ((2, 2, 2, 1, 32, 8), 16384)
    """

    writes_in_place = False

    def __init__(self, layout: KVLayout, rows: int, capacity: int, num_blocks: int, block_size: int) -> None:
        check_sizes(rows, capacity, num_blocks, block_size)
        self.layout, self.rows, self.capacity = layout, rows, capacity
        self.num_blocks, self.block_size = num_blocks, block_size
        self.nbytes = sum(bytes_needed(layout, rows, capacity, num_blocks, block_size))
        check_fits(self.nbytes, rows, capacity)
        shape = layout.row_shape(rows, capacity)
        # zero pages: the system gives memory as tokens arrive
        self._slab: NDArray[Any] | None = np.zeros((layout.num_layers, 2, *shape), layout.numpy_dtype)
        self._pool: NDArray[Any] | None = np.zeros(
            (num_blocks, layout.num_layers, 2, layout.num_kv_heads, block_size, layout.head_dim), layout.numpy_dtype
        )

    @property
    def slab(self) -> NDArray[Any]:
        """[layers, 2, rows, kv_heads, capacity, head_dim]."""
        return still_open(self._slab)

    @property
    def pool(self) -> NDArray[Any]:
        """[num_blocks, layers, 2, kv_heads, block_size, head_dim]."""
        return still_open(self._pool)

    def load(self, row: int, copies: Sequence[BlockCopy]) -> None:
        """Copy pool blocks into the row."""
        check_row(row, self.rows)
        for copy in copies:
            self._part(row, copy)[...] = self.pool[copy.block, ..., : copy.stop - copy.start, :]

    def store(self, row: int, copies: Sequence[BlockCopy]) -> None:
        """Copy parts of the row into pool blocks."""
        check_row(row, self.rows)
        for copy in copies:
            self.pool[copy.block, ..., : copy.stop - copy.start, :] = self._part(row, copy)

    def reserve(self, row: int, receipt: Receipt) -> None:
        """A row has all its memory already; only the positions are checked."""
        check_row(row, self.rows)
        check_range(receipt.start, receipt.stop, self.capacity)

    def commit(self, row: int, committed: Committed) -> None:
        """Copy what became findable into the pool."""
        self.store(row, committed.stores)

    def release(self, row: int, receipt: Receipt) -> None:
        """What a failed run wrote lies beyond the sequence's length, where nobody reads."""

    def rewind(self, row: int, tokens: int) -> None:
        """Tokens beyond the length are not read."""

    def copy_row(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of a row into another."""
        check_row(source, self.rows)
        check_row(target, self.rows)
        check_range(0, tokens, self.capacity)
        slab = self.slab
        slab[:, :, target, :, :tokens] = slab[:, :, source, :, :tokens]

    def move_row(self, source: int, target: int, tokens: int) -> None:
        """The same: the old row's content is not read any more."""
        self.copy_row(source, target, tokens)

    def copy_block(self, source: int, target: int) -> None:
        """Copy a pool block."""
        self.pool[target] = self.pool[source]

    def clear(self, row: int) -> None:
        """A row is overwritten by its next sequence."""

    def close(self) -> None:
        """Drop the arrays; memory goes back when no binding holds them."""
        self._slab = self._pool = None

    def _part(self, row: int, copy: BlockCopy) -> NDArray[Any]:
        """[layers, 2, kv_heads, tokens, head_dim] view of the row."""
        check_range(copy.start, copy.stop, self.capacity)
        part: NDArray[Any] = self.slab[:, :, row, :, copy.start : copy.stop]
        return part
