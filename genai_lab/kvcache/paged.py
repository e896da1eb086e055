"""The paged cache: requests share a pool of blocks, full blocks are found again by content.

Receives request numbers and token ids, returns facts (`genai_lab.kvcache.facts`): which blocks, what a store must copy,
who was evicted, why a prefix ended. It holds no keys and values and knows no model.

The order of calls: `allocate` adopts a cached prefix; each step `reserve_step` takes blocks, the model runs, and
`commit` makes the tokens part of the sequence or `release` undoes the reservation exactly. A request's table, length
and reference counts change at commit only.

Beyond the interface first agreed on:
- `allocate(tokens_now=)` checks for room as `can_allocate` does; by default it only refuses what can never fit, since
  adopting takes nothing. `admit` is allocate + reserve_step, both or neither.
- `commit` takes fewer tokens than reserved (drafts that were refused) and gives the surplus blocks back.
- `Committed.swaps`: a block that became full with content that the pool has already is replaced by that one, so equal
  prompts that ran side by side end up sharing. A store that keeps content in rows ignores it.
- `writes_in_place=True` is for stores where a run writes into pool blocks themselves (`VmStore`): there the content of
  an evicted block cannot come back on release.
- NOT_COMPUTED_YET is one more reason of a miss: a live request is about to compute the same block.
- `fork` returns a `Forked`.
- `window=` is for local attention: blocks that no later token sees are let go at commit (`genai_lab.kvcache.window`).
  `rewind` and `fork` to a place whose window is gone are refused; `can_go_back` says so before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from genai_lab.errors import ArgumentError
from genai_lab.kvcache.blocks import BlockPool, Taken
from genai_lab.kvcache.eviction import Eviction, EvictionPolicy
from genai_lab.kvcache.facts import (
    Admission,
    Allocation,
    BlockCopy,
    Committed,
    CopyOnWrite,
    Fit,
    Forked,
    Freed,
    PrefixMatch,
    Receipt,
    ReservationRequest,
    Shortage,
    Tokens,
)
from genai_lab.kvcache.fit import fit_of, match_of, walk_prompt
from genai_lab.kvcache.growth import cache_full_blocks, leave_window, let_go, must_copy, new_data, take_over
from genai_lab.kvcache.invariants import check_cache
from genai_lab.kvcache.keys import Hasher, block_hash, token_bytes
from genai_lab.kvcache.picture import paged_snapshot, paged_usage
from genai_lab.kvcache.prefix import Walk
from genai_lab.kvcache.receipts import check_committed, check_num_new, check_open
from genai_lab.kvcache.snapshots import CacheSnapshot, Usage
from genai_lab.kvcache.suspension import Suspended, resume, suspend
from genai_lab.kvcache.table import (
    RequestTable,
    blocks_for,
    check_length,
    find_idle_table,
    find_table,
    must_be_new,
)
from genai_lab.kvcache.waiting import WaitingPrefix, WaitingWalks
from genai_lab.kvcache.window import Window


class _Pending(NamedTuple):
    """A receipt and what it took."""

    receipt: Receipt
    taken: tuple[Taken, ...] = ()
    """The copy's target first, then the new blocks."""
    overwritten: Taken | None = None


