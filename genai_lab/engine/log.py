"""What the engine tells whoever records: a run per turn, a fact per step, a fact per turn as it goes on."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import Any

from genai_lab.decoding import Place
from genai_lab.engine.plan import QueueView
from genai_lab.engine.pool_log import PoolWatch, admission_fact
from genai_lab.engine.request import RequestState, Turn
from genai_lab.engine.work import Outcome, Work
from genai_lab.kvcache import PagedCache
from genai_lab.models import Model
from genai_lab.tracing import NULL, StepFact, TokenFact, Tracer, TurnFact
from genai_lab.tracing.engine_facts import GONE, DecisionFact, HolderFact
from genai_lab.types import FinishReason

_FINISH = {
    FinishReason.EOS: "eos",
    FinishReason.STOP_STRING: "stop_string",
    FinishReason.MAX_GENERATED_TOKENS: "length",
    FinishReason.MAX_SESSION_TOKENS: "length",
    FinishReason.CANCELLED: "stopped",
    FinishReason.FAILED: "failed",
    FinishReason.STOPPING_CRITERION: "criterion",
}


class EngineLog:
    """The engine's place in the trace that watches it. Runs belong to one tracer; another one gets runs of its own."""

    def __init__(self, model: Model, cache: PagedCache) -> None:
        self._model, self._cache = model, cache
        self._tracer: Tracer = NULL
        self._refused: Tracer | None = None  # follows another engine
        self._runs: dict[tuple[int, int], tuple[int, int]] = {}  # (request, turn) -> run, tokens before it
        self._tables: dict[int, tuple[int, ...]] = {}
        self._pool = PoolWatch(cache)

    def follow(self, tracer: Tracer) -> None:
        """From now on, tell `tracer`."""
        if tracer is self._refused or tracer is self._tracer:
            return
        if not tracer.claim_engine(self):
            self._refused, tracer = tracer, NULL
            warnings.warn(
                "this recording follows another engine already, and one at most; record each engine in a block of its "
                "own (with genai_lab.record() as trace: ...)",
                stacklevel=5,
            )
        self._tracer, self._runs, self._tables = tracer, {}, {}
        self._pool = PoolWatch(self._cache)

    @property
    def enabled(self) -> bool:
        """Whether anybody records."""
        return self._tracer.enabled

    def place(self, state: RequestState, turn: Turn) -> Place:
        """Where the next token of a turn belongs."""
        if not self._tracer.enabled:
            return Place(NULL, 0, turn.generated)
        run, before = self._run(state, turn)
        return Place(self._tracer, run, turn.generated - before)

    def token(self, work: Work, turn: Turn, end_ns: int) -> None:
        """A token was committed (an end token is told too, though it is not part of the text)."""
        if not self._tracer.enabled or work.choice is None or work.logits is None:
            return
        run, before = self._run(work.state, turn)
        fact = TokenFact(
            run=run,
            index=turn.generated - before,
            position=len(work.state.sequence),
            token=work.choice.token,
            start_ns=work.started_ns,
            end_ns=end_ns,
            final_prob=work.choice.probability,
            kept=work.choice.kept,
            changes=work.changes,
            seen=work.state.sequence.distinct,
        )
        self._tracer.token(fact, work.logits, owned=work.owns_logits)

    def turn(self, state: RequestState) -> None:
        """A turn began, was scheduled, got a token or ended."""
        turn = state.turn
        if not self._tracer.enabled or turn is None:
            return
        run, _ = self._run(state, turn)
        if turn.finish is not None:
            self._tracer.close_run(run, _FINISH[turn.finish])
            self._runs.pop((state.request, turn.turn_id), None)  # its last word: a long recording does not grow here
        self._tracer.engine_turn(
            TurnFact(
                request=state.request,
                turn=turn.turn_id,
                run=run,
                status=state.status.value,
                finish="" if turn.finish is None else turn.finish.name.lower(),
                prompt_tokens=turn.prompt_tokens,
                generated_tokens=turn.generated,
                cached_prompt_tokens=turn.cached_prompt_tokens,
                preemptions=state.preemptions,
                recomputed_tokens=state.recomputed,
                arrived_ns=state.times.arrived,
                scheduled_ns=state.times.scheduled,
                first_token_ns=state.times.first_token,
                finished_ns=state.times.finished,
            )
        )

    def step(self, view: QueueView, outcome: Outcome, holders: list[RequestState], start_ns: int, end_ns: int) -> None:
        """A step was committed."""
        if not self._tracer.enabled:
            return
        usage = self._cache.usage()
        decisions = tuple(
            DecisionFact(d.request, d.verdict.value, d.reason.value, d.num_tokens, d.template, d.all_operands())
            for d in outcome.decisions
        )
        facts = tuple(self._holder(state) for state in holders)
        tables = {holder.request: holder.block_table for holder in facts}
        pool = self._pool.changes(self._tables, tables)
        self._tables = tables
        self._tracer.engine_step(
            StepFact(
                step=view.step,
                start_ns=start_ns,
                end_ns=end_ns,
                run_ns=outcome.run_ns,
                budget=view.budget,
                num_waiting=len(view.waiting) + view.unseen,
                blocks_used=usage.blocks_used,
                blocks_cached=usage.blocks_cached,
                blocks_free=usage.blocks_free,
                block_size=view.block_size,
                decisions=decisions,
                holders=facts,
                admissions=tuple(
                    admission_fact(work.state.request, work.start, work.state.miss)
                    for work in outcome.works
                    if work.admitted
                ),
                pool=pool,
            )
        )

    def _holder(self, state: RequestState) -> HolderFact:
        table = (GONE,) * self._cache.first_block(state.request) + self._cache.block_table(state.request)
        known = self._tables.get(state.request)
        if known == table:
            table = known  # one tuple for as long as nothing changes
        return HolderFact(state.request, state.row if state.row is not None else 0, state.computed, table)

    def _run(self, state: RequestState, turn: Turn) -> tuple[int, int]:
        key = (state.request, turn.turn_id)
        if key not in self._runs:
            chooser = turn.chooser
            settings: dict[str, Any] = asdict(turn.settings.search)
            settings |= {"mode": chooser.mode.value, "mode_reason": "", "request": state.request}
            settings |= turn.settings.hooks.describe()
            run = self._tracer.open_run(
                prompt=state.sequence.tokens,
                settings=settings,
                model=self._model.describe(),
                describe=self._model.token_texts,
                cached_tokens=turn.cached_prompt_tokens,
            )
            self._runs[key] = (run, turn.generated)
        return self._runs[key]
