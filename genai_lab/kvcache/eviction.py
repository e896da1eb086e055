"""Which cached block to give up when a new one is needed, and the record of what was given up.

A policy receives the free blocks that still hold content, the longest unused first, and returns one of them. It is
pure: it sees facts, changes nothing, and never sees a block that somebody uses. It knows no tokens and no model.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from genai_lab.kvcache.keys import BlockKey


@dataclass(frozen=True, slots=True)
class FreeBlock:
    """A block that nobody uses and whose content can still be found."""

    block: int
    request: int
    """Who computed the content."""
    last_used: int
    """Step at which its last user let it go."""
    hits: int
    """How often it was adopted from the cache."""
    depth: int
    """1 for the first block of a sequence."""
    adapter: str


class EvictionPolicy(Protocol):
    """Chooses a victim. Write your own in a cell and give it to `PagedCache(..., eviction=...)`.

    >>> class Shallowest:
    ...     name = "the shortest prefix"
    ...     def choose(self, candidates):
    ...         return min(candidates, key=lambda free: free.depth).block
    """

    @property
    def name(self) -> str:
        """In words, after "because it was"."""
        ...

    def choose(self, candidates: Sequence[FreeBlock]) -> int:
        """A block id out of `candidates`: longest unused first, ends of sequences before their beginnings."""
        ...


class LeastRecentlyUsed:
    """The block that has been free for longest."""

    name = "the least recently used"

    def choose(self, candidates: Sequence[FreeBlock]) -> int:
        return candidates[0].block


class LeastOftenUsed:
    """The block with the fewest hits; among equals the least recently used."""

    name = "the least often used"

    def choose(self, candidates: Sequence[FreeBlock]) -> int:
        return min(candidates, key=lambda free: free.hits).block


class DeepestFirst:
    """The block farthest from a sequence's beginning, so that shared beginnings stay; then the least recently used."""

    name = "the farthest from its prompt's beginning"

    def choose(self, candidates: Sequence[FreeBlock]) -> int:
        return max(candidates, key=lambda free: free.depth).block


@dataclass(frozen=True, slots=True)
class Eviction:
    """A cached block lost its content to somebody who needed the room."""

    block: int
    hash: int
    start: int
    """Position of its first token in the sequence that it was part of."""
    stop: int
    owner: int
    """The request that computed it."""
    step: int
    by: int
    """The request that needed the room."""
    policy: str
    """The policy's name; empty when its only holder wrote into it and no block was free to copy it to."""
    candidates: int
    """Among how many cached free blocks it was chosen."""

    def in_words(self) -> str:
        what = f"block {self.block} (tokens {self.start} to {self.stop - 1} of request {self.owner})"
        if not self.policy:
            return f"{what} was overwritten at step {self.step} by request {self.by}: no block was free to copy it to"
        return (
            f"{what} was evicted at step {self.step} because request {self.by} needed room and it was {self.policy} of "
            f"{self.candidates} cached free {'block' if self.candidates == 1 else 'blocks'}"
        )


class EvictionLog:
    """The last evictions, and which content they took. Bounded: the oldest are forgotten."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.recent: deque[Eviction] = deque(maxlen=limit)
        self.count = 0
        self._by_content: OrderedDict[tuple[int, bytes], Eviction] = OrderedDict()

    def add(self, key: BlockKey, eviction: Eviction) -> None:
        self.count += 1
        self.recent.append(eviction)
        self._by_content[key.hash, key.tokens] = eviction
        self._by_content.move_to_end((key.hash, key.tokens))
        if len(self._by_content) > self.limit:
            self._by_content.popitem(last=False)

    def undo(self, eviction: Eviction) -> None:
        """As if `eviction` had not been; nobody asks for content that is there."""
        self.count -= 1
        if eviction in self.recent:  # not when newer ones pushed it out
            self.recent.remove(eviction)

    def find(self, key: BlockKey) -> Eviction | None:
        """The eviction that took this content away."""
        return self._by_content.get((key.hash, key.tokens))

    def clear(self) -> None:
        """Forget what is gone; the count goes on."""
        self.recent.clear()
        self._by_content.clear()
