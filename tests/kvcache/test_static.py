"""The static cache: whole regions, nothing shared, the same answers."""

from __future__ import annotations

import pytest

from genai_lab.errors import ArgumentError
from genai_lab.kvcache import Fit, Forked, MissReason, Shortage, StaticCache
from tests.kvcache.short import ids, reserved, run, taken_in


@pytest.fixture
def cache() -> StaticCache:
    return StaticCache(num_blocks=9, block_size=4, max_tokens=14)  # two regions of four blocks, one block over


def test_regions_are_given_lowest_first_and_come_back(cache: StaticCache) -> None:
    tables = [taken_in(cache, request, ids(1, 2, 3)).block_table for request in (0, 1)]
    assert tables == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert cache.can_allocate(ids(1)) == Fit(4, 0, 0, False, False)
    assert cache.allocate(2, ids(1)) == Shortage(4, 0)
    assert cache.free(0).blocks_freed == (3, 2, 1, 0)
    assert taken_in(cache, 2, ids(1)).block_table == (0, 1, 2, 3)
    assert cache.check() == []
    for request in (1, 2):
        cache.free(request)
    assert taken_in(cache, 3, ids(1)).block_table == (0, 1, 2, 3)
    assert taken_in(cache, 4, ids(1)).block_table == (4, 5, 6, 7)


def test_room_that_nobody_fills_is_visible(cache: StaticCache) -> None:
    taken_in(cache, 0, ids(1, 2, 3, 4, 5))
    run(cache, 0, ids(1, 2, 3, 4, 5))
    usage = cache.usage()
    assert (usage.blocks_used, usage.tokens_used, usage.blocks_free) == (4, 5, 5)
    assert usage == cache.snapshot().usage()
    assert cache.snapshot().tokens_filled == (4, 1, 0, 0, 0, 0, 0, 0, 0)
    assert cache.snapshot().kind == "static"


def test_nothing_is_shared(cache: StaticCache) -> None:
    prompt = ids(1, 2, 3, 4, 5)
    taken_in(cache, 0, prompt)
    run(cache, 0, prompt)
    match = cache.match_prefix(prompt)
    assert match.blocks == () and match.miss is not None and match.miss.reason is MissReason.NO_CACHE
    forked = cache.fork(0, 1, length=3)
    assert forked == Forked(0, 1, (4, 5, 6, 7), 3)
    assert cache.fork(0, 2) == Shortage(4, 0)
    assert cache.reset_prefix_cache() == 0 and cache.check() == []


def test_the_region_is_the_limit(cache: StaticCache) -> None:
    assert cache.can_allocate(ids(*range(15))).never_fits
    taken_in(cache, 0, ids(*range(14)))
    assert cache.reserve_step(0, 15) == Shortage(1, 0)
    receipt = reserved(cache, 0, 14)
    cache.release(receipt)
    run(cache, 0, ids(*range(14)))
    assert isinstance(cache.reserve_step(0, 1), Shortage)
    cache.rewind(0, 13)
    assert reserved(cache, 0, 1).first_index == 4
    assert StaticCache(3, 4, 14).can_allocate(ids(1)).never_fits


def test_an_empty_cache_is_refused() -> None:
    with pytest.raises(ArgumentError, match="max_tokens=0"):
        StaticCache(4, 4, 0)
