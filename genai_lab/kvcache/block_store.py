"""The store of a graph that reads block tables itself: the pool is all there is, and a row is a table.

A run writes into pool blocks in place. Nothing is copied but a shared block that somebody is about to write into.
Receives named shapes; knows no graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from genai_lab.errors import StateError
from genai_lab.kvcache.beside import Arrays, Beside, Rings, RowStates, TokenShapes, nbytes_of
from genai_lab.kvcache.contiguous import check_fits
from genai_lab.kvcache.facts import BlockCopy, Committed, Receipt
from genai_lab.kvcache.stores import check_row, check_sizes
from genai_lab.kvcache.table import blocks_for
from genai_lab.kvcache.untouched import untouched_zeros


class BlockStore:
    """A pool of blocks, and the tables of `rows` sequences.

    Args:
        shapes: what one token takes in each tensor.
        rows: sequences that can run at a time.
        num_blocks: blocks in the pool.
        block_size: tokens per block.
        rings, states: what rows keep beside their blocks.

    Raises:
        CapacityError: the pool can never fit into this machine's memory; nothing was taken.

    >>> import numpy as np
    >>> store = BlockStore({"key": ((1, 8), np.dtype("float32"))}, rows=2, num_blocks=4, block_size=16)
    >>> store.pool["key"].shape, store.nbytes
    ((4, 16, 1, 8), 2048)
    """

    writes_in_place = leaves_freely = True

    def __init__(
        self,
        shapes: TokenShapes,
        rows: int,
        num_blocks: int,
        block_size: int,
        *,
        rings: Rings | None = None,
        states: RowStates | None = None,
    ) -> None:
        check_sizes(rows, block_size, num_blocks, block_size)
        self.rows, self.num_blocks, self.block_size = rows, num_blocks, block_size
        per_token = sum(math.prod(shape) * kind.itemsize for shape, kind in shapes.values())
        check_fits(per_token * num_blocks * block_size, num_blocks, block_size)
        self.rings, self.states = rings, states
        self._beside: list[Beside] = [part for part in (rings, states) if part is not None]
        self.nbytes = per_token * num_blocks * block_size + nbytes_of(self._beside)
        self._pool: Arrays | None = {
            name: untouched_zeros((num_blocks, block_size, *shape), kind) for name, (shape, kind) in shapes.items()
        }
        self._tables: list[list[int]] = [[] for _ in range(rows)]

    @property
    def pool(self) -> Arrays:
        """By name, [num_blocks, block_size, *shape of a token]."""
        if self._pool is None:
            raise StateError("the store is closed; make a new one")
        return self._pool

    def block_table(self, row: int) -> tuple[int, ...]:
        """The blocks of a row, those reserved for a run included."""
        check_row(row, self.rows)
        return tuple(self._tables[row])

    def place(self, row: int, blocks: Sequence[int]) -> None:
        """The row has these blocks; what it keeps beside them stays as it is."""
        check_row(row, self.rows)
        self._tables[row] = list(blocks)

    def load(self, row: int, copies: Sequence[BlockCopy]) -> None:
        """The row begins with adopted blocks."""
        self.place(row, [copy.block for copy in copies])
        for part in self._beside if copies else ():
            part.load(row, copies[-1].block, copies[-1].stop)

    def reserve(self, row: int, receipt: Receipt) -> None:
        """New blocks, and copies of shared ones, stand where the run will write."""
        check_row(row, self.rows)
        table = self._tables[row]
        table[receipt.first_index :] = receipt.new_blocks
        for copy in receipt.copies:
            table[copy.index] = copy.target
            for tensor in self.pool.values():
                tensor[copy.target] = tensor[copy.source]
        for part in self._beside:
            part.forget((*receipt.new_blocks, *(copy.target for copy in receipt.copies)))
            part.reserve(row, receipt.stop)

    def commit(self, row: int, committed: Committed) -> None:
        """The pool has everything already; equal blocks give way, and surplus ones go."""
        for swap in committed.swaps:
            self._tables[row][swap.index] = swap.new
        self.rewind(row, committed.num_tokens)
        for part in self._beside:
            part.commit(row)
            if committed.num_tokens % self.block_size == 0:
                part.keep(row, self._tables[row][-1])

    def may_end(self, block: int) -> bool:
        """Whether a sequence can go on behind this block: what rows keep beside their blocks is there."""
        return self.rings is None and (self.states is None or self.states.has(block))

    def release(self, row: int, receipt: Receipt) -> None:
        """A copied block is the shared one again, new ones go."""
        for copy in receipt.copies:
            self._tables[row][copy.index] = copy.source
        del self._tables[row][receipt.first_index :]
        for part in self._beside:
            part.release(row)

    def can_go_back(self, row: int, tokens: int) -> bool:
        """Whether what the row keeps beside its blocks reaches back that far."""
        check_row(row, self.rows)
        return all(part.can_go_back(row, tokens) for part in self._beside)

    def rewind(self, row: int, tokens: int) -> None:
        """The row goes on from its first `tokens` tokens."""
        check_row(row, self.rows)
        del self._tables[row][blocks_for(tokens, self.block_size) :]

    def copy_row(self, source: int, target: int, tokens: int) -> None:
        """`target` has the blocks of `source` too."""
        check_row(target, self.rows)
        self._tables[target] = list(self.block_table(source)[: blocks_for(tokens, self.block_size)])
        for part in self._beside:
            part.copy_row(source, target)

    def save_blocks(self, blocks: Sequence[int]) -> Arrays:
        """By name, a copy of those blocks."""
        return {name: tensor[list(blocks)] for name, tensor in self.pool.items()}  # a list makes it a copy

    def restore_blocks(self, blocks: Sequence[int], saved: Any) -> None:
        """Write the copy back."""
        for name, content in saved.items():
            self.pool[name][list(blocks)] = content

    def clear(self, row: int) -> None:
        """The row is empty."""
        check_row(row, self.rows)
        self._tables[row] = []
        for part in self._beside:
            part.clear(row)

    def close(self) -> None:
        """Drop the arrays; memory goes back when no binding holds them."""
        self._pool, self.rings, self.states, self._beside = None, None, None, []
        self._tables = [[] for _ in range(self.rows)]
