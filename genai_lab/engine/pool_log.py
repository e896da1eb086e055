"""What became of the pool's blocks since the last recorded step: kept, emptied, evicted.

Receives the cache and everybody's block tables, before and now. It looks only at blocks that left a table and at the
last evictions, so a step in which nothing moved costs nothing. It changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from genai_lab.kvcache import PagedCache
from genai_lab.kvcache.eviction import Eviction
from genai_lab.kvcache.misses import Miss
from genai_lab.tracing.engine_facts import GONE, AdmissionFact, Operands, PoolEvent, PoolFact

Tables = Mapping[int, tuple[int, ...]]
TOKEN_MASK = (1 << 29) - 1  # what is left of a token without its marks, see `request`
_KINDS: dict[str, tuple[str, ...]] = {
    "request": ("request ",),
    "id": ("token id ", "here it is "),
    "token": ("token ", "tokens "),
}
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


class PoolWatch:
    """Follows one cache for one recording.

    Args:
        cache: whose pool is followed.
    """

    def __init__(self, cache: PagedCache) -> None:
        self._pool = cache.pool
        self._evicted = self._pool.prefixes.evictions.count
        self._epoch = self._pool.epoch
        self._kept: dict[int, int] = {}  # free blocks with content -> who let them go
        self._begun = False

    def changes(self, before: Tables, now: Tables) -> tuple[PoolFact, ...]:
        """Events since the last call, in order. The first call tells of everything that was kept before."""
        found = list(self._first()) if not self._begun else []
        self._begun = True
        found += self._evictions()
        found += self._left(before, now)
        if self._epoch != self._pool.epoch:
            self._epoch = self._pool.epoch
            found += self._cleared()
        for fact in found:
            if fact.event is PoolEvent.KEPT:
                self._kept[fact.block] = fact.request
            else:
                self._kept.pop(fact.block, None)
        return tuple(found)

    def _first(self) -> Iterator[PoolFact]:
        for block in self._pool.free_queue:
            if self._pool.keys[block] is not None:
                owner = self._pool.computed_by[block] or 0
                yield self._let_go(block, owner)

    def _evictions(self) -> list[PoolFact]:
        log = self._pool.prefixes.evictions
        new, self._evicted = log.count - self._evicted, log.count
        if new <= 0:
            return []
        latest = list(islice(reversed(log.recent), new))
        return [_evicted(eviction) for eviction in reversed(latest)]

    def _left(self, before: Tables, now: Tables) -> Iterator[PoolFact]:
        for request, old in before.items():
            new = now.get(request, ())
            if new is old or new[: len(old)] == old:
                continue
            still = {GONE, *new}
            for block in reversed([block for block in old if block not in still]):
                if self._pool.ref_counts[block] == 0:
                    yield self._let_go(block, request)

    def _cleared(self) -> Iterator[PoolFact]:
        for block, request in self._kept.items():
            if self._pool.ref_counts[block] == 0 and self._pool.keys[block] is None:
                yield self._let_go(block, request)

    def _let_go(self, block: int, request: int) -> PoolFact:
        key, owner = self._pool.keys[block], self._pool.computed_by[block]
        event = PoolEvent.EMPTIED if key is None else PoolEvent.KEPT
        start = 0 if key is None else (key.depth - 1) * self._pool.block_size
        return PoolFact(block, event, request, request if owner is None else owner, start, 0, "")


def _evicted(eviction: Eviction) -> PoolFact:
    event = PoolEvent.EVICTED if eviction.policy else PoolEvent.OVERWRITTEN
    return PoolFact(
        eviction.block, event, eviction.by, eviction.owner, eviction.start, eviction.candidates, eviction.policy
    )


def admission_fact(request: int, cached_tokens: int, miss: Miss | None) -> AdmissionFact:
    """What a request took over from the cache, and why not more."""
    template, operands = templated(_miss_words(miss)) if miss is not None else ("", ())
    return AdmissionFact(request, cached_tokens, template, operands)


def _miss_words(miss: Miss) -> str:
    """The cache compares tokens with their marks; a person knows them without."""
    if miss.expected is None or miss.found is None:
        return miss.in_words()
    cached, here = miss.expected & TOKEN_MASK, miss.found & TOKEN_MASK
    if cached != here:
        return replace(miss, expected=cached, found=here).in_words()
    return (
        f"block {miss.block_index} has the same text from token {miss.position} on, but read another way (as an answer "
        f"token by token, or as a prompt in one piece), which gives other last digits"
    )


def templated(sentence: str) -> tuple[str, Operands]:
    """A sentence with its whole numbers taken out, so that equal sentences are kept once.

    Numbers of requests, places of tokens and ids are named so, for readers that call those otherwise.

    >>> templated("block 3 (from token 48): request 7 has it")
    ('block {n1} (from token {token2}): request {request3} has it', (('n1', 3), ('token2', 48), ('request3', 7)))
    """
    operands: list[tuple[str, int]] = []

    def take(found: re.Match[str]) -> str:
        before = sentence[: found.start()]
        goes_on = before.endswith(" to ") and bool(operands) and operands[-1][0].startswith("token")
        kind = next((kind for kind, ends in _KINDS.items() if before.endswith(ends)), "token" if goes_on else "n")
        operands.append((f"{kind}{len(operands) + 1}", int(found[0])))
        return "{" + operands[-1][0] + "}"

    return _NUMBER.sub(take, sentence.replace("{", "{{").replace("}", "}}")), tuple(operands)
