"""The portable store: rows of their own for running sequences, and a pool for the blocks that can be found.

A run writes into its row. A block that became findable stays there, and the store remembers where; it is copied into
the pool only when something else is about to be written over it. So most blocks are never copied, and a conversation
that comes back to its row finds it warm. A row's memory is its own, so sharing and copy-on-write concern the
bookkeeping only, and a released run leaves nothing behind that a later one could read.
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
from genai_lab.kvcache.untouched import untouched_zeros


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
    leaves_freely = False

    def __init__(self, layout: KVLayout, rows: int, capacity: int, num_blocks: int, block_size: int) -> None:
        check_sizes(rows, capacity, num_blocks, block_size)
        self.layout, self.rows, self.capacity = layout, rows, capacity
        self.num_blocks, self.block_size = num_blocks, block_size
        self.nbytes = sum(bytes_needed(layout, rows, capacity, num_blocks, block_size))
        check_fits(self.nbytes, rows, capacity)
        shape = layout.row_shape(rows, capacity)
        # the system gives memory as tokens arrive
        self._slab: NDArray[Any] | None = untouched_zeros((layout.num_layers, 2, *shape), layout.numpy_dtype)
        self._pool: NDArray[Any] | None = untouched_zeros(
            (num_blocks, layout.num_layers, 2, layout.num_kv_heads, block_size, layout.head_dim), layout.numpy_dtype
        )
        self._places: dict[int, tuple[int, int]] = {}  # block -> (row, start): its content is there, not in the pool
        self._owed: list[dict[int, int]] = [{} for _ in range(rows)]  # for each row the same, start -> block
        self._reserved: dict[int, Receipt] = {}  # by row

    @property
    def slab(self) -> NDArray[Any]:
        """[layers, 2, rows, kv_heads, capacity, head_dim]."""
        return still_open(self._slab)

    @property
    def pool(self) -> NDArray[Any]:
        """[num_blocks, layers, 2, kv_heads, block_size, head_dim], complete: asking copies what was left in rows."""
        pool = still_open(self._pool)
        for row in range(self.rows):
            self._keep(row, 0, self.capacity)
        return pool

    def load(self, row: int, copies: Sequence[BlockCopy]) -> None:
        """Copy adopted blocks into the row, from the row where they were computed or from the pool."""
        check_row(row, self.rows)
        owed = self._owed[row]
        if copies and copies[0].start:
            self._clean(row, copies[0].start)
        for copy in copies:
            if owed.get(copy.start) != copy.block:
                self._keep(row, copy.start, copy.stop)
        for copy in copies:
            if owed.get(copy.start) != copy.block:  # else it is where it belongs
                self._part(row, copy)[...] = self._content(copy)

    def store(self, row: int, copies: Sequence[BlockCopy]) -> None:
        """Copy parts of the row into pool blocks, now."""
        check_row(row, self.rows)
        pool = still_open(self._pool)
        for copy in copies:
            self._forget(copy.block)
            pool[copy.block, ..., : copy.stop - copy.start, :] = self._part(row, copy)

    def reserve(self, row: int, receipt: Receipt) -> None:
        """A row has all its memory already; what it keeps for others where the run will write goes into the pool."""
        check_row(row, self.rows)
        check_range(receipt.start, receipt.stop, self.capacity)
        self._keep(row, receipt.start, receipt.stop)
        self._reserved[row] = receipt

    def commit(self, row: int, committed: Committed) -> None:
        """Remember where the blocks are that became findable; the blocks that were taken hold nothing old any more."""
        check_row(row, self.rows)
        receipt = self._reserved.pop(row, None)
        if receipt is not None and (receipt.new_blocks or receipt.copies):
            for block in (*receipt.new_blocks, *(copy.target for copy in receipt.copies)):
                self._forget(block)
        for copy in committed.stores:
            check_range(copy.start, copy.stop, self.capacity)
            self._forget(copy.block)
            self._places[copy.block] = (row, copy.start)
            self._owed[row][copy.start] = copy.block

    def release(self, row: int, receipt: Receipt) -> None:
        """What a failed run wrote lies beyond the sequence's length, where nobody reads."""
        self._reserved.pop(row, None)

    def idle_position(self, row: int, tokens: int) -> int:
        """Where a run that carries the row along may write: after its `tokens`. What the row keeps there for others
        goes into the pool first."""
        self._keep(row, tokens, tokens + 1)
        return tokens

    def can_go_back(self, row: int, tokens: int) -> bool:
        """Every token has its own place."""
        return True

    def rewind(self, row: int, tokens: int) -> None:
        """Tokens beyond the length are not read."""

    def copy_row(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of a row into another."""
        check_row(source, self.rows)
        check_row(target, self.rows)
        check_range(0, tokens, self.capacity)
        if source != target:
            self._keep(target, 0, tokens)
            slab = self.slab
            slab[:, :, target, :, :tokens] = slab[:, :, source, :, :tokens]

    def moving_cost(self, row: int, tokens: int) -> int:
        """Its tokens, and what it keeps for others behind them."""
        return max(tokens, max(self._owed[row], default=-self.block_size) + self.block_size)

    def swap_rows(self, first: int, second: int, tokens_first: int, tokens_second: int) -> None:
        """Copy each into the other, layer by layer, and what they keep for others with them."""
        check_row(first, self.rows)
        check_row(second, self.rows)
        if first == second:
            return
        lengths = self.moving_cost(first, tokens_first), self.moving_cost(second, tokens_second)
        check_range(0, max(lengths), self.capacity)
        (few, short), (many, long) = sorted(zip(lengths, (first, second), strict=True))
        for layer in self.slab:  # [2, rows, kv_heads, capacity, head_dim]
            kept = layer[:, short, :, :few].copy()
            layer[:, short, :, :many] = layer[:, long, :, :many]
            layer[:, long, :, :few] = kept
        self._owed[first], self._owed[second] = self._owed[second], self._owed[first]
        for row in (first, second):
            self._places |= {block: (row, start) for start, block in self._owed[row].items()}

    def copy_block(self, source: int, target: int) -> None:
        """Copy a pool block."""
        pool = self.pool
        pool[target] = pool[source]

    def save_blocks(self, blocks: Sequence[int]) -> None:
        """A run writes into rows only."""

    def restore_blocks(self, blocks: Sequence[int], saved: NDArray[Any] | None) -> None:
        """Nothing was overwritten."""

    def clear(self, row: int) -> None:
        """Nothing yet: what the row keeps for others stays until its next sequence overwrites it."""

    def close(self) -> None:
        """Drop the arrays; memory goes back when no binding holds them."""
        self._slab = self._pool = None
        self._places.clear()
        self._owed = [{} for _ in range(self.rows)]

    def _keep(self, row: int, start: int, stop: int) -> None:
        """Copy into the pool what lies in [start, stop) of the row and nowhere else."""
        owed, first = self._owed[row], start - self.block_size  # a block that begins after `first` reaches into it
        if not owed or max(owed) <= first:  # as nearly always: what is kept stands before what is written
            return
        for place in [place for place in owed if first < place < stop]:
            block = owed[place]
            self.store(row, (BlockCopy(block, place, place + self.block_size),))

    def _clean(self, row: int, stop: int) -> None:
        """What stands in [0, stop) is out of the new sequence's window. The attention kernel reads it and takes none of
        it, unless it is no number: a request whose model failed so must not spoil the next."""
        check_range(0, stop, self.capacity)
        part = self.slab[:, :, row, :, :stop]
        with np.errstate(over="ignore", invalid="ignore"):
            spoilt = part.dtype.kind == "f" and not np.isfinite(part.sum())
        if spoilt:
            self._keep(row, 0, stop)
            part[...] = 0

    def _forget(self, block: int) -> None:
        """The block's content is not in a row any more, or is not wanted."""
        place = self._places.pop(block, None)
        if place is not None:
            del self._owed[place[0]][place[1]]

    def _content(self, copy: BlockCopy) -> NDArray[Any]:
        """[layers, 2, kv_heads, tokens, head_dim] view of a block, wherever it is."""
        place, count = self._places.get(copy.block), copy.stop - copy.start
        if place is None:
            part: NDArray[Any] = still_open(self._pool)[copy.block, ..., :count, :]
            return part
        row, start = place
        return self._part(row, BlockCopy(copy.block, start, start + count))

    def _part(self, row: int, copy: BlockCopy) -> NDArray[Any]:
        """[layers, 2, kv_heads, tokens, head_dim] view of the row."""
        check_range(copy.start, copy.stop, self.capacity)
        part: NDArray[Any] = self.slab[:, :, row, :, copy.start : copy.stop]
        return part
