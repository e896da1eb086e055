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
from genai_lab.tracing.engine_facts import GONE, HolderFact
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
        run, before = self._runs.get((state.request, turn.turn_id)) or self._open(state, turn)
        return Place(self._tracer, run, turn.generated - before)

    def token(self, work: Work, turn: Turn, end_ns: int) -> None:
        """A token was committed (an end token is told too, though it is not part of the text)."""
        if not self._tracer.enabled or work.choice is None or work.logits is None:
            return
        run, before = self._runs.get((work.state.request, turn.turn_id)) or self._open(work.state, turn)
        choice, sequence = work.choice, work.state.sequence
        fact = TokenFact(  # in the order of its fields: names would cost as much as the rest
            run,
            turn.generated - before,
            len(sequence),
            choice.token,
            work.started_ns,
            end_ns,
            choice.probability,
            choice.kept,
            work.changes,
            sequence.distinct,
        )
        self._tracer.token(fact, work.logits, owned=work.owns_logits)

    def turn(self, state: RequestState) -> None:
        """A turn began, was scheduled, got a token or ended."""
        turn = state.turn
        if not self._tracer.enabled or turn is None:
            return
        run, _ = self._runs.get((state.request, turn.turn_id)) or self._open(state, turn)
        if turn.finish is not None:
            self._tracer.close_run(run, _FINISH[turn.finish])
            self._runs.pop((state.request, turn.turn_id), None)  # its last word: a long recording does not grow here
        times = state.times
        self._tracer.engine_turn(
            TurnFact(  # in the order of its fields, see `token`
                state.request,
                turn.turn_id,
                run,
                state.status,
                "" if turn.finish is None else turn.finish.name.lower(),
                turn.prompt_tokens,
                turn.generated,
                turn.cached_prompt_tokens,
                state.preemptions,
                state.recomputed,
                times.arrived,
                times.scheduled,
                times.first_token,
                times.finished,
            )
        )

    def step(self, view: QueueView, outcome: Outcome, holders: list[RequestState], start_ns: int, end_ns: int) -> None:
        """A recorded step was committed. Its decisions are kept as they are: they never change, and are put into words
        when somebody reads."""
        blocks = self._cache.pool
        tables = {state.request: self._table(state.request) for state in holders}
        changes = self._pool.changes(self._tables, tables)
        self._tables = tables
        self._tracer.engine_step(
            StepFact(
                view.step,
                start_ns,
                end_ns,
                outcome.run_ns,
                view.budget,
                len(view.waiting) + view.unseen,
                blocks.num_blocks - blocks.num_free,
                blocks.num_cached_free,
                blocks.num_free - blocks.num_cached_free,
                view.block_size,
                tuple(outcome.decisions),
                tuple([HolderFact(s.request, s.row or 0, s.computed, tables[s.request]) for s in holders]),
                tuple([admission_fact(w.state.request, w.start, w.state.miss) for w in outcome.works if w.admitted]),
                changes,
            )
        )

    def _table(self, request: int) -> tuple[int, ...]:
        table, known = self._cache.block_table(request), self._tables.get(request)
        if self._cache.window is not None:
            table = (GONE,) * self._cache.first_block(request) + table
        return table if known is None or known != table else known  # one tuple for as long as nothing changes

    def _open(self, state: RequestState, turn: Turn) -> tuple[int, int]:
        settings: dict[str, Any] = asdict(turn.settings.search)
        settings |= {"mode": turn.chooser.mode.value, "mode_reason": "", "request": state.request}
        settings |= turn.settings.hooks.describe()
        run = self._tracer.open_run(
            prompt=state.sequence.tokens,
            settings=settings,
            model=self._model.describe(),
            describe=self._model.token_texts,
            cached_tokens=turn.cached_prompt_tokens,
        )
        opened = self._runs[state.request, turn.turn_id] = run, turn.generated
        return opened
