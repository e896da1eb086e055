"""A cache's whole state as values: enough to draw the pool, to rebuild a step, and for validators to check.

Columns over blocks are tuples indexed by block id, so that a snapshot of thousands of blocks is quick to make and two
snapshots compare with `==`. It knows no manager.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class BlockState(StrEnum):
    """Where a block stands; each is in exactly one state."""

    FREE = "free"
    """In the free queue, empty."""
    CACHED = "cached"
    """In the free queue, its content can still be found."""
    USED = "used"
    """In at least one request's table."""
    RESERVED = "reserved"
    """Promised to a receipt that is not committed yet."""


@dataclass(frozen=True, slots=True)
class RequestSnapshot:
    """One request's logical view."""

    request: int
    block_table: tuple[int, ...]
    num_tokens: int
    """Tokens whose keys and values are in its blocks."""
    num_cached_tokens: int
    """Of these, adopted from the cache when it was taken in."""
    adapter: str
    salt: str
    first_block: int = 0
    """Place of the table's first block in the sequence: as many fell out of its window."""


@dataclass(frozen=True, slots=True)
class ReceiptSnapshot:
    """A reservation that waits for its commit or release."""

    id: int
    request: int
    start: int
    stop: int
    new_blocks: tuple[int, ...]
    copy_targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockSnapshot:
    """One block's row of the columns."""

    block: int
    state: BlockState
    ref_count: int
    owners: tuple[int, ...]
    hash: int | None
    tokens_filled: int
    computed_by: int | None


@dataclass(frozen=True, slots=True)
class CacheSnapshot:
    """Everything about the blocks at one moment."""

    kind: str
    """"paged" or "static"."""
    num_blocks: int
    block_size: int
    states: tuple[BlockState, ...]
    ref_counts: tuple[int, ...]
    hashes: tuple[int | None, ...]
    """Hash of the content, for blocks that can be found."""
    parents: tuple[int | None, ...]
    """Hash of the content before it; the root's hash for a first block."""
    depths: tuple[int | None, ...]
    """1 for the first block of a sequence, for blocks that can be found."""
    tokens_filled: tuple[int, ...]
    """Tokens in the block, by its fullest holder."""
    computed_by: tuple[int | None, ...]
    """The request whose run filled it."""
    last_used: tuple[int, ...]
    """Step at which it was last taken, adopted or let go."""
    owners: tuple[tuple[int, ...], ...]
    """Requests that hold it, in the order they came."""
    requests: tuple[RequestSnapshot, ...]
    receipts: tuple[ReceiptSnapshot, ...]
    free_queue: tuple[int, ...]
    """Free blocks, the next one to be taken first."""
    window: int | None = None
    """Tokens that a token sees, itself included; None: all before it."""

    def block(self, block: int) -> BlockSnapshot:
        """One block's row."""
        return BlockSnapshot(
            block,
            self.states[block],
            self.ref_counts[block],
            self.owners[block],
            self.hashes[block],
            self.tokens_filled[block],
            self.computed_by[block],
        )

    def usage(self) -> Usage:
        """The counts of this moment."""
        count = Counter(self.states)
        used = count[BlockState.USED] + count[BlockState.RESERVED]
        filled = sum(self.tokens_filled[b] for b, state in enumerate(self.states) if state is BlockState.USED)
        return Usage(used, count[BlockState.CACHED], count[BlockState.FREE], filled, used / self.num_blocks)


@dataclass(frozen=True, slots=True)
class Usage:
    """How full a pool is; the three counts of blocks add up to the pool."""

    blocks_used: int
    """In a table or reserved."""
    blocks_cached: int
    """Free, with content that can be found."""
    blocks_free: int
    """Free and empty."""
    tokens_used: int
    """Tokens of live requests; a shared one counts once."""
    fraction: float
    """blocks_used / num_blocks."""
