"""Taking a request in, reserving, committing, releasing, forking: single rules that the random tests build on."""

from __future__ import annotations

import numpy as np
import pytest

from genai_lab.errors import ArgumentError, StateError
from genai_lab.kvcache import (
    Admission,
    BlockCopy,
    BlockState,
    CacheManager,
    CopyOnWrite,
    Fit,
    PagedCache,
    Receipt,
    ReservationRequest,
    Shortage,
    StaticCache,
    Swap,
)
from tests.kvcache.short import cached, ids, reserved, run, taken_in

PROMPT = ids(1, 2, 3, 4, 5, 6, 7, 8, 9)


def test_a_prefix_is_adopted_and_shared() -> None:
    cache = PagedCache(num_blocks=8, block_size=4)
    taken_in(cache, 0, PROMPT)
    assert run(cache, 0, PROMPT).stores == (BlockCopy(0, 0, 4), BlockCopy(1, 4, 8))
    allocation = taken_in(cache, 1, ids(*PROMPT, 10))
    assert allocation.block_table == (0, 1) and allocation.num_cached_tokens == 8
    assert allocation.loads == (BlockCopy(0, 0, 4), BlockCopy(1, 4, 8))
    snapshot = cache.snapshot()
    assert snapshot.ref_counts[:3] == (2, 2, 1) and snapshot.owners[:3] == ((0, 1), (0, 1), (0,))
    assert snapshot.block(0).hash is not None and snapshot.block(2).hash is None
    assert cache.usage().blocks_used == 3 and cache.usage().tokens_used == 9, "shared ones count once"
    assert reserved(cache, 1, 2).new_blocks == (3,)


def test_questions_about_room() -> None:
    cache = PagedCache(num_blocks=4, block_size=4)
    cached(cache, 0, PROMPT)  # two blocks can be found, all four are free
    assert cache.can_allocate(PROMPT) == Fit(1, 2, 8, True, False)
    assert cache.can_allocate(ids(*range(50, 66))) == Fit(4, 4, 0, True, False)
    assert cache.can_allocate(ids(*range(50, 67))) == Fit(5, 4, 0, False, True)
    assert cache.can_allocate(ids(*range(50, 67))).in_words() == "needs 5 blocks, more than the whole pool has"
    taken_in(cache, 1, ids(*range(70, 77)))
    run(cache, 1, ids(*range(70, 77)))
    long = ids(*PROMPT[:8], *range(80, 85))
    assert cache.can_allocate(long) == Fit(2, 0, 8, False, False), "what is adopted is not free any more"
    assert cache.can_allocate(long).in_words() == "needs 2 blocks, 0 free"
    assert cache.can_allocate(ids(*range(90, 99)), tokens_now=8) == Fit(2, 2, 0, True, False)
    assert cache.can_allocate(ids(*range(90, 99)), tokens_now=99) == Fit(3, 2, 0, False, False)


def test_admit_takes_both_steps_or_none() -> None:
    cache = PagedCache(num_blocks=3, block_size=4)
    cached(cache, 0, PROMPT)
    admission = cache.admit(ReservationRequest(1, PROMPT, num_new=50, step=2))
    assert isinstance(admission, Admission)
    assert (admission.receipt.start, admission.receipt.stop) == (8, 9)
    before = cache.snapshot()
    shortage = cache.admit(ReservationRequest(2, ids(*range(20, 29)), num_new=5))
    assert shortage == Shortage(2, 0) and shortage.in_words() == "needs 2 blocks, 0 free"
    assert cache.snapshot() == before and cache.requests == (1,)


def test_the_table_changes_at_commit_only() -> None:
    cache = PagedCache(num_blocks=4, block_size=4)
    taken_in(cache, 0, PROMPT)
    receipt = reserved(cache, 0, 6)
    assert cache.block_table(0) == () and cache.num_tokens(0) == 0
    assert cache.snapshot().states[:2] == (BlockState.RESERVED, BlockState.RESERVED)
    assert cache.usage().blocks_used == 2
    cache.commit(receipt, PROMPT[:6])
    assert cache.block_table(0) == (0, 1) and cache.num_tokens(0) == 6


