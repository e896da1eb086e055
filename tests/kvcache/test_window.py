"""Local attention: blocks that no later token sees are let go, and a prefix needs only those of its window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from genai_lab.errors import ArgumentError
from genai_lab.kvcache import CacheSnapshot, PagedCache, SlotStore, Usage, VmStore, check_cache
from genai_lab.kvcache.window import Window
from tests.kvcache.short import ids, run, taken_in
from tests.kvcache.test_anything_happens import AnythingHappens
from tests.kvcache.world import BLOCK, KINDS, LAYOUT, Live, Prefix, World


class WindowWorld(World):
    """A token sees `window` tokens; what a row has before those is nobody's concern."""

    def __init__(self, kind: str, num_blocks: int, window: int, **options: bool) -> None:
        super().__init__(kind, num_blocks, window=window, **options)
        self.window = window

    def first(self, length: int) -> int:
        """The first block that the token after `length` others sees."""
        return max(0, length - self.window + 1) // BLOCK

    def longest_findable(self, prompt: list[int], adapter: str, salt: str) -> int:
        known: set[Prefix] = set(self.findable.values())

        def usable(length: int) -> bool:
            ends = range((self.first(length) + 1) * BLOCK, length + 1, BLOCK)
            return all((adapter, salt, tuple(prompt[:end])) in known for end in ends)

        whole = range(0, len(prompt), BLOCK)
        return max((length for length in whole if self.cache.prefix_caching and usable(length)), default=0)

    def whole_needs(self, prompt: list[int], cached: int) -> int:
        held = cached // BLOCK - self.first(cached)
        most = -(-(self.window - 1 + BLOCK) // BLOCK) + 1
        return min(super().whole_needs(prompt, cached), max(0, most - held))

    def rewind_and_run(self, request: int, length: int) -> None:
        if self.reachable(request, length):
            super().rewind_and_run(request, length)
        else:
            self.refused(request, length)

    def fork_and_run(self, request: int, length: int, coming: list[int]) -> None:
        if self.reachable(request, length):
            super().fork_and_run(request, length, coming)
        else:
            self.refused(request, length)

    def reachable(self, request: int, length: int) -> bool:
        count = len(self.live[request].tokens)
        return self.first(min(length, count)) == self.first(count)

    def refused(self, request: int, length: int) -> None:
        before = self.cache.snapshot()
        assert not self.cache.can_go_back(request, length)
        with pytest.raises(ArgumentError, match=r"a window of \d+, the blocks before token \d+ are gone"):
            self.cache.rewind(request, length)
        with pytest.raises(ArgumentError, match="are gone"):
            self.cache.fork(request, self.next_request, length)
        assert self.cache.snapshot() == before
        self.happened["refused"] += 1

    def everything_full_is_findable(self, live: Live) -> None:
        if not live.cleared and self.cache.prefix_caching:
            known = set(self.findable.values())
            stops = range((self.first(len(live.tokens)) + 1) * BLOCK, len(live.tokens) + 1, BLOCK)
            assert all(live.prefix(stop) in known for stop in stops)

    def check_row(self, live: Live) -> None:
        length = len(live.tokens)
        start = max(0, length - self.window + 1)
        row = self.store.slab[:, :, live.row, :, start:length]
        np.testing.assert_array_equal(row[..., 0], self.expected(live, start, length))
        np.testing.assert_array_equal(row[..., -1], self.expected(live, start, length))


@pytest.mark.slow
@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_anything_happens_in_a_window(kind: str, prefix_caching: bool) -> None:
    caching = prefix_caching

    class Machine(AnythingHappens):
        @initialize(num_blocks=st.integers(4, 11), window=st.sampled_from([2, 3, 4, 5, 6, 9]))
        def begin(self, num_blocks: int, window: int) -> None:
            self.world = WindowWorld(kind, num_blocks, window, prefix_caching=caching)

    run_state_machine_as_test(Machine, settings=settings(max_examples=25, stateful_step_count=20))


def tokens(count: int) -> list[int]:
    return list(range(100, 100 + count))


@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 60))
def test_the_first_block_is_the_first_that_is_seen(window: int, size: int, length: int) -> None:
    seen = range(max(0, length - window + 1), length + 1)
    assert Window(window, size).first_block(length) == seen[0] // size


