"""One step carried out: who gives way, blocks for the plan, the model's runs, the choice of tokens; then commit, or
undo.

Receives a checked plan and the requests' states. Until `commit` nothing that it did outlives an error: receipts are
released, random streams restored, newly admitted requests put back, and who gave way has its place again. One thing
stays: an idle conversation whose row was needed reads its tokens again when it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Place, choose
from genai_lab.engine.memory import Memory
from genai_lab.engine.plan import Decision, Reason, StepPlan, Verdict
from genai_lab.engine.request import GENERATED_MARK, NO_TOKENS, VERIFIED_MARK, RequestState, Turn
from genai_lab.engine.runs import Held, Runs
from genai_lab.engine.work import Chosen, Outcome, Work
from genai_lab.kvcache import Shortage

PlaceOf = Callable[[RequestState, Turn], Place]


class StepRunner:
    """Carries out plans.

    Args:
        runs: the model's runs.
        memory: rows and blocks.
    """

    def __init__(self, runs: Runs, memory: Memory) -> None:
        self.runs, self.memory = runs, memory
        self.end_tokens = frozenset(runs.executor.model.config.model.eos_token_ids)
        self.executor, self.store, self.cache = runs.executor, memory.store, memory.cache

    def reserve(
        self, plan: StepPlan, states: Mapping[int, RequestState], step: int, make_room: Callable[[], bool]
    ) -> Outcome:
        """Rows and blocks for everything scheduled; what finds none waits after all, and its decision says so.

        `make_room` frees what an idle conversation holds; False when there is none left.
        """
        outcome = Outcome(decisions=list(plan.others))
        try:
            for decision in plan.others:
                self._send_away(outcome, states[decision.request], decision, step)
            for decision in plan.scheduled:
                self._reserve_into(outcome, states[decision.request], decision, step, make_room)
        except BaseException:
            self.undo(outcome)
            raise
        return outcome

    def run(self, outcome: Outcome, held: Held) -> None:
        """The model's runs. `held`: tokens in every taken row."""
        start = perf_counter_ns()
        self.runs.run(outcome.works, held)
        outcome.run_ns = perf_counter_ns() - start

    def choose(self, outcome: Outcome, place_of: PlaceOf) -> None:
        """The next token of every request whose last known token was read. A request's own error stays its own."""
        for work in outcome.works:
            if work.is_last:
                choose_for(work, place_of, self.end_tokens)

    def commit(self, outcome: Outcome) -> None:
        """Make the computed tokens part of the rows and the books; full prompt blocks become shareable."""
        for leave in outcome.leaves:
            self.memory.stay_away(leave)
        for work in outcome.works:
            if work.receipt is None:
                continue
            state, stop = work.state, work.stop
            committed = self.cache.commit(work.receipt, _computed_tokens(work))
            self.store.commit(work.row, committed)
            if state.high_water > work.start:
                state.recomputed += min(stop, state.high_water) - work.start
            state.computed = stop
            state.high_water = max(state.high_water, stop)

    def share(self, outcome: Outcome, followers: Sequence[tuple[Work, RequestState]], place_of: PlaceOf) -> None:
        """Requests that waited for another's reading of the same prompt take it over and choose from the same logits;
        due after the commit. Who finds no row reads for itself later."""
        for work, state in followers:
            if work.logits is None or not self.memory.fork(work.state, state, work.state.computed):
                continue
            decision = Decision(state.request, Verdict.WAIT, Reason.SHARED, 0, (("leader", work.state.request),))
            outcome.decisions = [d for d in outcome.decisions if d.request != state.request] + [decision]
            shared = Work(
                state, decision, None, state.computed, True, True, logits=work.logits, started_ns=work.started_ns
            )
            if state.turn is not None:
                state.turn.cached_prompt_tokens = state.computed - state.turn.start
            choose_for(shared, place_of, self.end_tokens)
            outcome.works.append(shared)

    def undo(self, outcome: Outcome) -> None:
        """Take everything back that this step reserved, drew or took away."""
        for work in reversed(outcome.works):
            if work.stream_state is not None:
                work.state.stream.restore(work.stream_state)
            if work.receipt is not None:
                self.store.release(work.row, work.receipt)
                self.cache.release(work.receipt)
            if work.admitted:
                self.memory.evict(work.state)
        for leave in reversed(outcome.leaves):
            self.memory.come_back(leave)

    # ---- inside

    def _send_away(self, outcome: Outcome, state: RequestState, decision: Decision, step: int) -> None:
        if decision.verdict in (Verdict.PREEMPT, Verdict.REJECT) and state.row is not None:
            outcome.leaves.append(self.memory.send_away(state, step))

    def _reserve_into(
        self, outcome: Outcome, state: RequestState, decision: Decision, step: int, make_room: Callable[[], bool]
    ) -> None:
        while state.row is None and self.memory.table.free == 0 and make_room():
            pass
        work = self._reserve_one(state, decision, step)
        while isinstance(work, Decision) and make_room():
            work = self._reserve_one(state, decision, step)
        if isinstance(work, Decision):
            outcome.decisions.append(work)
            return
        outcome.works.append(work)  # from here on `undo` knows of it
        outcome.decisions.append(decision)
        if work.receipt is not None:
            if outcome.leaves:
                self.memory.save_for(outcome.leaves, work.receipt)
            self.store.reserve(work.row, work.receipt)

    def _reserve_one(self, state: RequestState, decision: Decision, step: int) -> Work | Decision:
        admitted = state.row is None
        if admitted:
            shortage = self.memory.admit(state, step)
            if shortage is not None:
                return _waits(decision, shortage)
        receipt = self.cache.reserve_step(state.request, decision.num_tokens, step)
        if isinstance(receipt, Shortage):
            if admitted:
                self.memory.evict(state)
            return _waits(decision, receipt)
        tokens, start = decision.num_tokens, state.computed
        drafts = state.drafts[: tokens - 1] if decision.verdict is Verdict.DECODE else NO_TOKENS
        is_last = start + tokens >= len(state.sequence)
        return Work(state, decision, receipt, start, admitted, is_last, drafts, started_ns=perf_counter_ns())


