"""The recorder: keeps what the live rooms say, within bounds, at a cost of less than a percent of a step in its thread.

On the hot path it appends facts and keeps one row of logits, copied if the next run writes over it. New memory for rows
is made ready by a thread beside it; when as many rows wait as may, the next is digested in its step, at several times
the cost. It keeps the runs and their stages itself; tokens are in `kept_tokens`, an engine's steps in `kept_steps`,
texts in `known_texts`. All becomes columns when somebody reads. What does not fit is dropped oldest first, and counted.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing.columns import changed_columns, stage_columns, token_columns
from genai_lab.tracing.digest import Digest
from genai_lab.tracing.engine_facts import StepFact, TurnFact
from genai_lab.tracing.kept_steps import KeptSteps
from genai_lab.tracing.kept_tokens import KeptTokens
from genai_lab.tracing.known_texts import KnownTexts
from genai_lab.tracing.recording import Recording, RunFacts, empty_tables
from genai_lab.tracing.refill import end_ms, stage_events, token_facts
from genai_lab.tracing.speculation_facts import Origin, RoundFact, round_facts, speculation_columns
from genai_lab.tracing.tracer import Describe, TokenFact

StageEvent = tuple[int, int, str, int, int, int]  # start_ns, end_ns, name, run, token, n
NO_RUN = -1  # in the run column: a stage that belongs to no generator


class Recorder:
    """A bounded recorder (a `Tracer`).

    Args:
        max_tokens: tokens kept; the oldest go first.
        max_stages: stage events kept; the oldest go first.
        logits_bytes: memory for rows of logits that wait to be digested.

    >>> recorder = Recorder()
    >>> recorder.stage(0, -1, "tokenize", 0, 1_000)
    >>> recorder.dropped
    {'tokens': 0, 'stages': 0, 'steps': 0}
    """

    enabled = True

    def __init__(self, max_tokens: int = 8192, max_stages: int = 131_072, logits_bytes: int = 256 << 20) -> None:
        self.origin_ns = time.perf_counter_ns()
        self.recorded_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.runs: list[RunFacts] = []
        self.sources: dict[int, weakref.ref[Any]] = {}
        self.model: dict[str, Any] = {}
        self.on_engine: Callable[[], None] | None = None  # told of every step and turn, in the engine's thread
        self._lock = threading.RLock()
        self._tokens = KeptTokens(max_tokens, logits_bytes, self._lock)
        self._steps = KeptSteps(max_stages)
        self._texts = KnownTexts()
        self._stages: deque[StageEvent] = deque(maxlen=max_stages)
        self._stage_count = 0
        self._orphans: list[StageEvent] = []  # stages before the run they belong to
        self._rounds: dict[tuple[int, int], RoundFact] = {}
        self._round_count = 0
        self._question = ""
        self._last = (NO_RUN, NO_RUN)

    @classmethod
    def resumed(cls, recording: Recording) -> Self:
        """A recorder that holds what `recording` holds and goes on; its clock goes on where the recording ended.

        Rows that the recording had dropped stay dropped, and are still counted. Steps of an engine are not taken over.
        """
        dropped = recording.dropped
        recorder = cls(max_tokens=max(8192, 2 * len(recording.tokens["token"])) + dropped["tokens"])
        recorder.origin_ns = time.perf_counter_ns() - round(end_ms(recording) * 1e6)
        recorder.recorded_at = str(recording.origin.get("recorded_at", recorder.recorded_at))
        closed = {"running": "done"}  # nobody is writing it any more
        recorder.runs = [replace(run, status=closed.get(run.status, run.status)) for run in recording.runs]
        recorder.model = dict(recording.model)
        recorder._texts.take_over(recording)
        recorder._stages.extend(stage_events(recording, recorder.origin_ns))
        for round_fact in round_facts(recording.tables, recorder.origin_ns):
            recorder.speculation(round_fact)
        for fact, digest in token_facts(recording, recorder.origin_ns):
            recorder._tokens.add(fact, digest)
        recorder._stage_count = len(recorder._stages) + dropped["stages"]
        recorder._tokens.count += dropped["tokens"]
        return recorder

    # ---- what the live rooms call -------------------------------------------------------------------------------

    def question(self, text: str) -> None:
        """Remember the last user message; the next run that opens is its answer."""
        self._question = text

    def open_run(
        self,
        *,
        prompt: NDArray[np.int32],
        settings: Mapping[str, Any],
        model: Mapping[str, Any],
        describe: Describe,
        parent: int | None = None,
        fork: int | None = None,
        forced: int | None = None,
        cached_tokens: int = 0,
        source: object = None,
    ) -> int:
        """Begin one answer; returns its run id. `source` (held weakly) is whoever can continue it."""
        with self._lock:
            run = len(self.runs)
            self.model = dict(model)
            self._texts.describe = describe
            question = self._question or ("" if parent is None else self.runs[parent].question)
            self._question = ""
            self.runs.append(
                RunFacts(
                    run=run,
                    prompt=prompt.copy(),
                    settings=dict(settings),
                    start_ms=self._ms(self._orphans[0][0] if self._orphans else time.perf_counter_ns()),
                    parent=parent,
                    fork=fork,
                    forced=forced,
                    cached_tokens=cached_tokens,
                    question=question,
                )
            )
            if source is not None:
                self.sources[run] = weakref.ref(source)
            self._adopt(run)
            if forced is not None and parent is not None and fork is not None:
                self._add_forced(run, int(prompt.size), forced, parent, fork)
            return run

    def extend_prompt(self, run: int, tokens: NDArray[np.int32]) -> None:
        """More prompt was appended before the run's first token."""
        facts = self.runs[run]
        facts.prompt = np.concatenate([facts.prompt, tokens])
        self._adopt(run)

    def close_run(self, run: int, finish: str, error: str | None = None) -> None:
        """The answer ended: `finish` is eos, length, stopped, failed or appended."""
        facts = self.runs[run]
        facts.finish, facts.error = finish, error
        facts.status = {"stopped": "stopped", "failed": "failed"}.get(finish, "done")

    def reopen_run(self, run: int) -> None:
        """An answer that had been stopped goes on."""
        facts = self.runs[run]
        facts.finish, facts.error, facts.status = None, None, "running"

    def stage(self, run: int, token: int, name: str, start_ns: int, end_ns: int, n: int = 1) -> None:
        """One measured stage. `run` NO_RUN: it belongs to the run that opens next (chat template, tokenize)."""
        if run == NO_RUN:
            if name == "detokenize" and self._last[0] != NO_RUN:
                run, token = self._last
            else:
                self._orphans.append((start_ns, end_ns, name, run, token, n))
                return
        self._stages.append((start_ns, end_ns, name, run, token, n))
        self._stage_count += 1

    def token(self, fact: TokenFact, logits: NDArray[np.float32] | None, *, owned: bool = False) -> None:
        """One generated token with the raw logits [V] it was chosen from; None: the model was not asked, because a
        grammar forced it. `owned`: nobody writes over them; else the row is copied."""
        started = time.perf_counter_ns()
        self._last = (fact.run, fact.index)
        if logits is None:
            self._tokens.add(fact, Digest.of_one(fact.token))
            return
        self._tokens.add_row(fact, logits, owned=owned)
        self._stages.append((started, time.perf_counter_ns(), "recorder", fact.run, fact.index, 1))
        self._stage_count += 1

    def claim_engine(self, engine: object) -> bool:
        """Whether this engine, and no other, is recorded here: requests and steps are counted per engine."""
        return self._steps.claim(engine)

    def engine_step(self, fact: StepFact) -> None:
        """One committed step of an engine."""
        self._steps.add_step(fact)
        if self.on_engine is not None:
            self.on_engine()

    def engine_turn(self, fact: TurnFact) -> None:
        """A turn as far as it has come; a later fact of the same turn replaces it."""
        self._steps.add_turn(fact)
        if self.on_engine is not None:
            self.on_engine()

    def speculation(self, fact: RoundFact) -> None:
        """A round as far as it has come; a later fact of the same round replaces it. Rounds are as many as tokens."""
        self._rounds[(fact.run, fact.round)] = fact
        self._round_count += 1
        if len(self._rounds) > self.max_tokens:
            del self._rounds[next(iter(self._rounds))]

    # ---- what readers call --------------------------------------------------------------------------------------

    @property
    def max_tokens(self) -> int:
        """Tokens kept at most."""
        return self._tokens.most

    @property
    def logits_bytes(self) -> int:
        """Memory for rows of logits that wait to be digested."""
        return self._tokens.logits_bytes

    @property
    def dropped(self) -> dict[str, int]:
        """Rows that did not fit: the oldest tokens and stage events. (A row is appended before it is counted.)"""
        return {
            "tokens": self._tokens.dropped,
            "stages": max(0, self._stage_count - len(self._stages)),
            "steps": self._steps.dropped,
        }

    @property
    def counts(self) -> dict[str, int]:
        """Rows seen so far, dropped ones included."""
        return {
            "tokens": self._tokens.count,
            "stages": self._stage_count,
            "steps": self._steps.count,
            "turns": self._steps.turn_count,
            "rounds": self._round_count,
        }

    @property
    def open_turns(self) -> frozenset[int]:
        """Runs of an engine's turns that are under way."""
        return self._steps.open_turns

    def source(self, run: int) -> Any:
        """Whoever made this run, if it still lives."""
        ref = self.sources.get(run)
        return ref() if ref is not None else None

    def settle(self) -> None:
        """Digest every row of logits that still waits."""
        self._tokens.settle()

    def snapshot(
        self, first_token: int = 0, first_stage: int = 0, first_step: int = 0, *, owned_only: bool = False
    ) -> Recording:
        """Everything from the given absolute rows on, and every turn. `owned_only` leaves out stages whose run is not
        known yet."""
        with self._lock:
            self.settle()
            stages, stage_base = list(self._stages), self.dropped["stages"]
            first_row, entries = self._tokens.since(first_token)
            stages = stages[max(0, first_stage - stage_base) :]
            if not owned_only:
                stages = stages + self._orphans
            tables = empty_tables()
            changed = changed_columns(entries, first_row)
            tables["tokens"] = token_columns(entries, self.origin_ns)
            tables["stages"], stage_names = stage_columns(stages, self.origin_ns)
            tables["changed"], tables["seen"], processor_names = changed
            engine, words = self._steps.columns(first_step, self.origin_ns)
            tables.update(engine)
            if not owned_only:  # pictures get their news without: the tokens say what they show of it
                tables.update(speculation_columns(list(self._rounds.values()), self.origin_ns))
            tokens = tables["tokens"]
            mentioned = (tokens["top_ids"], tokens["token"], tables["proposals"]["token"], tables["rounds"]["token"])
            texts = self._texts.of(self.runs, *mentioned)
            return Recording(
                tables=tables,
                runs=list(self.runs) if first_token or owned_only else self._texts.answers(self.runs, tokens),
                texts=texts,
                raw=self._texts.raw_of(texts),
                stage_names=stage_names,
                processor_names=processor_names,
                model=dict(self.model),
                origin={"recorded_at": self.recorded_at},
                words=words,
                dropped=self.dropped,
            )

    # ---- inside -------------------------------------------------------------------------------------------------

    def _ms(self, ns: int) -> float:
        return (ns - self.origin_ns) / 1e6

    def _adopt(self, run: int) -> None:
        for start, end, name, _run, token, n in self._orphans:
            self.stage(run, token, name, start, end, n)
        self._orphans.clear()

    def _add_forced(self, run: int, position: int, forced: int, parent: int, fork: int) -> None:
        """The token put there by hand is the branch's first; its distribution is that of the token it replaces."""
        self.settle()
        replaced = [each for each in self._tokens.of_run(parent) if each[0].index == fork]
        if not replaced:
            return  # dropped from the ring: the branch begins without it
        fact, digest = replaced[0]
        now = time.perf_counter_ns()
        mine = replace(
            fact,
            run=run,
            index=0,
            position=position,
            token=forced,
            start_ns=now,
            end_ns=now,
            final_prob=float("nan"),
            origin=Origin.ALONE,
        )
        self._tokens.add(mine, digest.for_token(forced))
        self._last = (run, 0)