@given(st.integers(2, 20), st.integers(1, 6), st.integers(1, 12), st.integers(1, 80))
def test_no_more_is_held_than_said_and_no_less_is_needed(window: int, size: int, step: int, count: int) -> None:
    made = Window(window, size)
    held = [-(-min(n + step, count) // size) - made.first_block(n) for n in range(0, count, step)]
    assert max(held) <= made.most_blocks(step)
    one_by_one = [-(-(n + 1) // size) - made.first_block(n) for n in range(count)]
    assert made.fewest(count) <= max(one_by_one)


def test_a_long_sequence_holds_its_window_only() -> None:
    cache = PagedCache(num_blocks=5, block_size=4, window=6)
    taken_in(cache, 0, ids(1))
    for count in range(1, 90):
        run(cache, 0, ids(*tokens(count)))
        assert len(cache.block_table(0)) <= 3
        assert check_cache(cache.snapshot()) == []
    assert (cache.num_tokens(0), cache.first_block(0), len(cache.block_table(0))) == (89, 21, 2)
    assert cache.usage() == Usage(2, 3, 0, 5, 0.4)
    assert cache.snapshot().requests[0].first_block == 21


def test_a_prefix_whose_beginning_is_gone_is_still_a_hit() -> None:
    cache = PagedCache(num_blocks=6, block_size=4, window=6)
    taken_in(cache, 0, ids(1))
    for count in range(4, 37, 4):  # nine blocks go through a pool of six
        run(cache, 0, ids(*tokens(count)))
    cache.free(0)
    match = cache.match_prefix(ids(*tokens(38)))
    assert (match.num_cached_tokens, match.first_block, len(match.blocks)) == (36, 7, 2)
    allocation = taken_in(cache, 1, ids(*tokens(38)))
    assert [(copy.start, copy.stop) for copy in allocation.loads] == [(28, 32), (32, 36)]
    assert (cache.first_block(1), cache.check()) == (7, [])
    cold = cache.match_prefix(ids(*tokens(8)))
    assert cold.num_cached_tokens == 0 and cold.miss is not None
    assert "block 0 (from token 0) was cached, but" in cold.miss.in_words()


def test_what_can_never_fit_without_a_window_fits_with_one() -> None:
    prompt = ids(*tokens(100))
    assert PagedCache(num_blocks=4, block_size=4).can_allocate(prompt).never_fits
    fit = PagedCache(num_blocks=4, block_size=4, window=6).can_allocate(prompt)
    assert (fit.needs_blocks, fit.fits, fit.never_fits) == (4, True, False)
    assert PagedCache(num_blocks=1, block_size=4, window=6).can_allocate(prompt).never_fits


@pytest.mark.parametrize("window", [0, 1])
def test_a_window_of_nothing_is_refused(window: int) -> None:
    with pytest.raises(ArgumentError, match=f"a window of {window} tokens in blocks of 4: at least 2"):
        PagedCache(num_blocks=4, block_size=4, window=window)


def test_what_a_failed_model_left_in_a_row_does_not_reach_the_next() -> None:
    """The kernel multiplies what is out of the window by zero, and no number times zero is no number."""
    store = SlotStore(LAYOUT, rows=2, capacity=24, num_blocks=6, block_size=BLOCK)
    cache = PagedCache(num_blocks=6, block_size=BLOCK, window=5)
    taken_in(cache, 0, ids(1))
    for count in (4, 8, 12):
        receipt = cache.reserve_step(0, 4)
        store.reserve(0, receipt)  # type: ignore[arg-type]
        store.slab[:, :, 0, :, count - 4 : count] = count
        store.commit(0, cache.commit(receipt, ids(*tokens(count))))  # type: ignore[arg-type]
    store.slab[:, :, 1, :, 2] = np.nan
    allocation = taken_in(cache, 1, ids(*tokens(13)))
    assert allocation.match.first_block == 2
    store.load(1, allocation.loads)
    assert np.all(store.slab[:, :, 1, :, :8] == 0) and np.all(store.slab[:, :, 1, :, 8:12] == 12)


def test_snapshots_tell_of_the_window() -> None:
    cache = PagedCache(num_blocks=3, block_size=4, window=6)
    snapshot: CacheSnapshot = cache.snapshot()
    assert snapshot.window == 6 and PagedCache(3, 4).snapshot().window is None


@pytest.mark.skipif(not VmStore.is_available().available, reason=VmStore.is_available().reason)
def test_mapped_rows_let_go_of_the_pages_out_of_the_window() -> None:
    store = VmStore(LAYOUT, rows=2, capacity=24, num_blocks=6, block_size=BLOCK)
    cache = PagedCache(num_blocks=6, block_size=BLOCK, window=5, writes_in_place=True)
    taken_in(cache, 0, ids(1))
    most = 0
    for count in range(1, 22):
        receipt = cache.reserve_step(0, 1)
        store.reserve(0, receipt)  # type: ignore[arg-type]
        store.slab[:, :, 0, :, count - 1] = count
        store.commit(0, cache.commit(receipt, ids(*tokens(count))))  # type: ignore[arg-type]
        first = cache.first_block(0)
        assert store.block_table(0) == (None,) * first + cache.block_table(0)
        assert np.all(store.slab[:, :, 0, :, : first * BLOCK] == 0)
        np.testing.assert_array_equal(
            store.slab[0, 0, 0, 0, first * BLOCK : count, 0], range(first * BLOCK + 1, count + 1)
        )
        most = max(most, store.num_mappings)
    parts = LAYOUT.num_layers * 2 * LAYOUT.num_kv_heads
    assert most <= 2 + 4 * parts + LAYOUT.num_layers * 2, "a hole, two blocks, the empty rest; and an empty row"
    store.copy_row(0, 1, 21)
    assert store.block_table(1) == store.block_table(0)
    store.close()