def choose_for(work: Work, place_of: PlaceOf, end_tokens: Container[int]) -> None:
    """Choose the work's next token from its logits. A processor of a person may raise anything: that ends this request,
    not the step."""
    turn = work.state.turn
    if work.logits is None or turn is None:
        return
    if turn.chooser.draws:
        work.stream_state = work.state.stream.state
    try:
        work.choice, work.changes = choose(work.logits, work.state.sequence, turn.chooser, place_of(work.state, turn))
        if work.drafts.size:
            _verify(work, turn, place_of, end_tokens)
    except Exception as error:
        if work.stream_state is not None:
            work.state.stream.restore(work.stream_state)
        work.choice, work.error = None, error
        work.more.clear()


def _verify(work: Work, turn: Turn, place_of: PlaceOf, end_tokens: Container[int]) -> None:
    """Choose on after each proposed token that is the one just chosen. The sequence is as before afterwards."""
    sequence, length, generated = work.state.sequence, len(work.state.sequence), turn.generated
    last = work.choice
    try:
        for draft, logits in zip(work.drafts.tolist(), _after_first(work), strict=True):
            if last is None or last.token != draft or draft in end_tokens or last.stop is not None:
                break
            sequence.append(draft)
            turn.generated += 1
            last, changes = choose(logits, sequence, turn.chooser, place_of(work.state, turn))
            work.more.append(Chosen(last, changes, logits))
    finally:
        turn.generated = generated
        if len(sequence) > length:
            sequence.rewind(length)


def _after_first(work: Work) -> NDArray[np.float32]:
    """Logits [k, V] after each proposed token."""
    if work.verified is None:
        raise AssertionError("a run with proposed tokens was verified")
    return work.verified[1:]


def _computed_tokens(work: Work) -> NDArray[np.int32]:
    """The tokens in its row after the run, marked."""
    marked = work.state.marked_tokens()
    if work.verified is None:
        return marked if work.is_last else marked[: work.stop]
    if not work.state.is_marked:
        return np.concatenate([marked, work.drafts[: len(work.more)]])
    accepted = work.drafts[: len(work.more)] | GENERATED_MARK
    computed: NDArray[np.int32] = np.concatenate([marked, accepted])
    computed[work.start :] |= VERIFIED_MARK
    return computed


def _waits(decision: Decision, shortage: Shortage) -> Decision:
    operands = (
        ("needs_blocks", shortage.needs),
        ("free_blocks", shortage.free),
        ("missing_blocks", shortage.needs - shortage.free),
    )
    return Decision(decision.request, Verdict.WAIT, Reason.NO_BLOCKS, 0, operands)
