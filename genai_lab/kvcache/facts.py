"""What the cache managers answer with: small frozen values, and the protocol that every manager keeps. What is made
for every request in every step is a named tuple, which is made several times faster than a frozen dataclass.

Receives nothing, decides nothing. Block ids and token positions count from 0, ranges are [start, stop).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from genai_lab.kvcache.eviction import Eviction
from genai_lab.kvcache.misses import Miss
from genai_lab.kvcache.snapshots import CacheSnapshot, Usage

Tokens: TypeAlias = NDArray[np.int32]
"""Token ids of a sequence from its first token on, [n]."""


@dataclass(frozen=True, slots=True)
class ReservationRequest:
    """Everything a manager needs to take a new request in: its tokens and how many of them are run now."""

    request: int
    tokens: NDArray[Any]
    """All tokens known so far, int32 [n]."""
    num_new: int
    """Tokens to run now, after those found in the cache."""
    adapter: str = ""
    salt: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The cached blocks that a prompt may adopt, and why there are not more of them."""

    blocks: tuple[int, ...]
    num_cached_tokens: int
    miss: Miss | None
    """Why the block after the last adopted one was not; None for an empty prompt."""
    first_block: int = 0
    """Place of `blocks[0]` in the sequence: those before it are out of the window and not needed."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether tokens would fit, with the numbers that decide it."""

    needs_blocks: int
    free_blocks: int
    """Free after the cached prefix is adopted."""
    cached_tokens: int
    fits: bool
    never_fits: bool
    """More tokens than the whole pool holds: waiting does not help."""

    def in_words(self) -> str:
        if self.never_fits:
            return f"needs {_blocks(self.needs_blocks)}, more than the whole pool has"
        return f"needs {_blocks(self.needs_blocks)}, {self.free_blocks} free"


@dataclass(frozen=True, slots=True)
class Shortage:
    """Not enough blocks; nothing was changed."""

    needs: int
    free: int

    def in_words(self) -> str:
        return f"needs {_blocks(self.needs)}, {self.free} free"


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Content of one pool block and the positions [start, stop) of the row that it is copied to or from."""

    block: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class CopyOnWrite:
    """`source` is shared or kept for others, so the request goes on in `target`, block `index` of its sequence."""

    index: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """A request was taken in. `loads` is what the store must bring into its row before the first run."""

    request: int
    block_table: tuple[int, ...]
    num_cached_tokens: int
    loads: tuple[BlockCopy, ...]
    evicted: tuple[Eviction, ...]
    match: PrefixMatch


class Receipt(NamedTuple):
    """Room for the tokens [start, stop) of one request, to be committed or released once."""

    id: int
    request: int
    start: int
    stop: int
    first_index: int
    """Place of `new_blocks[0]` in the sequence, in blocks."""
    new_blocks: tuple[int, ...] = ()
    copies: tuple[CopyOnWrite, ...] = ()
    evicted: tuple[Eviction, ...] = ()


@dataclass(frozen=True, slots=True)
class Swap:
    """Block `index` of a table became full and equal to one that can be found: `old` gave way to `new`."""

    index: int
    old: int
    new: int


class Committed(NamedTuple):
    """Tokens became part of the sequence. `stores` is what must be copied from the row into the pool."""

    stores: tuple[BlockCopy, ...]
    newly_cached: int
    """Blocks that others can find from now on."""
    swaps: tuple[Swap, ...]
    num_tokens: int
    """Of the whole sequence now."""
    first_block: int = 0
    """The first block that the request still holds; those before it fell out of its window."""


@dataclass(frozen=True, slots=True)
class Forked:
    """`target` shares the blocks of `source`; the next write into a shared block copies it first."""

    source: int
    target: int
    block_table: tuple[int, ...]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Freed:
    """Blocks that a request gave up and nobody else holds."""

    blocks_freed: tuple[int, ...]
    """Empty now."""
    blocks_kept_cached: tuple[int, ...]
    """Free, but with their content, until somebody needs the room."""


@dataclass(frozen=True, slots=True)
class Admission:
    """An allocation and the first reservation, made together."""

    allocation: Allocation
    receipt: Receipt


class CacheManager(Protocol):
    """Which request owns which block. The engine asks, acts on a store, and commits or releases."""

    num_blocks: int
    block_size: int

    def match_prefix(self, tokens: Tokens, adapter: str = "", salt: str = "") -> PrefixMatch: ...
    def can_allocate(
        self, tokens: Tokens, adapter: str = "", salt: str = "", *, tokens_now: int | None = None
    ) -> Fit: ...
    def allocate(
        self, request: int, tokens: Tokens, adapter: str = "", salt: str = "", step: int = 0
    ) -> Allocation | Shortage: ...
    def admit(self, wanted: ReservationRequest) -> Admission | Shortage: ...
    def reserve_step(self, request: int, num_new: int, step: int = 0) -> Receipt | Shortage: ...
    def commit(self, receipt: Receipt, tokens: Tokens) -> Committed: ...
    def release(self, receipt: Receipt) -> None: ...
    def free(self, request: int, step: int = 0) -> Freed: ...
    def rewind(self, request: int, length: int, step: int = 0) -> Freed: ...
    def fork(self, source: int, target: int, length: int | None = None, step: int = 0) -> Forked | Shortage: ...
    def block_table(self, request: int) -> tuple[int, ...]: ...
    def num_tokens(self, request: int) -> int: ...
    def reset_prefix_cache(self) -> int: ...
    def snapshot(self) -> CacheSnapshot: ...
    def usage(self) -> Usage: ...
    def check(self) -> list[str]: ...


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"
