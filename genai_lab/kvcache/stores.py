"""What every store of keys and values offers, whatever is under it: rows that a model run binds, and a pool of blocks.

A store acts on a manager's answers, in this order for each request in row `row`:
`load(row, allocation.loads)` once; then each step `reserve(row, receipt)`, the run, and `commit(row, committed)` or
`release(row, receipt)`; `rewind`, `copy_row` (fork), `swap_rows` (other row numbers) in between; at the end
`clear(row)`. It decides nothing and knows no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, StateError
from genai_lab.kvcache.facts import BlockCopy, Committed, Receipt
from genai_lab.kvcache.layout import KVLayout


class Store(Protocol):
    """Where a pool's blocks live, and what stands in each of `rows` rows."""

    rows: int
    num_blocks: int
    block_size: int
    nbytes: int
    writes_in_place: bool
    """A run writes into pool blocks themselves; give the same to `PagedCache`."""
    leaves_freely: bool
    """A row can be given up and taken again at no cost, as far as the prefix cache has its blocks."""

    def load(self, row: int, copies: Sequence[BlockCopy]) -> None:
        """Bring adopted blocks into the row."""
        ...

    def reserve(self, row: int, receipt: Receipt) -> None:
        """Make the row writable at the receipt's positions; due before the run."""
        ...

    def commit(self, row: int, committed: Committed) -> None:
        """The run is part of the sequence; what became findable can be loaded from now on."""
        ...

    def release(self, row: int, receipt: Receipt) -> None:
        """Undo `reserve`."""
        ...

    def can_go_back(self, row: int, tokens: int) -> bool:
        """Whether the row can go on from its first `tokens` tokens."""
        ...

    def rewind(self, row: int, tokens: int) -> None:
        """The row goes on from its first `tokens` tokens."""
        ...

    def copy_row(self, source: int, target: int, tokens: int) -> None:
        """`target` becomes the first `tokens` tokens of `source`."""
        ...

    def save_blocks(self, blocks: Sequence[int]) -> Any:
        """A copy of pool blocks that a run is about to write into and that may have to come back; None where a run
        writes into no pool block."""
        ...

    def restore_blocks(self, blocks: Sequence[int], saved: Any) -> None:
        """Bring back what `save_blocks` copied."""
        ...

    def clear(self, row: int) -> None:
        """The row is empty."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class RowStore(Store, Protocol):
    """A store whose rows are memory that a model run binds: keys and values of `rows` sequences."""

    layout: KVLayout
    capacity: int

    @property
    def slab(self) -> NDArray[Any]:
        """[layers, 2, rows, kv_heads, capacity, head_dim]; a row range of one layer's keys or values is contiguous."""
        ...

    def idle_position(self, row: int, tokens: int) -> int:
        """Where a run that carries this row along, without anybody reading the result, may write one token. `tokens`:
        those it holds."""
        ...

    def moving_cost(self, row: int, tokens: int) -> int:
        """What it costs to bring a row that holds `tokens` tokens elsewhere, in tokens that could be copied instead."""
        ...

    def swap_rows(self, first: int, second: int, tokens_first: int, tokens_second: int) -> None:
        """Each sequence goes on in the other row. Nothing may be reserved; a row without tokens is an empty one."""
        ...


def bytes_needed(layout: KVLayout, rows: int, capacity: int, num_blocks: int, block_size: int) -> tuple[int, int]:
    """Bytes of the rows and of the pool.

    >>> bytes_needed(KVLayout(2, 1, 8, "float32"), rows=2, capacity=32, num_blocks=4, block_size=16)
    (8192, 8192)
    """
    return layout.bytes_per_token * rows * capacity, layout.bytes_per_token * num_blocks * block_size


def check_sizes(rows: int, capacity: int, num_blocks: int, block_size: int) -> None:
    """Refuse an empty store."""
    if min(rows, capacity, num_blocks, block_size) < 1:
        raise ArgumentError(
            f"a store needs at least one row, token and block, got rows={rows}, capacity={capacity}, "
            f"num_blocks={num_blocks}, block_size={block_size}"
        )


def check_row(row: int, rows: int) -> None:
    """Refuse a row that is not there (a negative one too: it would be another one's)."""
    if not 0 <= row < rows:
        raise ArgumentError(f"row is {row}; the store has rows 0 to {rows - 1}")


def still_open(array: NDArray[Any] | None) -> NDArray[Any]:
    """A store's array, as long as the store is not closed."""
    if array is None:
        raise StateError("the store is closed; make a new one")
    return array


def check_range(start: int, stop: int, capacity: int) -> None:
    """Refuse positions that a row does not have."""
    if not 0 <= start <= stop <= capacity:
        raise ArgumentError(
            f"positions {start} to {stop - 1} are not in a row of {capacity} tokens; "
            f"make the store with a larger capacity"
        )
