"""Each validator finds what it is for, and says it; a sound state passes all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from genai_lab.errors import StateError
from genai_lab.kvcache import BlockState, CacheSnapshot, PagedCache, check_cache, raise_if_broken
from genai_lab.kvcache import invariants as checks
from tests.kvcache.short import cached, ids, reserved, run, taken_in


def sound() -> CacheSnapshot:
    """Request 0 with blocks 0, 1, 2 (nine tokens), request 1 sharing 0 and 1; block 3 cached, 4 reserved, 5 empty."""
    cache = PagedCache(num_blocks=6, block_size=4)
    taken_in(cache, 0, ids(*range(1, 10)))
    run(cache, 0, ids(*range(1, 10)))
    cached(cache, 7, ids(60, 61, 62, 63))
    taken_in(cache, 1, ids(*range(1, 10)))
    reserved(cache, 1, 1)
    return cache.snapshot()


def changed(column: str, index: int, value: object) -> CacheSnapshot:
    snapshot = sound()
    values = list(getattr(snapshot, column))
    values[index] = value
    return replace(snapshot, **{column: tuple(values)})


def request_changed(index: int, **changes: object) -> CacheSnapshot:
    snapshot = sound()
    return changed("requests", index, replace(snapshot.requests[index], **changes))  # type: ignore[arg-type]


def test_a_sound_state_passes() -> None:
    snapshot = sound()
    assert [state.value for state in snapshot.states] == ["used", "used", "used", "cached", "reserved", "free"]
    assert check_cache(snapshot) == []
    raise_if_broken(check_cache(snapshot))


BROKEN: list[tuple[Callable[[CacheSnapshot], list[str]], Callable[[], CacheSnapshot], str]] = [
    (
        checks.every_block_is_somewhere,
        lambda: replace(sound(), free_queue=(5,)),
        "2 blocks are free, the free queue has 1",
    ),
    (
        checks.every_block_is_somewhere,
        lambda: request_changed(0, block_table=(0, 1)),
        "3 blocks are used, tables hold 2",
    ),
    (
        checks.only_the_window_is_held,
        lambda: request_changed(0, first_block=1, block_table=(1, 2)),
        "request 0 with 9 tokens holds blocks from 1 on; its next token sees them from 0 on",
    ),
    (checks.ids_are_in_range_and_once, lambda: request_changed(0, block_table=(0, 1, 6)), "request 0 has block 6"),
    (checks.ids_are_in_range_and_once, lambda: request_changed(0, block_table=(0, 1, 1)), "has block 1 more than once"),
    (checks.ids_are_in_range_and_once, lambda: replace(sound(), free_queue=(5, 5)), "the free queue has block 5 more"),
    (checks.ref_counts_are_holders, lambda: changed("ref_counts", 0, 1), "block 0 has reference count 1, 2 tables"),
    (checks.ref_counts_are_holders, lambda: changed("states", 2, BlockState.FREE), "reference count 1 and is free"),
    (checks.ref_counts_are_holders, lambda: changed("owners", 0, (0,)), "block 0 has reference count 2"),
    (
        checks.the_free_queue_has_the_free_blocks,
        lambda: replace(sound(), free_queue=(5, 2)),
        "block 3 is cached and not",
    ),
    (
        checks.the_free_queue_has_the_free_blocks,
        lambda: replace(sound(), free_queue=(5, 3, 2)),
        "block 2 is used and in",
    ),
    (checks.tables_have_room_for_their_tokens, lambda: request_changed(0, num_tokens=13), "13 tokens in 12 slots"),
    (checks.tables_have_room_for_their_tokens, lambda: request_changed(0, num_tokens=8), "8 tokens in 12 slots"),
    (checks.tables_have_room_for_their_tokens, lambda: changed("tokens_filled", 2, 5), "block 2 has 5 tokens"),
    (checks.reserved_blocks_have_one_receipt, lambda: replace(sound(), receipts=()), "reserved and promised to 0"),
    (
        checks.reserved_blocks_have_one_receipt,
        lambda: replace(sound(), receipts=sound().receipts * 2),
        "block 4 is promised to 2 receipts",
    ),
    (
        checks.reserved_blocks_have_one_receipt,
        lambda: changed("receipts", 0, replace(sound().receipts[0], request=5)),
        "for request 5, which has no table",
    ),
    (checks.only_full_blocks_can_be_found, lambda: changed("hashes", 5, 77), "block 5 has a hash, is free"),
    (checks.only_full_blocks_can_be_found, lambda: changed("hashes", 2, 77), "is used and has 1 tokens"),
    (checks.only_full_blocks_can_be_found, lambda: changed("hashes", 3, None), "cached without a hash"),
    (checks.shared_blocks_stand_at_their_place, lambda: request_changed(1, salt="x"), "different adapters or salts"),
    (checks.shared_blocks_stand_at_their_place, lambda: request_changed(1, block_table=(1, 0)), "at different places"),
    (checks.shared_blocks_stand_at_their_place, lambda: changed("depths", 1, 3), "was computed as block 2, request 0"),
    (checks.chains_hang_together, lambda: changed("parents", 1, 5), "request 0: block 1 does not follow block 0"),
    (checks.some_token_is_left_to_run, lambda: request_changed(1, num_cached_tokens=9), "adopted 9 of its 8 tokens"),
    (checks.empty_blocks_are_taken_first, lambda: replace(sound(), free_queue=(3, 5)), "stands before an empty one"),
    (checks.tails_go_before_heads, lambda: changed("parents", 0, sound().hashes[3]), "block 3 would be evicted before"),
]


@pytest.mark.parametrize(("check", "broken", "words"), BROKEN)
def test_what_is_broken_is_found(
    check: Callable[[CacheSnapshot], list[str]], broken: Callable[[], CacheSnapshot], words: str
) -> None:
    snapshot = broken()
    assert words in "; ".join(check(snapshot))
    with pytest.raises(StateError, match=check.__name__):
        raise_if_broken(check_cache(snapshot))


def test_every_validator_is_tested() -> None:
    assert {check for check, _, _ in BROKEN} == set(checks.INVARIANTS)


def test_a_pool_that_disagrees_with_itself_says_so() -> None:
    cache = PagedCache(num_blocks=6, block_size=4)
    cached(cache, 7, ids(*range(1, 10)))
    assert cache.pool.check() == []
    cache.pool.num_cached_free = 1
    cache.pool.keys[1] = cache.pool.keys[0]
    cache.pool.reserved.add(5)
    assert cache.pool.check() == [
        "block 1 has a key that the map does not lead to it",
        "block 5 is in 2 places; free, reserved or held is allowed",
        "2 free blocks are cached, counted were 1",
    ]
    cache.pool.keys[1] = None
    assert "1 blocks have a key, the map has 2" in cache.pool.check()
