"""What requests that wait would find in the prefix cache, kept from step to step.

Receives prompts and the index; returns the same as a fresh walk would find, without the reason why there is not more.
Every step asks this about everybody who waits, and most of the time nothing changed for them: a walk is done again only
when a block that it found is gone, or the next one has come.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from genai_lab.kvcache.facts import Tokens
from genai_lab.kvcache.keys import TOKEN_BYTES, BlockKey, token_bytes
from genai_lab.kvcache.prefix import PrefixIndex, Walk

NextBlock = tuple[str, str, bytes]


@dataclass(frozen=True, slots=True)
class WaitingPrefix:
    """The cached beginning of a prompt that waits."""

    num_blocks: int
    num_cached_tokens: int
    first_block: int  # blocks before those, which are out of the window
    next_block: NextBlock | None  # what the block after them would be known by; None when the prompt does not fill it


@dataclass(slots=True)
class _Kept:
    version: Hashable
    walk: Walk
    next_key: BlockKey | None
    prefix: WaitingPrefix
    added: int  # how far the index was when this was true
    removed: int


class WaitingWalks:
    """The kept walks of one cache.

    Args:
        index: of the pool.
        is_kept: False where what a walk finds depends on more than the index.
        only_ends: a walk grows only at its end. False: with a window, any new block may matter.
    """

    def __init__(self, index: PrefixIndex, *, is_kept: bool, only_ends: bool) -> None:
        self._index, self._is_kept, self._only_ends = index, is_kept, only_ends
        self._kept: dict[int, _Kept] = {}

    def find(
        self, request: int, version: Hashable, tokens: Tokens, walk: Callable[[bytes], Walk], adapter: str, salt: str
    ) -> WaitingPrefix:
        """See `PagedCache.waiting_prefix`."""
        kept = self._kept.get(request)
        if kept is not None and kept.version == version and self._still_true(kept):
            kept.added, kept.removed = self._index.added, self._index.removed
            return kept.prefix
        data = token_bytes(tokens)
        kept = self._keep(version, walk(data), data, (adapter, salt))
        if self._is_kept:
            self._kept[request] = kept
        return kept.prefix

    def keep_only(self, requests: Iterable[int]) -> None:
        """Forget everybody else."""
        self._kept = {request: self._kept[request] for request in requests if request in self._kept}

    def _still_true(self, kept: _Kept) -> bool:
        index = self._index
        if index.removed != kept.removed and index.lost_since(kept.removed, kept.walk.blocks):
            return False
        if index.added == kept.added:
            return True
        return self._only_ends and (kept.next_key is None or kept.next_key not in index)

    def _keep(self, version: Hashable, walk: Walk, data: bytes, namespace: tuple[str, str]) -> _Kept:
        size, count = self._index.block_size * TOKEN_BYTES, len(walk.keys)
        start, stop = count * size, (count + 1) * size
        following = (*namespace, data[:stop]) if stop <= len(data) else None
        key = walk.last.child(data[start:stop]) if stop < len(data) else None  # the last token is never adopted
        prefix = WaitingPrefix(len(walk.blocks), count * self._index.block_size, walk.first, following)
        return _Kept(version, walk, key, prefix, self._index.added, self._index.removed)
