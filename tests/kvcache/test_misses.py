"""Why a prefix ended: each reason with its operands and its sentence."""

from __future__ import annotations

import numpy as np
import pytest

from genai_lab.kvcache import Miss, MissReason, PagedCache
from tests.kvcache.short import cached, ids, run, taken_in

PROMPT = ids(1, 2, 3, 4, 5, 6, 7, 8, 9)


def miss_of(cache: PagedCache, *tokens: int, adapter: str = "", salt: str = "") -> Miss:
    before = cache.snapshot()
    miss = cache.match_prefix(ids(*tokens), adapter, salt).miss
    assert cache.snapshot() == before
    assert miss is not None
    return miss


@pytest.fixture
def cache() -> PagedCache:
    """Two full blocks and one of a single token, computed by request 7 and let go."""
    cache = PagedCache(num_blocks=6, block_size=4)
    cached(cache, 7, PROMPT, step=3)
    return cache


def test_caching_is_off() -> None:
    cache = PagedCache(4, 4, prefix_caching=False)
    cached(cache, 0, PROMPT)
    assert cache.match_prefix(PROMPT).blocks == ()
    miss = miss_of(cache, *PROMPT)
    assert (miss.reason, miss.in_words()) == (MissReason.NO_CACHE, "prefix caching is off")


def test_never_seen(cache: PagedCache) -> None:
    miss = miss_of(cache, 9, 9, 9, 9, 9)
    assert miss == Miss(MissReason.NEVER_SEEN, block_index=0, position=0)
    assert miss.in_words() == "no cached prompt begins like this"
    further = miss_of(cache, *range(1, 9), 50, 51, 52, 53, 54)
    assert (further.reason, further.block_index, further.position) == (MissReason.NEVER_SEEN, 2, 8)
    assert further.in_words() == "nothing cached goes on after the first 8 tokens"


def test_a_different_token(cache: PagedCache) -> None:
    match = cache.match_prefix(ids(1, 2, 3, 4, 5, 6, 70, 8, 9))
    assert match.num_cached_tokens == 4 and len(match.blocks) == 1
    assert match.miss == Miss(MissReason.DIFFERENT_TOKEN, 1, 6, expected=7, found=70)
    assert match.miss.in_words() == "block 1 differs at token 6: cached is token id 7, here it is 70"


def test_the_most_alike_of_many_blocks_is_named() -> None:
    cache = PagedCache(num_blocks=64, block_size=4)
    dice = np.random.default_rng(0)
    known = dice.integers(0, 3, (40, 4)).astype(np.int32)
    for request, tokens in enumerate(np.unique(known, axis=0)):
        cached(cache, request, ids(*tokens, 5))
    for wanted in dice.integers(0, 4, (60, 4)).astype(np.int32):
        alike = np.cumprod(known == wanted, axis=1).sum(axis=1).max()
        match = cache.match_prefix(ids(*wanted, 5))
        if alike == 4:
            assert match.num_cached_tokens == 4
        elif alike == 0:
            assert match.miss is not None and match.miss.reason is MissReason.NEVER_SEEN
        else:
            assert match.miss is not None and match.miss.reason is MissReason.DIFFERENT_TOKEN
            assert match.miss.position == alike and match.miss.found == wanted[alike]


def test_evicted_by_whom_and_when(cache: PagedCache) -> None:
    cached(cache, 8, ids(*range(100, 118)), step=5)  # five of the six blocks
    miss = miss_of(cache, *PROMPT)
    assert (miss.reason, miss.block_index, miss.position, miss.request) == (MissReason.EVICTED, 1, 4, 8)
    assert miss.eviction is not None
    assert (miss.eviction.owner, miss.eviction.by, miss.eviction.step) == (7, 8, 5)
    assert (miss.eviction.start, miss.eviction.stop) == (4, 8)
    assert miss.in_words() == (
        "block 1 (from token 4) was cached, but block 1 (tokens 4 to 7 of request 7) was evicted at step 5 because "
        "request 8 needed room and it was the least recently used of 2 cached free blocks"
    )
    cached(cache, 9, PROMPT, step=6)
    assert miss_of(cache, *PROMPT).reason is MissReason.PARTIAL_BLOCK, "what came back is not evicted any more"