def test_refused_drafts_give_their_blocks_back() -> None:
    cache = PagedCache(num_blocks=4, block_size=4)
    taken_in(cache, 0, PROMPT)
    run(cache, 0, PROMPT[:3])
    receipt = reserved(cache, 0, 9)
    assert receipt.new_blocks == (1, 2)
    assert cache.commit(receipt, PROMPT[:4]).num_tokens == 4
    assert cache.block_table(0) == (0,) and cache.snapshot().free_queue == (1, 2, 3)


def test_release_undoes_evictions_and_the_queues_order() -> None:
    cache = PagedCache(num_blocks=4, block_size=4)
    cached(cache, 0, PROMPT, step=1)
    for request in (1, 2):
        taken_in(cache, request, ids(*range(20, 28)))
    before = cache.snapshot()
    one, two = reserved(cache, 1, 5, step=2), reserved(cache, 2, 5, step=2)
    assert [len(receipt.evicted) for receipt in (one, two)] == [0, 2]
    cache.release(one)  # in the order of reservation, not the reverse
    cache.release(two)
    assert cache.snapshot() == before
    assert cache.match_prefix(PROMPT).num_cached_tokens == 8


def test_content_that_a_run_may_have_overwritten_does_not_come_back() -> None:
    cache = PagedCache(num_blocks=3, block_size=4, writes_in_place=True)
    cached(cache, 0, PROMPT)
    taken_in(cache, 1, ids(*range(20, 32)))
    receipt = reserved(cache, 1, 8, step=5)
    cache.release(receipt)
    assert len(receipt.evicted) == 1
    match = cache.match_prefix(PROMPT)
    assert match.num_cached_tokens == 4 and match.miss is not None and match.miss.eviction == receipt.evicted[0]
    assert cache.usage().blocks_free == 2 and cache.check() == []


def test_evicted_content_stays_gone_when_the_cache_was_cleared_since() -> None:
    cache = PagedCache(num_blocks=2, block_size=4)
    cached(cache, 0, PROMPT[:8])
    taken_in(cache, 1, ids(20, 21, 22, 23))
    receipt = reserved(cache, 1, 4)
    assert cache.reset_prefix_cache() == 1
    cache.release(receipt)
    assert cache.match_prefix(PROMPT).blocks == () and cache.usage().blocks_free == 2 and cache.check() == []


def test_evicted_content_stays_gone_when_another_block_has_it_now() -> None:
    cache = PagedCache(num_blocks=3, block_size=4)
    for request, prompt in ((0, PROMPT[:4]), (1, ids(20, 21, 22, 23))):
        cached(cache, request, prompt)
    taken_in(cache, 2, ids(*range(30, 38)))
    receipt = reserved(cache, 2, 8)  # the empty block, and the one with PROMPT's
    assert receipt.evicted[0].owner == 0
    taken_in(cache, 3, PROMPT[:4])
    run(cache, 3, PROMPT[:4])
    cache.release(receipt)
    assert cache.match_prefix(PROMPT).blocks == cache.block_table(3) == (1,)
    assert cache.usage().blocks_free == 2 and cache.check() == []


def test_equal_prompts_side_by_side_end_up_sharing() -> None:
    cache = PagedCache(num_blocks=8, block_size=4)
    for request in (0, 1):
        taken_in(cache, request, PROMPT)
    receipts = [reserved(cache, request, 9) for request in (0, 1)]
    assert cache.commit(receipts[0], PROMPT).swaps == ()
    second = cache.commit(receipts[1], PROMPT)
    assert second.stores == () and second.swaps == (Swap(0, 3, 0), Swap(1, 4, 1))
    assert cache.block_table(1) == (0, 1, 5) and cache.usage().blocks_used == 4


