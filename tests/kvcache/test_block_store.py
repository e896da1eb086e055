"""A pool that a run writes into itself: tables follow receipts, shared blocks are copied before they are written, and
what rows keep beside their blocks follows too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genai_lab.errors import ArgumentError, CapacityError, StateError
from genai_lab.kvcache import BlockStore, PagedCache, Receipt
from genai_lab.kvcache.beside import KEPT_PER_ROW, Rings, RowStates, TokenShapes

SHAPES: TokenShapes = {"key": ((1, 2), np.dtype(np.float32)), "scale": ((1,), np.dtype(np.float16))}
BLOCK = 4


def tokens(count: int, last: int = 0) -> Any:
    return np.array([*range(2, 1 + count), 99 + last], np.int32)


class World:
    """A cache and its store; a run writes each token's number where the store's tables say."""

    def __init__(self, **beside: Any) -> None:
        self.cache = PagedCache(12, BLOCK, writes_in_place=True)
        self.store = BlockStore(SHAPES, 3, 12, BLOCK, **beside)

    def begin(self, request: int, row: int, sequence: Any) -> int:
        allocation = self.cache.allocate(request, sequence)
        self.store.load(row, allocation.loads)  # type: ignore[union-attr]
        return int(allocation.num_cached_tokens)  # type: ignore[union-attr]

    def reserve(self, request: int, row: int, sequence: Any, start: int, stop: int) -> Receipt:
        receipt = self.cache.reserve_step(request, stop - start)
        assert isinstance(receipt, Receipt)
        self.store.reserve(row, receipt)
        for position in range(start, stop):
            block = self.store.block_table(row)[position // BLOCK]
            for tensor in self.store.pool.values():
                tensor[block, position % BLOCK] = sequence[position]
        return receipt

    def step(self, request: int, row: int, sequence: Any, start: int, stop: int) -> None:
        receipt = self.reserve(request, row, sequence, start, stop)
        self.store.commit(row, self.cache.commit(receipt, sequence[:stop]))

    def read(self, row: int, count: int) -> list[float]:
        """What the row's tokens are."""
        blocks = self.store.block_table(row)
        return [float(self.store.pool["key"][blocks[p // BLOCK], p % BLOCK, 0, 0]) for p in range(count)]


def test_rows_read_what_they_wrote_and_share_beginnings() -> None:
    world, first, second = World(), tokens(10), tokens(10, last=1)
    assert world.begin(0, 0, first) == 0
    world.step(0, 0, first, 0, 10)
    assert world.begin(1, 1, second) == 8
    world.step(1, 1, second, 8, 10)
    assert world.store.block_table(0)[:2] == world.store.block_table(1)[:2]
    assert world.store.block_table(0)[2] != world.store.block_table(1)[2]
    assert (world.read(0, 10), world.read(1, 10)) == (first.tolist(), second.tolist())


def test_a_fork_copies_the_block_it_writes_into_and_a_release_takes_it_back() -> None:
    world, sequence = World(), tokens(6)
    world.begin(0, 0, sequence)
    world.step(0, 0, sequence, 0, 6)
    world.cache.fork(0, 1)
    world.store.copy_row(0, 1, 6)
    shared, other = world.store.block_table(0), np.array([*sequence, 77], np.int32)
    receipt = world.reserve(1, 1, other, 6, 7)
    assert world.store.block_table(1)[0] == shared[0] and world.store.block_table(1)[1] != shared[1]
    assert (world.read(0, 6), world.read(1, 7)) == (sequence.tolist(), other.tolist())
    world.store.release(1, receipt)
    world.cache.release(receipt)
    assert world.store.block_table(1) == shared == world.cache.block_table(1)


def test_blocks_come_back_after_others_wrote_into_them() -> None:
    world, sequence = World(), tokens(8)
    world.begin(0, 0, sequence)
    world.step(0, 0, sequence, 0, 8)
    blocks = world.store.block_table(0)
    saved = world.store.save_blocks(blocks)
    for tensor in world.store.pool.values():
        tensor[:] = -1
    world.store.restore_blocks(blocks, saved)
    assert world.read(0, 8) == sequence.tolist()


def test_it_is_as_large_as_it_says_and_closes() -> None:
    rings = Rings({"near": ((3,), np.dtype(np.int8))}, 3, BLOCK, window=5, most=4)
    store = BlockStore(SHAPES, 3, 12, BLOCK, rings=rings)
    assert store.nbytes == 12 * BLOCK * (2 * 4 + 2) + 3 * 2 * BLOCK * 3
    store.close()
    store.close()
    with pytest.raises(StateError, match="closed"):
        _ = store.pool
    with pytest.raises(ArgumentError, match="rows 0 to 2"):
        store.block_table(3)
    with pytest.raises(CapacityError):
        BlockStore(SHAPES, 3, 2**40, BLOCK)


# ---- beside the blocks


def test_a_ring_says_how_far_back_it_reaches() -> None:
    rings = Rings(SHAPES, 2, BLOCK, window=3, most=2)  # one block: 4 places
    assert [rings.blocks(row) for row in (0, 1)] == [[0], [1]]
    for stop in (2, 4, 6, 7):
        rings.reserve(1, stop)
    assert [rings.can_go_back(1, length) for length in range(8)] == [False] * 5 + [True] * 3
    rings.arrays["key"][1] = 5
    rings.copy_row(1, 0)
    assert rings.arrays["key"][0, 0, 0, 0] == 5 and not rings.can_go_back(0, 4)
    rings.clear(1)
    assert rings.can_go_back(1, 0)


def state(value: float) -> dict[str, Any]:
    return {"memory": np.full(2, value, np.float32)}


def test_a_state_counts_from_the_commit_on() -> None:
    states = RowStates({"memory": ((2,), np.dtype(np.float32))}, {"memory": 7}, 2, sharing=True)
    assert states.of([1, 0])["memory"].tolist() == [[7, 7], [7, 7]]
    states.reserve(0, 3)
    states.offer(0, state(1))
    states.release(0)
    states.commit(0)
    assert states.of([0])["memory"].tolist() == [[7, 7]] and states.can_go_back(0, 0)
    states.reserve(0, 3)
    states.offer(0, state(2))
    states.commit(0)
    states.copy_row(0, 1)
    states.clear(0)
    assert states.of([0, 1])["memory"].tolist() == [[7, 7], [2, 2]]
    assert states.can_go_back(1, 3) and not states.can_go_back(1, 2)


def test_a_few_states_are_kept_for_beginnings() -> None:
    states = RowStates({"memory": ((2,), np.dtype(np.float32))}, {}, 1, sharing=True)
    for block in range(KEPT_PER_ROW):
        states.offer(0, state(block))
        states.commit(0)
        states.keep(0, block)
    states.load(0, 0, BLOCK)  # it was used: another is the next to go
    states.keep(0, 50)
    assert [states.has(block) for block in (0, 1, 50)] == [True, False, True]
    states.forget([0])
    assert not states.has(0)
    states.load(0, 2, 3 * BLOCK)
    assert states.of([0])["memory"].tolist() == [[2, 2]] and states.can_go_back(0, 3 * BLOCK)


def test_nothing_is_kept_where_nothing_is_shared() -> None:
    states = RowStates({"memory": ((2,), np.dtype(np.float32))}, {}, 1, sharing=False)
    states.keep(0, 3)
    assert not states.has(3)


def test_a_prefix_ends_where_a_state_is() -> None:
    """The first run ended with the first block, the second inside of the third."""
    states = RowStates({"memory": ((2,), np.dtype(np.float32))}, {}, 3, sharing=True)
    world = World(states=states)
    world.cache.may_end = world.store.may_end
    sequence = tokens(11)
    world.begin(0, 0, sequence)
    world.step(0, 0, sequence, 0, 4)
    world.step(0, 0, sequence, 4, 11)
    match = world.cache.match_prefix(sequence)
    assert match.num_cached_tokens == 4 and match.miss is not None
    assert match.miss.in_words() == (
        "block 1 (from token 4) is cached, but not the state that the model had behind it, so it is read again"
    )
