"""A request's place in memory: a row and blocks. Given when it is admitted, shared when it is forked, taken away when
it ends or gives way, and given back when the step in which it gave way failed.

Receives requests' states and changes `row` and `computed` of them; knows nothing of turns, policies and models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from genai_lab.engine.request import RequestState
from genai_lab.engine.rows import RowTable
from genai_lab.errors import CapacityError
from genai_lab.kvcache import PagedCache, Receipt, Shortage, Store, Suspended
from genai_lab.kvcache.facts import Tokens


@dataclass(slots=True)
class Leave:
    """A request that gives way for the length of a step; its row stays its own until the commit."""

    state: RequestState
    suspended: Suspended
    saved: list[tuple[list[int], Any]] = field(default_factory=list)  # its blocks that others write


class Memory:
    """Rows and blocks of one engine.

    Args:
        cache, store, table: the blocks' books, the blocks' memory, who has which row.
        smallest_piece: tokens that are left to be read at least, however much is cached.
    """

    def __init__(self, cache: PagedCache, store: Store, table: RowTable, smallest_piece: int = 2) -> None:
        self.cache, self.store, self.table = cache, store, table
        self._kept_out = smallest_piece - 1  # the cache itself leaves one

    def findable(self, state: RequestState) -> Tokens:
        """The tokens [n] among which the prefix cache may look, so that no prompt is left with a piece that is too
        small to be read like the others."""
        tokens = state.marked_tokens()[: len(state.sequence) - self._kept_out]
        ends = [stop - 1 for start, stop in state.prompts if start < stop - 1 < tokens.size]
        if self._kept_out and any(end % self.cache.block_size == 0 for end in ends):
            cached = self.cache.match_prefix(tokens, state.options.adapter, state.options.salt).num_cached_tokens
            return tokens[:cached] if cached in ends else tokens
        return tokens

    def admit(self, state: RequestState, step: int) -> Shortage | None:
        """A row, and in it what the prefix cache has of the request's tokens, but for the last ones."""
        tokens, options = self.findable(state), state.options
        allocation = self.cache.allocate(state.request, tokens, options.adapter, options.salt, step)
        if isinstance(allocation, Shortage):
            return allocation
        state.row, state.computed = self.table.take(), allocation.num_cached_tokens
        state.miss = allocation.match.miss
        try:
            self.store.load(state.row, allocation.loads)
        except BaseException:
            self.evict(state)
            raise
        if state.turn is not None and state.turn.generated == 0:
            state.turn.cached_prompt_tokens = max(0, state.computed - state.turn.start)
        return None

    def evict(self, state: RequestState) -> None:
        """Take row and blocks away; full blocks stay in the prefix cache until somebody needs the room."""
        self.cache.free(state.request)
        self._vacate(state)

    def rewind(self, state: RequestState, length: int, step: int) -> None:
        """Keep the first `length` tokens; nothing, when what they see fell out of a window and must be read again."""
        state.high_water = min(state.high_water, length)  # what is cut off is never read a second time
        if state.row is None or state.computed <= length:
            return
        if self.cache.can_go_back(state.request, length) and self.store.can_go_back(state.row, length):
            self.cache.rewind(state.request, length, step)
            self.store.rewind(state.row, length)
            state.computed = length
        else:
            self.evict(state)

    def go_back(self, state: RequestState, length: int, step: int) -> None:
        """`rewind` between turns. Where a row costs nothing it is given up: it comes back with whatever the prefix
        cache has of the next turn, the forgotten tokens included."""
        if state.row is not None and self.store.leaves_freely and self.cache.prefix_caching:
            self.evict(state)
        else:
            self.rewind(state, length, step)

    def fork(self, source: RequestState, target: RequestState, step: int) -> bool:
        """`target` gets a row and shares all blocks of `source`; False, and nothing, when there is no room."""
        if source.row is None or target.row is not None or self.table.free == 0 or self.cache.pool.num_free == 0:
            return False
        self.cache.fork(source.request, target.request, step=step)
        target.row, target.computed = self.table.take(), source.computed
        try:
            self.store.copy_row(source.row, target.row, source.computed)
        except CapacityError:  # the system has no mappings left: it reads for itself
            self.evict(target)
            return False
        target.high_water = max(target.high_water, target.computed)
        return True

    # ---- for the length of a step

    def send_away(self, state: RequestState, step: int) -> Leave:
        """Others may take its blocks from now on, not its row."""
        return Leave(state, self.cache.suspend(state.request, step))

    def save_for(self, leaves: list[Leave], receipt: Receipt) -> None:
        """Copy what a run on `receipt` would write over; due before the store learns of it."""
        taken = {*receipt.new_blocks, *(copy.target for copy in receipt.copies)}
        for leave in leaves:
            blocks = sorted(taken.intersection(leave.suspended.blocks))
            if blocks:
                leave.saved.append((blocks, self.store.save_blocks(blocks)))

    def come_back(self, leave: Leave) -> None:
        """The step failed: row and blocks are its own again, with their content."""
        self.cache.resume(leave.suspended)
        for blocks, saved in reversed(leave.saved):
            self.store.restore_blocks(blocks, saved)

    def stay_away(self, leave: Leave) -> None:
        """The step is committed: it has neither row nor blocks any more."""
        self.cache.finish(leave.suspended)
        self._vacate(leave.state)

    def _vacate(self, state: RequestState) -> None:
        if state.row is not None:
            self.store.clear(state.row)
            self.table.give_back(state.row)
        state.row, state.computed = None, 0
