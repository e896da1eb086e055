"""The commit of a step: the point of no return. Rows and books first, then what became of each request.

Receives a plan and its outcome; when it is through, tokens are part of the answers and events are on their way.
"""

from __future__ import annotations

from time import perf_counter_ns

from genai_lab.engine.conversations import Conversations
from genai_lab.engine.drafts import DraftCounts
from genai_lab.engine.events import EngineErrorCode
from genai_lab.engine.log import EngineLog
from genai_lab.engine.plan import Reason, Status, StepPlan, Verdict
from genai_lab.engine.request import NO_TOKENS, RequestState
from genai_lab.engine.step import StepRunner
from genai_lab.engine.view import leader_of
from genai_lab.engine.work import Outcome, Work
from genai_lab.types import FinishReason


class StepCommit:
    """Commits the steps of one engine.

    Args:
        runner, conversations, log: the engine's.
    """

    def __init__(self, runner: StepRunner, conversations: Conversations, log: EngineLog) -> None:
        self._runner, self._conversations, self._log = runner, conversations, log
        self._states, self._turns = conversations.states, conversations.turns
        self.drafted = DraftCounts()

    def commit(self, plan: StepPlan, outcome: Outcome) -> None:
        """Everything the step did becomes so."""
        self._runner.commit(outcome)
        self._end_what_gave_way(plan)
        self._runner.share(outcome, self._followers(outcome), self._log.place)
        self._take_tokens(outcome)
        self._conversations.step += 1
        self.drafted.passes += bool(outcome.works)
        if not outcome.works and plan.others:
            self._conversations.outbox.blocked()

    def _end_what_gave_way(self, plan: StepPlan) -> None:
        for decision in plan.others:
            state = self._states[decision.request]
            if decision.verdict is Verdict.PREEMPT:
                state.status, state.preemptions, state.drafts = Status.WAITING, state.preemptions + 1, NO_TOKENS
            elif decision.verdict is Verdict.REJECT:
                if state.turn is not None and (decision.words or decision.reason is not Reason.NEVER_FITS):
                    state.turn.stop_reason = decision.in_words()
                self._turns.end(state, FinishReason.FAILED, EngineErrorCode.REQUEST_UNSERVICEABLE)
                self._log.turn(state)

    def _followers(self, outcome: Outcome) -> list[tuple[Work, RequestState]]:
        """Forks that waited for a prompt which this step read to its end, each with the work that read it."""
        read = {w.state.request: w for w in outcome.works if w.decision.verdict is Verdict.PREFILL and w.is_last}
        if not read:
            return []
        leaders = [(state, leader_of(state, self._states)) for state in self._states.values() if state.leader]
        return [(read[leader.request], state) for state, leader in leaders if leader and leader.request in read]

    def _take_tokens(self, outcome: Outcome) -> None:
        now = perf_counter_ns()
        for work in outcome.works:
            state, times = work.state, work.state.times
            state.status = Status.RUNNING
            times.scheduled = times.scheduled or work.started_ns
            if work.error is not None:
                state.failure = work.error
                self._turns.end(state, FinishReason.FAILED, EngineErrorCode.ENGINE_CONTRACT_FAILURE)
            elif work.choice is not None:
                times.first_token = times.first_token or now
                if state.turn is not None:
                    self._log.token(work, state.turn, now)
                self._turns.take_token(state, work.choice)
                if work.verified is not None:
                    self._take_more(work, now)
            state.drafts = NO_TOKENS
            self._log.turn(state)

    def _take_more(self, work: Work, now: int) -> None:
        """The tokens after the first, of a run that read proposed ones; as far as the turn goes on."""
        state, turn = work.state, work.state.turn
        self.drafted.count(work)
        computed = work.stop
        for chosen in work.more:
            if turn is None or turn.finish is not None:
                break
            work.choice, work.changes, work.logits = chosen.choice, chosen.changes, chosen.logits
            self._log.token(work, turn, now)
            self._turns.take_token(state, chosen.choice)
        state.mark_verified(work.start, computed)
        self._runner.memory.rewind(state, len(state.sequence), self._conversations.step)
