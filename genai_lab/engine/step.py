"""One step carried out: reserve blocks for the plan, run the model, choose tokens, commit; or undo.

Receives a checked plan and the requests' states. Until `commit` nothing that it did outlives an error: receipts are
released, random streams restored, newly admitted requests put back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Place, choose
from genai_lab.engine.plan import Decision, Reason, StepPlan, Verdict
from genai_lab.engine.request import RequestState, Turn
from genai_lab.engine.rows import RowTable, decode_ranges
from genai_lab.kvcache import PagedCache, Receipt, RowStore, Shortage
from genai_lab.models.rows import RowsExecutor
from genai_lab.sampling import Choice, SamplingMode
from genai_lab.tracing import Change


@dataclass(slots=True)
class Work:
    """One scheduled request: what it computes, on which blocks, and what came out."""

    state: RequestState
    decision: Decision
    receipt: Receipt
    start: int  # tokens in its row before
    admitted: bool  # in this step
    stream_state: Any = None  # of its random numbers, before this step
    logits: NDArray[np.float32] | None = None  # of its last known token; None while its prompt is not read to the end
    choice: Choice | None = None
    changes: tuple[Change, ...] = ()
    error: Exception | None = None  # its own: a processor that failed
    started_ns: int = 0

    @property
    def stop(self) -> int:
        """Tokens in its row afterwards."""
        return self.start + self.decision.num_tokens

    @property
    def is_last(self) -> bool:
        """Whether this run reads its last known token, so that the next can be chosen."""
        return self.stop == len(self.state.sequence)


@dataclass(slots=True)
class Outcome:
    """A step before its commit."""

    works: list[Work] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)  # one per request the policy saw
    run_ns: int = 0  # inside the model


class StepRunner:
    """Carries out plans on one model, one cache and one slab.

    Args:
        executor, cache, store, table: the model's rows, the blocks' books, the blocks' memory, who has which row.
    """

    def __init__(self, executor: RowsExecutor, cache: PagedCache, store: RowStore, table: RowTable) -> None:
        self.executor, self.cache, self.store, self.table = executor, cache, store, table

    def reserve(
        self, plan: StepPlan, states: Mapping[int, RequestState], step: int, make_room: Callable[[], bool]
    ) -> Outcome:
        """Rows and blocks for everything scheduled; what finds none waits after all, and its decision says so.

        `make_room` frees what an idle conversation holds; False when there is none left.
        """
        outcome = Outcome(decisions=list(plan.others))
        try:
            for decision in plan.scheduled:
                self._reserve_into(outcome, states[decision.request], decision, step, make_room)
        except Exception:
            self.undo(outcome)
            raise
        return outcome

    def run(self, outcome: Outcome, held: Mapping[int, int]) -> None:
        """The decode run, then the chunk runs. `held`: tokens in every taken row."""
        start = perf_counter_ns()
        decodes = {_row(w.state): w for w in outcome.works if w.decision.verdict is Verdict.DECODE}
        for first, last in decode_ranges(decodes):
            self._run_decode(first, last, decodes, held)
        for work in outcome.works:
            if work.decision.verdict is Verdict.PREFILL:
                self._run_chunk(work)
        outcome.run_ns = perf_counter_ns() - start

    def choose(self, outcome: Outcome, place_of: Callable[[RequestState, Turn], Place]) -> None:
        """The next token of every request whose last known token was read. A request's own error stays its own."""
        for work in outcome.works:
            if not work.is_last or work.logits is None or work.state.turn is None:
                continue
            turn = work.state.turn
            if turn.chooser.mode is SamplingMode.SAMPLE:
                work.stream_state = work.state.stream.state
            try:
                place = place_of(work.state, turn)
                work.choice, work.changes = choose(work.logits, work.state.sequence, turn.chooser, place)
            except Exception as error:  # a person's processor may raise anything
                if work.stream_state is not None:
                    work.state.stream.restore(work.stream_state)
                work.error = error

    def commit(self, outcome: Outcome) -> None:
        """Make the computed tokens part of the rows and the books; full prompt blocks become shareable."""
        for work in outcome.works:
            committed = self.cache.commit(work.receipt, work.state.marked_tokens()[: work.stop])
            self.store.commit(_row(work.state), committed)
            work.state.recomputed += max(0, min(work.stop, work.state.high_water) - work.start)
            work.state.computed = work.stop
            work.state.high_water = max(work.state.high_water, work.stop)

    def undo(self, outcome: Outcome) -> None:
        """Take everything back that this step reserved or drew."""
        for work in reversed(outcome.works):
            if work.stream_state is not None:
                work.state.stream.restore(work.stream_state)
            self.store.release(_row(work.state), work.receipt)
            self.cache.release(work.receipt)
            if work.admitted:
                self.evict(work.state)

    def evict(self, state: RequestState) -> None:
        """Take a request's row and blocks away."""
        self.cache.free(state.request)
        if state.row is not None:
            self.store.clear(state.row)
            self.table.give_back(state.row)
        state.row, state.computed = None, 0

    # ---- inside -------------------------------------------------------------------------------------------------

    def _reserve_into(
        self, outcome: Outcome, state: RequestState, decision: Decision, step: int, make_room: Callable[[], bool]
    ) -> None:
        while state.row is None and self.table.free == 0 and make_room():
            pass
        work = self._reserve_one(state, decision, step)
        while isinstance(work, Decision) and make_room():
            work = self._reserve_one(state, decision, step)
        if isinstance(work, Decision):
            outcome.decisions.append(work)
            return
        outcome.works.append(work)  # from here on `undo` knows of it
        outcome.decisions.append(decision)
        self.store.reserve(_row(state), work.receipt)

    def _reserve_one(self, state: RequestState, decision: Decision, step: int) -> Work | Decision:
        admitted = state.row is None
        if admitted:
            shortage = self._admit(state, step)
            if shortage is not None:
                return _waits(decision, shortage)
        receipt = self.cache.reserve_step(state.request, decision.num_tokens, step)
        if isinstance(receipt, Shortage):
            if admitted:
                self.evict(state)
            return _waits(decision, receipt)
        return Work(state, decision, receipt, state.computed, admitted, started_ns=perf_counter_ns())

    def _admit(self, state: RequestState, step: int) -> Shortage | None:
        """A row, and what the prefix cache has of its tokens in it. At least two tokens stay to be read: see
        `policies.chunk_tokens`."""
        tokens, options = state.marked_tokens()[:-1], state.options
        allocation = self.cache.allocate(state.request, tokens, options.adapter, options.salt, step)
        if isinstance(allocation, Shortage):
            return allocation
        state.row, state.computed = self.table.take(), allocation.num_cached_tokens
        state.miss = allocation.match.miss
        try:
            self.store.load(state.row, allocation.loads)
        except Exception:
            self.evict(state)
            raise
        if state.turn is not None and state.turn.generated == 0:
            state.turn.cached_prompt_tokens = max(0, state.computed - state.turn.start)
        return None

    def _run_decode(self, first: int, last: int, works: Mapping[int, Work], held: Mapping[int, int]) -> None:
        count = last - first + 1
        tokens = np.zeros(count, np.int32)
        cached = np.zeros(count, np.int64)
        for row in range(first, last + 1):
            work = works.get(row)
            # an idle row between two live ones computes a token that nobody reads, past what it holds
            cached[row - first] = work.start if work is not None else held.get(row, 0)
            if work is not None:
                tokens[row - first] = work.state.sequence.tokens[work.start]
        logits = self.executor.decode(first, tokens, cached)
        for row in range(first, last + 1):
            work = works.get(row)
            if work is not None:
                work.logits = logits[row - first] if work.is_last else None

    def _run_chunk(self, work: Work) -> None:
        tokens = work.state.sequence.tokens[work.start : work.stop]
        logits = self.executor.chunk(_row(work.state), tokens, work.start)
        work.logits = logits if work.is_last else None


def _row(state: RequestState) -> int:
    if state.row is None:
        raise AssertionError("a scheduled request holds a row")
    return state.row


def _waits(decision: Decision, shortage: Shortage) -> Decision:
    operands = (
        ("needs_blocks", shortage.needs),
        ("free_blocks", shortage.free),
        ("missing_blocks", shortage.needs - shortage.free),
    )
    return Decision(decision.request, Verdict.WAIT, Reason.NO_BLOCKS, 0, operands)
