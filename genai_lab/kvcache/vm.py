"""The truly paged store, Linux only: the physical pages of pool blocks are mapped into the rows.

A model run sees ordinary contiguous rows, and a prefix that eight rows share lies in memory once. Nothing is copied but
a shared block that somebody is about to write into. The pool is a file in memory, [layers, 2, kv_heads, num_blocks,
block_size, head_dim]: neighbours in the pool that are neighbours in a row are one mapping. The kernel allows a process
a limited number of mappings; a store knows its share and refuses before it is exceeded.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, CapacityError, StateError
from genai_lab.kvcache import pages
from genai_lab.kvcache.contiguous import check_fits
from genai_lab.kvcache.facts import BlockCopy, Committed, Receipt
from genai_lab.kvcache.layout import KVLayout
from genai_lab.kvcache.stores import bytes_needed, check_range, check_row, check_sizes, still_open
from genai_lab.kvcache.table import blocks_for

SPARE_MAPPINGS = 2_000  # left to the rest of the process: libraries, threads, other arrays


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a store can be used here, and why not."""

    available: bool
    reason: str


class VmStore:
    """Rows whose pages are the pool's.

    Args:
        layout: what one token needs.
        rows: sequences that can run at a time.
        capacity: tokens per row, a multiple of `block_size`.
        num_blocks: blocks in the pool.
        block_size: tokens per block; a block of one head must fill whole pages (16 x 64 x float32 = 4096 bytes).
        max_mappings: mappings that the store may use; default what the system leaves.

    Raises:
        ArgumentError: a block does not fill whole pages, or the system has no way to map them.
        CapacityError: the pool can never fit into this machine's memory; nothing was taken.
    """

    writes_in_place = True
    leaves_freely = False

    def __init__(
        self,
        layout: KVLayout,
        rows: int,
        capacity: int,
        num_blocks: int,
        block_size: int,
        *,
        max_mappings: int | None = None,
    ) -> None:
        check_sizes(rows, capacity, num_blocks, block_size)
        availability = self.is_available(layout, block_size)
        if not availability.available:
            raise ArgumentError(f"{availability.reason}; use kv_backend='slots'")
        if capacity % block_size:
            raise ArgumentError(f"capacity is {capacity}; it must be a multiple of block_size = {block_size}")
        self.layout, self.rows, self.capacity = layout, rows, capacity
        self.num_blocks, self.block_size = num_blocks, block_size
        rows_bytes, self.nbytes = bytes_needed(layout, rows, capacity, num_blocks, block_size)
        check_fits(self.nbytes, num_blocks, block_size)
        spare = pages.mapping_limit() - pages.mappings_now() - SPARE_MAPPINGS
        self.max_mappings = spare if max_mappings is None else max_mappings
        self._piece = self.nbytes // (layout.num_layers * 2 * layout.num_kv_heads * num_blocks)  # a block of one head
        self._file = pages.memory_file(self.nbytes)
        self._close_file = weakref.finalize(self, os.close, self._file)
        self._range: pages.AddressRange | None = pages.AddressRange(rows_bytes)
        self._slab: NDArray[Any] | None = self._range.array(
            (layout.num_layers, 2, *layout.row_shape(rows, capacity)), layout.numpy_dtype
        )
        self._pool: NDArray[Any] | None = self._pool_array()
        self._tables: list[list[int | None]] = [[] for _ in range(rows)]  # None: out of the window, nothing mapped
        self._pieces = [0] * rows

    @staticmethod
    def is_available(layout: KVLayout | None = None, block_size: int | None = None) -> Availability:
        """Whether this system, and with arguments this layout, can be paged; the reason when not."""
        reason = pages.unavailable_reason()
        if reason is None and layout is not None and block_size is not None:
            piece = block_size * layout.head_dim * np.dtype(layout.dtype).itemsize
            if piece % pages.page_size():
                reason = (
                    f"a block of one head has {block_size} x {layout.head_dim} x {layout.dtype} = {piece:,} bytes, "
                    f"which is not a multiple of the page size {pages.page_size():,} (a block_size of "
                    f"{smallest_block(layout)}, or a multiple of it, is)"
                )
        return Availability(reason is None, reason or "pages can be mapped")

    @property
    def slab(self) -> NDArray[Any]:
        """[layers, 2, rows, kv_heads, capacity, head_dim]."""
        return still_open(self._slab)

    @property
    def pool(self) -> NDArray[Any]:
        """[num_blocks, layers, 2, kv_heads, block_size, head_dim], a view of the same pages."""
        return np.moveaxis(still_open(self._pool), 3, 0)

    def block_table(self, row: int) -> tuple[int | None, ...]:
        """The blocks mapped into a row; None where one fell out of the window."""
        check_row(row, self.rows)
        return tuple(self._tables[row])

    @property
    def num_mappings(self) -> int:
        """An upper bound of the mappings that the rows take now."""
        return 2 + sum(map(self._cost, self._pieces))  # the pool, and what stands before the first row

    def load(self, row: int, copies: Sequence[BlockCopy]) -> None:
        """Map adopted blocks into the row. What stands before them is out of the window: zeros, mapped to nothing."""
        wanted = {copy.start // self.block_size: copy.block for copy in copies}
        self._set_blocks(row, wanted, min(wanted, default=0))

    def map_block(self, row: int, index: int, block: int) -> None:
        """Block `index` of the row is the pool's `block`."""
        self._set_blocks(row, {index: block})

    def reserve(self, row: int, receipt: Receipt) -> None:
        """Map the new blocks, and copies of shared ones, to where the run will write."""
        check_row(row, self.rows)
        check_range(receipt.start, receipt.stop, self.capacity)
        if not receipt.new_blocks and not receipt.copies:
            return
        wanted = dict(enumerate(receipt.new_blocks, receipt.first_index))
        wanted |= {copy.index: copy.target for copy in receipt.copies}
        self._set_blocks(row, wanted)
        for copy in receipt.copies:
            self.copy_block(copy.source, copy.target)

    def commit(self, row: int, committed: Committed) -> None:
        """The pool has everything already; equal blocks give way, and surplus ones and those out of the window go."""
        if committed.swaps:
            self._set_blocks(row, {swap.index: swap.new for swap in committed.swaps})
        self.rewind(row, committed.num_tokens)
        if committed.first_block:
            self._leave(row, committed.first_block)

    def release(self, row: int, receipt: Receipt) -> None:
        """Unmap the new blocks; a copied block is the shared one again."""
        self._set_blocks(row, {copy.index: copy.source for copy in receipt.copies})
        self._cut(row, receipt.first_index)

    def idle_position(self, row: int, tokens: int) -> int:
        """Where a run that carries the row along may write: past its last block, in memory that is nobody's. Inside of
        a block, however short the row's own tokens are, others may read."""
        check_row(row, self.rows)
        position = len(self._tables[row]) * self.block_size
        check_range(position, position + 1, self.capacity)
        return position

    def can_go_back(self, row: int, tokens: int) -> bool:
        """Every token has its own place."""
        return True

    def rewind(self, row: int, tokens: int) -> None:
        """Unmap blocks beyond the first `tokens` tokens."""
        self._cut(row, blocks_for(tokens, self.block_size))

    def copy_row(self, source: int, target: int, tokens: int) -> None:
        """Map the blocks of `source` into `target` too; nothing is copied."""
        check_row(source, self.rows)
        blocks = self._tables[source][: blocks_for(tokens, self.block_size)]
        check_range(0, tokens, len(blocks) * self.block_size)
        self.clear(target)
        self._set_table(target, blocks)

    def moving_cost(self, row: int, tokens: int) -> int:
        """A mapping takes as long as the copying of a token, and every head has its own pieces."""
        check_row(row, self.rows)
        return self._pieces[row] * self.layout.num_layers * 2 * self.layout.num_kv_heads

    def swap_rows(self, first: int, second: int, tokens_first: int, tokens_second: int) -> None:
        """Map the blocks of each into the other; nothing is copied."""
        check_row(first, self.rows)
        check_row(second, self.rows)
        if first == second:
            return
        tables = self.block_table(first), self.block_table(second)
        self.clear(first)  # so that at no time there are more mappings than before
        self.clear(second)
        self._set_table(second, tables[0])
        self._set_table(first, tables[1])

    def copy_block(self, source: int, target: int) -> None:
        """Copy a pool block."""
        pool = still_open(self._pool)
        pool[:, :, :, target] = pool[:, :, :, source]

    def save_blocks(self, blocks: Sequence[int]) -> NDArray[Any]:
        """[layers, 2, kv_heads, blocks, block_size, head_dim]."""
        saved: NDArray[Any] = still_open(self._pool)[:, :, :, list(blocks)]  # a list makes it a copy
        return saved

    def restore_blocks(self, blocks: Sequence[int], saved: NDArray[Any] | None) -> None:
        """Write the copy back."""
        if saved is not None:
            still_open(self._pool)[:, :, :, list(blocks)] = saved

    def clear(self, row: int) -> None:
        """Unmap all blocks, so that nothing written into an idle row reaches a block that others read."""
        self._cut(row, 0)

    def close(self) -> None:
        """Unmap everything. Arrays that somebody still holds are zeros; the last one gives the addresses back."""
        if self._range is not None:
            self._range.blank(0, self._range.nbytes)
        self._range = self._slab = self._pool = None
        self._tables, self._pieces = [[] for _ in range(self.rows)], [0] * self.rows
        self._close_file()

    def _pool_array(self) -> NDArray[Any]:
        whole = pages.AddressRange(self.nbytes)
        whole.map_file(0, self.nbytes, self._file, 0)
        layout = self.layout
        shape = (layout.num_layers, 2, layout.num_kv_heads, self.num_blocks, self.block_size, layout.head_dim)
        return whole.array(shape, layout.numpy_dtype)

    def _set_blocks(self, row: int, wanted: dict[int, int], holes: int = 0) -> None:
        """Map blocks by index; all or, when there are not enough mappings, none. An empty row begins with `holes`."""
        check_row(row, self.rows)
        if not wanted:
            return
        table = list(self._tables[row]) or [None] * holes
        for index, block in sorted(wanted.items()):
            self._check_place(row, index, block, len(table))
            table[index : index + 1] = [block]
        self._check_mappings(row, table)
        for index, block, count in _stretches(wanted):
            self._map_stretch(row, index, block, count)
        self._tables[row], self._pieces[row] = table, _count_pieces(table)

    def _set_table(self, row: int, table: Sequence[int | None]) -> None:
        """Map a whole table into an empty row."""
        held = {index: block for index, block in enumerate(table) if block is not None}
        self._set_blocks(row, held, table.count(None))

    def _check_place(self, row: int, index: int, block: int, length: int) -> None:
        check_range(0, (index + 1) * self.block_size, self.capacity)
        if not 0 <= block < self.num_blocks:
            raise ArgumentError(f"block is {block}; the pool has blocks 0 to {self.num_blocks - 1}")
        if not 0 <= index <= length:
            raise ArgumentError(f"index is {index}; row {row} has {length} blocks, so 0 to {length} is allowed")

    def _check_mappings(self, row: int, table: list[int | None]) -> None:
        needed = self.num_mappings - self._cost(self._pieces[row]) + self._cost(_count_pieces(table))
        if needed > self.max_mappings:
            raise CapacityError(
                f"row {row} with {len(table)} blocks in {_count_pieces(table)} separate pieces needs {needed:,} memory "
                f"mappings with the other rows; {self.max_mappings:,} are allowed (vm.max_map_count). Use fewer rows, "
                f"a larger block_size, or kv_backend='slots'"
            )

    def _cost(self, pieces: int) -> int:
        """Mappings of a row: each head's pieces and its empty rest; an empty row's heads are one."""
        parts = self.layout.num_layers * 2
        return parts * self.layout.num_kv_heads * (pieces + 1) if pieces else parts

    def _map_stretch(self, row: int, index: int, block: int, count: int) -> None:
        piece = self._piece
        offsets = [offset + index * piece for offset in self._head_offsets(row)]
        places = [(head * self.num_blocks + block) * piece for head in range(len(offsets))]
        self._open_range().map_pieces(offsets, count * piece, self._file, places)

    def _cut(self, row: int, count: int) -> None:
        check_row(row, self.rows)
        surplus = len(self._tables[row]) - count
        if surplus <= 0:
            return
        where, piece = self._open_range(), self._piece
        for offset in self._head_offsets(row):
            where.blank(offset + count * piece, surplus * piece)
        del self._tables[row][count:]
        self._pieces[row] = _count_pieces(self._tables[row])

    def _leave(self, row: int, first: int) -> None:
        """Unmap what stands before block `first`."""
        table = self._tables[row]
        gone = next((index for index, block in enumerate(table[:first]) if block is not None), first)
        if gone >= min(first, len(table)):
            return
        where, piece, stop = self._open_range(), self._piece, min(first, len(table))
        for offset in self._head_offsets(row):
            where.blank(offset + gone * piece, (stop - gone) * piece)
        table[gone:stop] = [None] * (stop - gone)
        self._pieces[row] = _count_pieces(table)

    def _head_offsets(self, row: int) -> Iterator[int]:
        """Where the row of each layer, of keys and values, and of each head begins, in the pool's order."""
        heads = self.layout.num_kv_heads
        size = self.capacity // self.block_size * self._piece
        for part in range(self.layout.num_layers * 2):
            for head in range(heads):
                yield ((part * self.rows + row) * heads + head) * size

    def _open_range(self) -> pages.AddressRange:
        if self._range is None:
            raise StateError("the store is closed; make a new one")
        return self._range


def smallest_block(layout: KVLayout) -> int:
    """The fewest tokens whose keys of one head fill whole pages.

    >>> smallest_block(KVLayout(30, 3, 64, "float32")) * 64 * 4 == pages.page_size()
    True
    """
    page = pages.page_size()
    return page // math.gcd(page, layout.head_dim * np.dtype(layout.dtype).itemsize)


def _count_pieces(table: Sequence[int | None]) -> int:
    """Stretches of a table that are neighbours in the pool: one mapping each, as is the empty stretch before them.

    >>> _count_pieces([4, 5, 7]), _count_pieces([None, None, 3]), _count_pieces([])
    (2, 2, 0)
    """
    return bool(table) + sum(second != (None if first is None else first + 1) for first, second in pairwise(table))


def _stretches(wanted: dict[int, int]) -> list[tuple[int, int, int]]:
    """(index, block, count) for each stretch of indices whose blocks are neighbours too."""
    found: list[tuple[int, int, int]] = []
    for index, block in sorted(wanted.items()):
        first, first_block, count = found[-1] if found else (index, block, 0)
        if (index, block) == (first + count, first_block + count):
            found[-1:] = [(first, first_block, count + 1)]
        else:
            found.append((index, block, 1))
    return found
