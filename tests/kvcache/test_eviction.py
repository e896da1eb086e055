"""The order in which cached blocks are given up, and policies that a person writes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from genai_lab.errors import ArgumentError
from genai_lab.kvcache import DeepestFirst, Eviction, FreeBlock, LeastOftenUsed, LeastRecentlyUsed, PagedCache
from genai_lab.kvcache.eviction import EvictionLog
from genai_lab.kvcache.keys import BlockKey, token_bytes
from tests.kvcache.short import cached, ids, reserved, run, taken_in

FIRST, SECOND = ids(*range(10, 19)), ids(*range(20, 29))  # two full blocks of 4 and one token each


def evicted_blocks(cache: PagedCache, count: int) -> list[tuple[int, int]]:
    """(owner, first position) of the blocks that `count` more blocks would cost; nothing changes."""
    taken_in(cache, 99, ids(*range(500, 500 + 4 * count)))
    receipt = reserved(cache, 99, 4 * count, step=50)
    cache.release(receipt)
    cache.free(99)
    return [(eviction.owner, eviction.start) for eviction in receipt.evicted]


def two_prompts(policy: object = None) -> PagedCache:
    cache = PagedCache(num_blocks=6, block_size=4, eviction=policy)  # type: ignore[arg-type]
    cached(cache, 1, FIRST, step=1)
    cached(cache, 2, SECOND, step=2)
    return cache


def test_empty_blocks_first_then_the_longest_unused_ends_before_beginnings() -> None:
    cache = two_prompts()
    snapshot = cache.snapshot()
    assert [snapshot.states[block].value for block in snapshot.free_queue] == ["free"] * 2 + ["cached"] * 4
    assert evicted_blocks(cache, 2) == []
    assert evicted_blocks(cache, 6) == [(1, 4), (1, 0), (2, 4), (2, 0)]


def test_use_makes_a_block_young_again() -> None:
    cache = two_prompts()
    taken_in(cache, 3, FIRST[:5], step=3)
    cache.free(3, step=3)
    assert evicted_blocks(cache, 6) == [(1, 4), (2, 4), (2, 0), (1, 0)]


def test_a_block_just_hit_is_never_evicted() -> None:
    cache = two_prompts()
    allocation = taken_in(cache, 3, FIRST, step=3)
    receipt = reserved(cache, 3, 16, step=3)  # all four that are left
    assert {eviction.owner for eviction in receipt.evicted} == {2}
    assert not set(receipt.new_blocks) & set(allocation.block_table)
    cache.commit(receipt, ids(*FIRST[:8], *range(60, 76)))
    assert cache.reserve_step(3, 1) is not None and cache.usage().blocks_used == 6


def test_partial_blocks_are_reused_before_everything_else() -> None:
    cache = PagedCache(num_blocks=6, block_size=4)
    cached(cache, 1, FIRST)
    assert cache.snapshot().free_queue == (2, 3, 4, 5, 1, 0), "2 was partly filled, 1 and 0 can be found"


def test_least_often_used_keeps_the_popular_prompt() -> None:
    cache = two_prompts(LeastOftenUsed())
    for request in range(3, 6):
        taken_in(cache, request, FIRST)
        cache.free(request)
    taken_in(cache, 9, SECOND)
    cache.free(9)
    assert evicted_blocks(cache, 4) == [(2, 4), (2, 0)]


def test_deepest_first_keeps_the_beginnings() -> None:
    assert evicted_blocks(two_prompts(DeepestFirst()), 6) == [(1, 4), (2, 4), (1, 0), (2, 0)]


class YoungestOfRequest:
    """What a person writes in a cell."""

    name = "a block of the chosen request"

    def __init__(self, request: int) -> None:
        self.request = request
        self.seen: list[FreeBlock] = []

    def choose(self, candidates: Sequence[FreeBlock]) -> int:
        self.seen = list(candidates)
        assert candidates[-1] == self.seen[-1] and candidates[:2] == self.seen[:2]
        return [free.block for free in candidates if free.request == self.request][-1]


def test_a_policy_of_ones_own_is_asked_and_named() -> None:
    policy = YoungestOfRequest(2)
    cache = two_prompts(policy)
    taken_in(cache, 9, ids(*range(500, 512)))
    receipt = reserved(cache, 9, 12, step=7)
    (eviction,) = receipt.evicted
    assert (eviction.owner, eviction.start, eviction.by, eviction.step) == (2, 0, 9, 7)
    assert eviction.in_words().endswith("it was a block of the chosen request of 4 cached free blocks")
    assert [(free.request, free.depth, free.last_used, free.hits) for free in policy.seen] == [
        (1, 2, 1, 0),
        (1, 1, 1, 0),
        (2, 2, 2, 0),
        (2, 1, 2, 0),
    ]
    assert cache.evictions == (eviction,)
    cache.release(receipt)
    assert cache.evictions == ()


class Nonsense:
    name = "nonsense"

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def choose(self, candidates: Sequence[FreeBlock]) -> int:
        return self.answers.pop(0)  # type: ignore[return-value]


@pytest.mark.parametrize("answer", [77, -1, None, [0], 4])
def test_a_policy_that_returns_nonsense_is_named_and_nothing_changes(answer: object) -> None:
    cache = two_prompts(Nonsense(0, answer))  # the first answer is fine; 4 is a block that is taken already
    taken_in(cache, 9, ids(*range(500, 516)))
    before = cache.snapshot()
    with pytest.raises(ArgumentError, match=r"policy Nonsense chose block .* not among its 3 candidates"):
        cache.reserve_step(9, 16)
    assert cache.snapshot() == before and cache.check() == []
    assert run(cache, 9, ids(*range(500, 508))).newly_cached == 2


def test_the_newest_evictions_are_remembered() -> None:
    log, root = EvictionLog(limit=2), BlockKey.root("", "")
    a, b, c = (root.child(token_bytes([token])) for token in (1, 2, 3))
    evictions = {step: Eviction(0, 0, 0, 1, 0, step, 9, "oldest", 1) for step in range(4)}
    for step, key in enumerate((a, b, a, c)):
        log.add(key, evictions[step])
    assert (log.find(a), log.find(b), log.find(c)) == (evictions[2], None, evictions[3])
    assert log.count == 4 and list(log.recent) == [evictions[2], evictions[3]]


def test_policies_by_default() -> None:
    assert isinstance(PagedCache(1, 1).pool.eviction, LeastRecentlyUsed)