def test_a_fork_copies_before_it_writes() -> None:
    cache = PagedCache(num_blocks=8, block_size=4)
    taken_in(cache, 0, PROMPT)
    run(cache, 0, PROMPT)
    forked = cache.fork(0, 1)
    assert forked.block_table == (0, 1, 2) and forked.num_tokens == 9
    assert cache.snapshot().ref_counts[:3] == (2, 2, 2)
    assert reserved(cache, 1, 1).copies == (CopyOnWrite(index=2, source=2, target=3),)
    with pytest.raises(StateError, match="has receipt 1 open"):
        cache.fork(1, 2)
    cache.commit(cache._pending[1].receipt, ids(*PROMPT, 50))
    assert cache.block_table(1) == (0, 1, 3) and cache.snapshot().ref_counts[2] == 1
    assert reserved(cache, 0, 1).copies == (), "the last holder writes in place"
    short = cache.fork(1, 3, length=6)
    assert short.block_table == (0, 1) and short.num_tokens == 6
    assert reserved(cache, 3, 1).copies == (CopyOnWrite(1, 1, 4),)


def test_writing_on_in_a_block_that_can_be_found_keeps_it_findable() -> None:
    cache = PagedCache(num_blocks=3, block_size=4)
    taken_in(cache, 0, PROMPT)
    run(cache, 0, PROMPT[:8])
    cache.rewind(0, 6)
    receipt = reserved(cache, 0, 2)
    assert receipt.copies == (CopyOnWrite(1, 1, 2),)
    cache.commit(receipt, ids(*PROMPT[:6], 70, 80))
    assert cache.match_prefix(PROMPT).blocks == (0, 1) and cache.block_table(0) == (0, 2)


def test_with_no_room_for_a_copy_the_only_holder_overwrites() -> None:
    cache = PagedCache(num_blocks=2, block_size=4)
    taken_in(cache, 0, PROMPT[:8])
    run(cache, 0, PROMPT[:8])
    cache.rewind(0, 6)
    before = cache.snapshot()
    receipt = reserved(cache, 0, 2, step=4)
    assert receipt.copies == receipt.new_blocks == ()
    assert "was overwritten at step 4 by request 0" in receipt.evicted[0].in_words()
    cache.release(receipt)
    assert cache.snapshot() == before and cache.match_prefix(PROMPT).blocks == (0, 1)
    run(cache, 0, ids(*PROMPT[:6], 70, 80))
    assert cache.match_prefix(PROMPT).blocks == (0,)
    assert cache.match_prefix(ids(*PROMPT[:6], 70, 80, 90)).blocks == (0, 1)


def test_after_a_reset_older_requests_do_not_come_back_into_the_cache() -> None:
    cache = PagedCache(num_blocks=8, block_size=4)
    taken_in(cache, 0, PROMPT)
    run(cache, 0, PROMPT[:4])
    assert cache.reset_prefix_cache() == 1
    assert run(cache, 0, PROMPT).stores == () and cache.match_prefix(PROMPT).blocks == ()
    taken_in(cache, 1, PROMPT)
    assert run(cache, 1, PROMPT).newly_cached == 2
    assert run(cache, 0, ids(*PROMPT, 10, 11, 12)).newly_cached == 0
    cache.free(0)
    assert cache.match_prefix(PROMPT).blocks == cache.block_table(1)[:2]


def test_colliding_hashes_are_told_apart_by_their_tokens() -> None:
    cache = PagedCache(num_blocks=64, block_size=2, hasher=lambda data: 5)
    dice = np.random.default_rng(1)
    prompts = np.unique(dice.integers(0, 3, (12, 5)).astype(np.int32), axis=0)
    for request, prompt in enumerate(prompts):
        known = {tuple(p[:n]) for p in prompts[:request] for n in (2, 4)}
        expected = next((n for n in (4, 2) if tuple(prompt[:n]) in known), 0)
        assert taken_in(cache, request, prompt).num_cached_tokens == expected
        run(cache, request, prompt)
    assert cache.match_prefix(prompts[0], adapter="x").blocks == ()


