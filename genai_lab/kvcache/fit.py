"""Questions about a prompt that is not taken in yet: what of it is cached, and whether the rest has room.

Receives the pool and the prompt's tokens as bytes; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from genai_lab.kvcache.blocks import BlockPool
from genai_lab.kvcache.facts import Fit, PrefixMatch
from genai_lab.kvcache.keys import TOKEN_BYTES, BlockKey
from genai_lab.kvcache.misses import Miss, MissReason
from genai_lab.kvcache.prefix import Walk
from genai_lab.kvcache.table import RequestTable, blocks_for
from genai_lab.kvcache.window import Window, walk_window


def walk_prompt(
    pool: BlockPool, data: bytes, adapter: str, salt: str, caching: bool, window: Window | None = None
) -> Walk:
    """The prompt's cached blocks, never its last token; none when nothing is cached."""
    limit = max(len(data) // TOKEN_BYTES - 1, 0) // pool.block_size if caching else 0
    if window is None:
        return pool.prefixes.walk(data, adapter, salt, limit)
    return walk_window(pool.prefixes, BlockKey.root(adapter, salt, pool.prefixes.hasher), data, limit, window)


def match_of(
    pool: BlockPool, walk: Walk, data: bytes, live: Iterable[RequestTable], caching: bool, cut: bool = False
) -> PrefixMatch:
    """The same as a fact, with the reason why there are not more. `cut`: it may be shorter than what is cached."""
    if not caching:
        return PrefixMatch((), 0, Miss(MissReason.NO_CACHE, 0, 0))
    miss = pool.prefixes.explain(walk, data, live)
    if cut and miss is not None and miss.reason is MissReason.LAST_TOKEN:
        is_last = (miss.block_index + 1) * pool.block_size >= len(data) // TOKEN_BYTES
        miss = miss if is_last else replace(miss, reason=MissReason.NO_STATE)
    return PrefixMatch(walk.blocks, len(walk.keys) * pool.block_size, miss, walk.first)


def fit_of(pool: BlockPool, data: bytes, walk: Walk, tokens_now: int | None, window: Window | None = None) -> Fit:
    """Whether the whole prompt, or the first `tokens_now` of what is not cached, has room. With a window the whole
    prompt is one that is read by a block at a time, so that blocks fall out of it meanwhile."""
    size, count = pool.block_size, len(data) // TOKEN_BYTES
    cached = len(walk.keys) * size
    upto = count if tokens_now is None else min(cached + tokens_now, count)
    needs = blocks_for(upto, size) - len(walk.keys)
    if window is not None and tokens_now is None:
        needs = min(needs, max(0, window.most_blocks(size) - len(walk.blocks)))
    free = pool.num_free - sum(pool.ref_counts[block] == 0 for block in walk.blocks)
    never = (blocks_for(count, size) if window is None else window.fewest(count)) > pool.num_blocks
    return Fit(needs, free, cached, needs <= free and not never, never)