def test_the_end_of_the_prompt_does_not_fill_a_block(cache: PagedCache) -> None:
    miss = miss_of(cache, *PROMPT, 10)
    assert miss == Miss(MissReason.PARTIAL_BLOCK, 2, 8, filled=2)
    assert "the last 2 tokens do not fill a block" in miss.in_words()


def test_somebody_left_a_partial_block(cache: PagedCache) -> None:
    miss = miss_of(cache, *PROMPT, 10, 11, 12, 13)
    assert miss == Miss(MissReason.PARTIAL_BLOCK, 2, 8, request=7, filled=1)
    assert "request 7 left only 1 tokens there" in miss.in_words()
    assert miss_of(cache, *PROMPT[:8], 99, 10, 11, 12, 13).reason is MissReason.NEVER_SEEN


def test_another_adapter_and_another_salt(cache: PagedCache) -> None:
    other = miss_of(cache, *PROMPT, adapter="pirate")
    assert (other.reason, other.adapter) == (MissReason.OTHER_ADAPTER, "")
    assert other.in_words() == "block 0 (from token 0) is cached for no adapter only"
    salted = miss_of(cache, *PROMPT, salt="tenant 2")
    assert (salted.reason, salted.in_words()) == (
        MissReason.OTHER_SALT,
        "block 0 (from token 0) is cached under another salt only",
    )
    cached(cache, 8, PROMPT[:5], adapter="pirate")
    later = miss_of(cache, *PROMPT, adapter="pirate")
    assert (later.reason, later.block_index) == (MissReason.OTHER_ADAPTER, 1)
    assert cache.match_prefix(PROMPT, "pirate").num_cached_tokens == 4
    cache.reset_prefix_cache()
    cached(cache, 9, PROMPT, adapter="pirate")
    assert miss_of(cache, *PROMPT).in_words() == "block 0 (from token 0) is cached for adapter 'pirate' only"


def test_the_last_token_is_never_adopted(cache: PagedCache) -> None:
    match = cache.match_prefix(PROMPT[:8])
    assert match.num_cached_tokens == 4
    assert match.miss == Miss(MissReason.LAST_TOKEN, 1, 4)
    assert "the last token must run" in match.miss.in_words()
    assert cache.match_prefix(PROMPT).num_cached_tokens == 8


def test_somebody_is_about_to_compute_it() -> None:
    cache = PagedCache(num_blocks=6, block_size=4)
    taken_in(cache, 1, PROMPT)
    assert miss_of(cache, *PROMPT) == Miss(MissReason.NOT_COMPUTED_YET, 0, 0, request=1)
    run(cache, 1, PROMPT[:4])
    miss = miss_of(cache, *PROMPT)
    assert (miss.reason, miss.block_index, miss.request) == (MissReason.NOT_COMPUTED_YET, 1, 1)
    assert miss.in_words() == "block 1 (from token 4): request 1 has the same tokens but has not run them yet"
    assert miss_of(cache, *PROMPT, adapter="x").reason is not MissReason.NOT_COMPUTED_YET
    run(cache, 1, PROMPT)
    cache.rewind(1, 4)
    assert miss_of(cache, *PROMPT).reason is MissReason.PARTIAL_BLOCK, "its blocks are cached, all but the end"
    cache.rewind(1, 2)
    cache.reset_prefix_cache()
    assert miss_of(cache, *PROMPT).reason is MissReason.NEVER_SEEN, "it went back, and may go on with other tokens"


def test_an_empty_prompt_has_nothing_to_explain(cache: PagedCache) -> None:
    assert cache.match_prefix(ids()).miss is None


def test_memory_for_explanations_is_bounded() -> None:
    cache = PagedCache(num_blocks=3, block_size=2)
    for request in range(200):
        cached(cache, request, ids(*(request * 7 + offset for offset in range(5))), step=request)
    assert cache.pool.prefixes.evictions.count == 2 * 200 - 2, "two blocks a request, the last two are still there"
    assert len(cache.evictions) == cache.pool.prefixes.evictions.limit == 12
    assert cache.evictions[-1].by == 199
    assert len(cache.pool.prefixes._partials) == 12