class PagedCache:
    """Block tables over one pool, with prefix sharing, copy-on-write and eviction.

    Args:
        num_blocks: blocks in the pool.
        block_size: tokens per block.
        prefix_caching: full blocks can be found and adopted by later requests.
        eviction: chooses which cached block is given up; default `LeastRecentlyUsed()`.
        writes_in_place: a run writes into pool blocks (`VmStore`) rather than into rows of its own (`SlotStore`).
        hasher: 48-bit hash of a block's content.
        window: tokens that a token sees, itself included, in every layer; None: all before it.
        may_end: whether a prefix can end with this block, for models that keep more of a text than blocks; None: any.

    >>> import numpy as np
    >>> cache = PagedCache(num_blocks=4, block_size=2)
    >>> prompt = np.array([5, 6, 7], np.int32)
    >>> cache.allocate(0, prompt).num_cached_tokens
    0
    >>> receipt = cache.reserve_step(0, 3)
    >>> receipt.new_blocks, cache.commit(receipt, prompt).stores
    ((0, 1), (BlockCopy(block=0, start=0, stop=2),))
    >>> match = cache.match_prefix(np.array([5, 6, 8], np.int32))
    >>> match.blocks, match.miss.in_words()
    ((0,), 'the last token does not fill a block, and only full blocks are kept')
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool = True,
        eviction: EvictionPolicy | None = None,
        writes_in_place: bool = False,
        hasher: Hasher = block_hash,
        window: int | None = None,
        may_end: Callable[[int], bool] | None = None,
    ) -> None:
        self.may_end = may_end
        self.pool = BlockPool(num_blocks, block_size, eviction, hasher)
        self.num_blocks, self.block_size = num_blocks, block_size
        self.prefix_caching, self.writes_in_place = prefix_caching, writes_in_place
        self.window = None if window is None else Window(window, block_size)
        self._tables: dict[int, RequestTable] = {}
        self._pending: dict[int, _Pending] = {}
        self._waiting = WaitingWalks(self.pool.prefixes, is_kept=may_end is None, only_ends=window is None)
        self._next_receipt = 0

    @property
    def adopts_any_block(self) -> bool:
        """Whether every block that is computed can be the last of a prefix."""
        return self.prefix_caching and self.may_end is None

    # Questions: nothing changes.

    def match_prefix(self, tokens: Tokens, adapter: str = "", salt: str = "") -> PrefixMatch:
        """The cached blocks that a prompt would adopt, never its last token, and why there are not more."""
        data = token_bytes(tokens)
        return self._match(self._walk(data, adapter, salt), data)

    def waiting_prefix(
        self, request: int, version: Hashable, tokens: Tokens, adapter: str = "", salt: str = ""
    ) -> WaitingPrefix:
        """As `match_prefix` without the reason, for a request that waits and is asked about again and again.

        Args:
            version: another one whenever the request's tokens are others.
        """
        return self._waiting.find(request, version, tokens, lambda data: self._walk(data, adapter, salt), adapter, salt)

    def keep_waiting(self, requests: Iterable[int]) -> None:
        """Only these requests wait; what is known of others is forgotten."""
        self._waiting.keep_only(requests)

    def can_allocate(self, tokens: Tokens, adapter: str = "", salt: str = "", *, tokens_now: int | None = None) -> Fit:
        """Whether there is room for all of `tokens`, or for the first `tokens_now` of those not cached."""
        data = token_bytes(tokens)
        return fit_of(self.pool, data, self._walk(data, adapter, salt), tokens_now, self.window)

    def block_table(self, request: int) -> tuple[int, ...]:
        """The request's blocks in order; what is only reserved, and what fell out of its window, is not among them."""
        return tuple(find_table(self._tables, request).blocks)

    def num_blocks_of(self, request: int) -> int:
        """How many blocks that are."""
        return len(find_table(self._tables, request).blocks)

    def first_block(self, request: int) -> int:
        """Place of the first of them in the request's sequence: as many fell out of its window."""
        return find_table(self._tables, request).first_block

    def can_go_back(self, request: int, length: int) -> bool:
        """Whether the request still holds what the token after its first `length` sees."""
        table = find_table(self._tables, request)
        check_length(table, length)
        return self.window is None or self.window.first_block(length) >= table.first_block

    def num_tokens(self, request: int) -> int:
        """Tokens whose keys and values are in the request's blocks."""
        return find_table(self._tables, request).num_tokens

    @property
    def requests(self) -> tuple[int, ...]:
        """Requests that were allocated and not freed, in that order."""
        return tuple(self._tables)

    @property
    def evictions(self) -> tuple[Eviction, ...]:
        """The last evictions, oldest first."""
        return tuple(self.pool.prefixes.evictions.recent)

    # A request's life.

    def allocate(
        self, request: int, tokens: Tokens, adapter: str = "", salt: str = "", step: int = 0, *, tokens_now: int = 0
    ) -> Allocation | Shortage:
        """Take a request in and adopt its cached prefix. Blocks for the rest are taken by `reserve_step`.

        Raises:
            StateError: the request is in already.
        """
        must_be_new(self._tables, request)
        data = token_bytes(tokens)
        walk = self._walk(data, adapter, salt)
        fit = fit_of(self.pool, data, walk, tokens_now, self.window)
        if not fit.fits:
            return Shortage(fit.needs_blocks, fit.free_blocks)
        match = self._match(walk, data)
        for block in walk.blocks:
            self.pool.hold(block, step, hit=True)
        cached = match.num_cached_tokens
        self._tables[request] = RequestTable(
            request,
            walk.root,
            data,
            list(walk.blocks),
            walk.first,
            list(walk.keys),
            cached,
            cached,
            epoch=self.pool.epoch,
        )
        size = self.block_size
        loads = tuple(BlockCopy(block, i * size, (i + 1) * size) for i, block in enumerate(walk.blocks, walk.first))
        return Allocation(request, walk.blocks, cached, loads, (), match)

    def admit(self, wanted: ReservationRequest) -> Admission | Shortage:
        """Take a request in and reserve its first `num_new` tokens that are not cached; both or neither."""
        w = wanted
        allocation = self.allocate(w.request, w.tokens, w.adapter, w.salt, w.step, tokens_now=w.num_new)
        if isinstance(allocation, Shortage):
            return allocation
        num_new = min(w.num_new, len(w.tokens) - allocation.num_cached_tokens)
        receipt = self.reserve_step(w.request, num_new, w.step)
        assert isinstance(receipt, Receipt)
        return Admission(allocation, receipt)

    def reserve_step(self, request: int, num_new: int, step: int = 0) -> Receipt | Shortage:
        """Take the blocks that `num_new` more tokens need. The receipt's copies are due before the run writes.

        Raises:
            ArgumentError: num_new is not positive.
            StateError: the request is unknown, or has a reservation that was neither committed nor released.
        """
        table = find_idle_table(self._tables, request)
        check_num_new(num_new, request)
        start, first = table.num_tokens, table.num_places
        stop = start + num_new
        fresh = blocks_for(stop, self.block_size) - first
        pending = _Pending(Receipt(self._next_receipt, request, start, stop, first))
        if fresh or must_copy(self.pool, table):  # seldom: most tokens go into a block that the request has already
            found = self._take(pending.receipt, table, fresh, step)
            if isinstance(found, Shortage):
                return found
            pending = found
        self._next_receipt += 1
        self._pending[pending.receipt.id] = pending
        table.receipt = pending.receipt.id
        table.step = step
        return pending.receipt

    def commit(self, receipt: Receipt, tokens: Tokens) -> Committed:
        """The reserved tokens were run. `tokens`: the sequence up to `receipt.stop`, or less of it (drafts refused).

        Raises:
            ArgumentError: fewer tokens than before, more than reserved, or others than committed earlier.
            StateError: the receipt was used already.
        """
        table = self._tables[self._find(receipt).receipt.request]
        check_committed(receipt, len(tokens))
        data = new_data(self.pool, table, tokens) if self.prefix_caching else b""
        del self._pending[receipt.id]
        table.receipt, table.num_tokens = None, len(tokens)
        if receipt.new_blocks or receipt.copies:
            take_over(self.pool, table, receipt)
        committed = cache_full_blocks(self.pool, table, data)
        if self.window is not None:
            leave_window(self.pool, table, self.window)
        return committed._replace(first_block=table.first_block) if table.first_block else committed

    def release(self, receipt: Receipt) -> None:
        """Undo a reservation: blocks, evictions and the free queue's order are as before.

        Raises:
            StateError: the receipt was used already.
        """
        pending = self._find(receipt)
        del self._pending[receipt.id]
        self._tables[receipt.request].receipt = None
        self.pool.put_back(pending.taken, self.writes_in_place)
        if pending.overwritten is not None:
            self.pool.restore(pending.overwritten, self.writes_in_place)

    def free(self, request: int, step: int = 0) -> Freed:
        """The request ended or was preempted. Its full blocks stay findable; the end of its sequence goes first."""
        table = find_idle_table(self._tables, request)
        del self._tables[request]
        self._remember_end(table)
        return let_go(self.pool, table.blocks, step)

    def suspend(self, request: int, step: int = 0) -> Suspended:
        """As `free`, until the step is over: then `finish`, or `resume` when it failed."""
        table, order = find_idle_table(self._tables, request), tuple(self._tables)
        del self._tables[request]
        return suspend(self.pool, table, order, step)

    def resume(self, suspended: Suspended) -> None:
        """Undo a `suspend`, after every reservation made since was released, the last suspended first."""
        must_be_new(self._tables, suspended.table.request)
        resume(self.pool, suspended)
        self._tables[suspended.table.request] = suspended.table
        self._tables = {request: self._tables[request] for request in suspended.order}

    def finish(self, suspended: Suspended) -> None:
        """The blocks stay given up."""
        self._remember_end(suspended.table)

    def rewind(self, request: int, length: int, step: int = 0) -> Freed:
        """Keep the first `length` tokens. Writing on into a block that others can find copies it first.

        Raises:
            ArgumentError: more tokens than there are, or so few that what they see fell out of the window.
        """
        table = find_idle_table(self._tables, request)
        self._check_back(request, length)
        return let_go(self.pool, table.cut(length, self.block_size), step)

    def fork(self, source: int, target: int, length: int | None = None, step: int = 0) -> Forked:
        """`target` goes on from the first `length` tokens of `source` (default: all) and shares their blocks."""
        must_be_new(self._tables, target)
        table = find_idle_table(self._tables, source).copy(target)
        self._check_back(source, table.num_tokens if length is None else length)
        table.cut(table.num_tokens if length is None else length, self.block_size)
        for block in table.blocks:
            self.pool.hold(block, step)
        self._tables[target] = table
        return Forked(source, target, tuple(table.blocks), table.num_tokens)

    def reset_prefix_cache(self) -> int:
        """Nothing can be found any more, also not what live requests hold; how many blocks could be found."""
        return self.pool.clear()

    # Pictures and checks.

    def usage(self) -> Usage:
        """How full the pool is, without a snapshot."""
        return paged_usage(self.pool, self._tables.values())

    def snapshot(self) -> CacheSnapshot:
        """The whole state as values."""
        receipts, window = (p.receipt for p in self._pending.values()), self.window
        return paged_snapshot(self.pool, self._tables.values(), receipts, None if window is None else window.tokens)

    def check(self) -> list[str]:
        """What is wrong, in words; empty when nothing is."""
        return self.pool.check() + check_cache(self.snapshot())

    # Parts of the above.

    def _check_back(self, request: int, length: int) -> None:
        if self.window is not None and not self.can_go_back(request, length):
            table = find_table(self._tables, request)
            least = table.first_block * self.block_size + self.window.tokens - 1
            raise ArgumentError(
                f"length is {length}; of request {request} with {table.num_tokens} tokens and a window of "
                f"{self.window.tokens}, the blocks before token {table.first_block * self.block_size} are gone, so "
                f"{least} to {table.num_tokens} is allowed; free it and read it again from the first token"
            )

    def _take(self, receipt: Receipt, table: RequestTable, fresh: int, step: int) -> _Pending | Shortage:
        """`fresh` new blocks for a reservation, and one in place of a last block that must not be written."""
        pool, request, copy = self.pool, receipt.request, must_copy(self.pool, table)
        overwrite = copy and fresh + 1 > pool.num_free and pool.ref_counts[table.blocks[-1]] == 1
        copied = int(copy and not overwrite)
        if fresh + copied > pool.num_free:
            return Shortage(fresh + copied, pool.num_free)
        taken = pool.take(fresh + copied, request, step)
        overwritten = pool.overwrite(table.blocks[-1], request, step) if overwrite else None
        ids = tuple(one.block for one in taken)
        receipt = receipt._replace(
            new_blocks=ids[copied:],
            copies=(CopyOnWrite(receipt.first_index - 1, table.blocks[-1], ids[0]),) if copied else (),
            evicted=tuple(one.eviction for one in (overwritten, *taken) if one and one.eviction),
        )
        return _Pending(receipt, taken, overwritten)

    def _remember_end(self, table: RequestTable) -> None:
        if table.tail and table.epoch == self.pool.epoch:
            self.pool.prefixes.remember_partial(table.last_key, table.tail, table.request)

    def _walk(self, data: bytes, adapter: str, salt: str) -> Walk:
        walk = walk_prompt(self.pool, data, adapter, salt, self.prefix_caching, self.window)
        return walk if self.may_end is None else walk.cut(self.may_end)

    def _match(self, walk: Walk, data: bytes) -> PrefixMatch:
        return match_of(self.pool, walk, data, self._tables.values(), self.prefix_caching, self.may_end is not None)

    def _find(self, receipt: Receipt) -> _Pending:
        pending = self._pending.get(receipt.id)
        check_open(receipt, pending.receipt if pending else None)
        assert pending is not None
        return pending
