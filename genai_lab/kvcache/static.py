"""The static cache: a request owns room for the longest answer from its first step to its last. Nothing is shared.

The picture that paging was invented against: the slots that a short answer never fills stay empty and nobody else's.
The same questions and answers as the paged cache, so an engine and a picture need not know which one they have.
"""

from __future__ import annotations

from genai_lab.errors import ArgumentError
from genai_lab.kvcache.facts import (
    Admission,
    Allocation,
    Committed,
    Fit,
    Forked,
    Freed,
    PrefixMatch,
    Receipt,
    ReservationRequest,
    Shortage,
    Tokens,
)
from genai_lab.kvcache.invariants import check_cache
from genai_lab.kvcache.keys import BlockKey
from genai_lab.kvcache.misses import Miss, MissReason
from genai_lab.kvcache.picture import static_snapshot
from genai_lab.kvcache.receipts import check_committed, check_num_new, check_open
from genai_lab.kvcache.snapshots import CacheSnapshot, Usage
from genai_lab.kvcache.table import RequestTable, blocks_for, check_length, find_idle_table, find_table, must_be_new

NOT_CACHED = PrefixMatch((), 0, Miss(MissReason.NO_CACHE, 0, 0))


class StaticCache:
    """`num_blocks` blocks cut into equal regions of neighbours, one a request.

    Args:
        num_blocks: blocks in the pool; those beyond the last whole region are never used.
        block_size: tokens per block.
        max_tokens: tokens that every request gets room for, prompt and answer.

    >>> import numpy as np
    >>> cache = StaticCache(num_blocks=8, block_size=4, max_tokens=16)
    >>> cache.allocate(0, np.array([5, 6, 7], np.int32)).block_table
    (0, 1, 2, 3)
    >>> cache.usage().fraction, cache.usage().tokens_used
    (0.5, 0)
    """

    def __init__(self, num_blocks: int, block_size: int, max_tokens: int) -> None:
        if num_blocks < 1 or block_size < 1 or max_tokens < 1:
            raise ArgumentError(
                f"a static cache needs at least one block of one token for one request, got num_blocks={num_blocks}, "
                f"block_size={block_size}, max_tokens={max_tokens}"
            )
        self.num_blocks, self.block_size, self.max_tokens = num_blocks, block_size, max_tokens
        self.blocks_per_request = blocks_for(max_tokens, block_size)
        self._free = list(range(num_blocks // self.blocks_per_request))  # regions, lowest first
        self._tables: dict[int, RequestTable] = {}
        self._receipts: dict[int, Receipt] = {}
        self._next_receipt = 0

    def match_prefix(self, tokens: Tokens, adapter: str = "", salt: str = "") -> PrefixMatch:
        """Nothing: a static cache shares no blocks."""
        return NOT_CACHED

    def can_allocate(self, tokens: Tokens, adapter: str = "", salt: str = "", *, tokens_now: int | None = None) -> Fit:
        """Whether a region is free and long enough; a whole region is taken however few tokens are run now."""
        never = len(tokens) > self.max_tokens or self.blocks_per_request > self.num_blocks
        free = len(self._free) * self.blocks_per_request
        return Fit(self.blocks_per_request, free, 0, bool(self._free) and not never, never)

    def allocate(
        self, request: int, tokens: Tokens, adapter: str = "", salt: str = "", step: int = 0
    ) -> Allocation | Shortage:
        """Give the request the lowest free region.

        Raises:
            StateError: the request is in already.
        """
        must_be_new(self._tables, request)
        fit = self.can_allocate(tokens)
        if not fit.fits:
            return Shortage(fit.needs_blocks, fit.free_blocks)
        table = RequestTable(request, BlockKey.root(adapter, salt), blocks=self._take_region())
        self._tables[request] = table
        return Allocation(request, tuple(table.blocks), 0, (), (), NOT_CACHED)

    def admit(self, wanted: ReservationRequest) -> Admission | Shortage:
        """`allocate` and the first `reserve_step`; both or neither."""
        allocation = self.allocate(wanted.request, wanted.tokens, wanted.adapter, wanted.salt, wanted.step)
        if isinstance(allocation, Shortage):
            return allocation
        receipt = self.reserve_step(wanted.request, min(wanted.num_new, len(wanted.tokens)), wanted.step)
        assert isinstance(receipt, Receipt)
        return Admission(allocation, receipt)

    def reserve_step(self, request: int, num_new: int, step: int = 0) -> Receipt | Shortage:
        """Room in the request's own region, or a shortage when its max_tokens are used up."""
        table = find_idle_table(self._tables, request)
        check_num_new(num_new, request)
        stop = table.num_tokens + num_new
        if stop > self.max_tokens:
            return Shortage(max(blocks_for(stop, self.block_size) - self.blocks_per_request, 1), 0)
        first = blocks_for(table.num_tokens, self.block_size)
        receipt = Receipt(self._next_receipt, request, table.num_tokens, stop, first, (), (), ())
        self._next_receipt += 1
        self._receipts[receipt.id] = receipt
        table.receipt = receipt.id
        return receipt

    def commit(self, receipt: Receipt, tokens: Tokens) -> Committed:
        """The reserved tokens were run; `tokens` is the sequence up to `receipt.stop`, or less of it."""
        check_open(receipt, self._receipts.get(receipt.id))
        check_committed(receipt, len(tokens))
        table = self._tables[self._receipts.pop(receipt.id).request]
        table.receipt, table.num_tokens = None, len(tokens)
        return Committed((), 0, (), len(tokens))

    def release(self, receipt: Receipt) -> None:
        """Undo a reservation."""
        check_open(receipt, self._receipts.get(receipt.id))
        self._tables[self._receipts.pop(receipt.id).request].receipt = None

    def free(self, request: int, step: int = 0) -> Freed:
        """The region is free again."""
        table = find_idle_table(self._tables, request)
        del self._tables[request]
        self._free = sorted([*self._free, table.blocks[0] // self.blocks_per_request])
        return Freed(tuple(reversed(table.blocks)), ())

    def rewind(self, request: int, length: int, step: int = 0) -> Freed:
        """Keep the first `length` tokens; the region stays."""
        table = find_idle_table(self._tables, request)
        check_length(table, length)
        table.num_tokens = length
        return Freed((), ())

    def fork(self, source: int, target: int, length: int | None = None, step: int = 0) -> Forked | Shortage:
        """`target` gets a region of its own; the store copies the tokens (`copy_row`)."""
        must_be_new(self._tables, target)
        origin = find_idle_table(self._tables, source)
        length = origin.num_tokens if length is None else length
        check_length(origin, length)
        if not self._free:
            return Shortage(self.blocks_per_request, 0)
        table = RequestTable(target, origin.root, blocks=self._take_region(), num_tokens=length)
        self._tables[target] = table
        return Forked(source, target, tuple(table.blocks), length)

    def block_table(self, request: int) -> tuple[int, ...]:
        """The request's whole region."""
        return tuple(find_table(self._tables, request).blocks)

    def num_tokens(self, request: int) -> int:
        """Tokens whose keys and values are in the request's region."""
        return find_table(self._tables, request).num_tokens

    @property
    def requests(self) -> tuple[int, ...]:
        """Requests that were allocated and not freed, in that order."""
        return tuple(self._tables)

    def reset_prefix_cache(self) -> int:
        """There is none: 0 blocks could be found."""
        return 0

    def usage(self) -> Usage:
        """How full the pool is: regions are used whole."""
        used = len(self._tables) * self.blocks_per_request
        filled = sum(table.num_tokens for table in self._tables.values())
        return Usage(used, 0, self.num_blocks - used, filled, used / self.num_blocks)

    def snapshot(self) -> CacheSnapshot:
        """The whole state as values."""
        per = self.blocks_per_request
        free = [block for region in self._free for block in range(region * per, (region + 1) * per)]
        rest = range(self.num_blocks // per * per, self.num_blocks)
        return static_snapshot(
            self.num_blocks, self.block_size, self._tables.values(), self._receipts.values(), (*free, *rest)
        )

    def check(self) -> list[str]:
        """What is wrong, in words; empty when nothing is."""
        return check_cache(self.snapshot())

    def _take_region(self) -> list[int]:
        first = self._free.pop(0) * self.blocks_per_request
        return list(range(first, first + self.blocks_per_request))