def managers() -> list[CacheManager]:
    return [PagedCache(8, 4), PagedCache(8, 4, prefix_caching=False), StaticCache(8, 4, 16)]


@pytest.mark.parametrize("cache", managers(), ids=["paged", "no prefixes", "static"])
def test_misuse_is_refused_in_words(cache: CacheManager) -> None:
    with pytest.raises(StateError, match=r"request 3 has no blocks; allocate it first. Allocated requests: none"):
        cache.reserve_step(3, 1)
    taken_in(cache, 0, PROMPT)
    with pytest.raises(StateError, match="allocated already"):
        cache.allocate(0, PROMPT)
    with pytest.raises(ArgumentError, match="num_new is 0"):
        cache.reserve_step(0, 0)
    receipt = reserved(cache, 0, 9)
    for call in (lambda: cache.reserve_step(0, 1), lambda: cache.free(0), lambda: cache.rewind(0, 0)):
        with pytest.raises(StateError, match="has receipt 0 open; commit or release it first"):
            call()
    with pytest.raises(ArgumentError, match="commit got 10 tokens for request 0; its receipt is for 1 to 9"):
        cache.commit(receipt, ids(*PROMPT, 1))
    with pytest.raises(ArgumentError, match="commit got 0 tokens"):
        cache.commit(receipt, PROMPT[:0])
    cache.commit(receipt, PROMPT)
    for use in (lambda: cache.commit(receipt, PROMPT), lambda: cache.release(receipt)):
        with pytest.raises(StateError, match="receipt 0 of request 0 is not open"):
            use()
    with pytest.raises(ArgumentError, match="length is 10; request 0 has 9 tokens"):
        cache.rewind(0, 10)
    with pytest.raises(ArgumentError, match="length is -1"):
        cache.fork(0, 1, -1)
    with pytest.raises(StateError, match="request 0 is allocated already"):
        cache.fork(0, 0)
    assert cache.check() == []


def test_changed_history_is_refused() -> None:
    cache = PagedCache(8, 4)
    taken_in(cache, 0, PROMPT)
    run(cache, 0, PROMPT[:6])
    receipt = reserved(cache, 0, 3)
    with pytest.raises(ArgumentError, match="differ from those committed before at positions 4 to 5"):
        cache.commit(receipt, ids(1, 2, 3, 4, 5, 60, 7, 8, 9))
    cache.commit(receipt, PROMPT)


def test_an_empty_pool_is_refused() -> None:
    for arguments in ((0, 4), (4, 0)):
        with pytest.raises(ArgumentError, match="at least one block of one token"):
            PagedCache(*arguments)


def test_hashes_are_the_same_in_every_process() -> None:
    cache = PagedCache(4, 4)
    taken_in(cache, 0, PROMPT, adapter="pirate", salt="s")
    run(cache, 0, PROMPT)
    assert cache.snapshot().hashes == (232639657964021, 65075895145328, None, None)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_suspended_request_comes_back_as_it_was(in_place: bool) -> None:
    cache = PagedCache(6, 2, writes_in_place=in_place)
    for request in (0, 1):
        tokens = np.array([5, 6, 7, 8 + request, 9], np.int32)
        cache.allocate(request, tokens)
        left = 5 - cache.num_tokens(request)
        receipt = cache.reserve_step(request, left)
        assert isinstance(receipt, Receipt)
        cache.commit(receipt, tokens)
    before = cache.snapshot(), cache.evictions
    suspended = cache.suspend(0, step=3)
    assert cache.requests == (1,) and cache.check() == []
    taken = cache.reserve_step(1, 5, step=3)  # its blocks, found content among them
    assert isinstance(taken, Receipt) and set(taken.new_blocks) & set(suspended.blocks)
    cache.release(taken)
    cache.resume(suspended)
    assert (cache.snapshot(), cache.evictions) == before and cache.check() == []
    cache.finish(cache.suspend(0, step=4))
    assert cache.requests == (1,) and cache.check() == []
    again = cache.suspend(1)
    cache.resume(again)
    with pytest.raises(StateError):
        cache.resume(again)
