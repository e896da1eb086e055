"""The recorder: keeps what the live rooms say, within bounds, at a cost that a decode step does not feel.

On the hot path it appends tuples and copies one row of logits. Digesting a row (see `digest`) waits until somebody
reads, or until the kept rows pass their memory budget. What does not fit is dropped oldest first, and counted.
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

from genai_lab.tracing.changes import among
from genai_lab.tracing.columns import changed_columns, stage_columns, token_columns
from genai_lab.tracing.digest import Digest, Digester
from genai_lab.tracing.engine_columns import engine_columns
from genai_lab.tracing.engine_facts import PoolFact, StepFact, TurnFact
from genai_lab.tracing.recording import Recording, RunFacts, empty_tables
from genai_lab.tracing.refill import end_ms, stage_events, token_facts
from genai_lab.tracing.row_pool import RowPool
from genai_lab.tracing.speculation_facts import Origin, RoundFact, round_facts, speculation_columns
from genai_lab.tracing.texts import answer_rows
from genai_lab.tracing.tracer import Decodes, Describe, TokenFact, TokenText

StageEvent = tuple[int, int, str, int, int, int]  # start_ns, end_ns, name, run, token, n
NO_RUN = -1  # in the run column: a stage that belongs to no generator


class Entry:
    """One token: its fact, and its logits until they are digested."""

    __slots__ = ("borrowed", "digest", "fact", "row")

    def __init__(self, fact: TokenFact, row: NDArray[np.float32] | None = None, *, borrowed: bool = False) -> None:
        self.fact = fact
        self.row = row
        self.borrowed = borrowed  # from the pool of rows, which wants it back
        self.digest: Digest | None = None


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
        self.logits_bytes = logits_bytes
        self.runs: list[RunFacts] = []
        self.sources: dict[int, weakref.ref[Any]] = {}
        self.model: dict[str, Any] = {}
        self._describe: Describe | None = None
        self._tokens: deque[Entry] = deque(maxlen=max_tokens)
        self._stages: deque[StageEvent] = deque(maxlen=max_stages)
        self._token_count = 0
        self._stage_count = 0
        self._steps: deque[StepFact] = deque(maxlen=max_stages)
        self._step_count = 0
        self._engine: int | None = None  # id of the engine that is recorded
        self._turn_count = 0
        self._rounds: dict[tuple[int, int], RoundFact] = {}
        self._round_count = 0
        self._turns: dict[tuple[int, int], TurnFact] = {}
        self._open_turns: dict[tuple[int, int], int] = {}
        self._past_pool: dict[int, PoolFact] = {}  # the last event of each block in steps that were dropped
        self.on_engine: Callable[[], None] | None = None  # told of every step and turn, in the engine's thread
        self._orphans: list[StageEvent] = []  # stages before the run they belong to
        self._question = ""
        self._waiting: deque[Entry] = deque()  # entries that still hold their logits
        self._rows = RowPool()
        self._last = (NO_RUN, NO_RUN)
        self._digester: Digester | None = None
        self._lock = threading.RLock()
        self._texts: dict[int, tuple[str, bool]] = {}
        self._prompt_ids: set[int] = set()
        self._read_prompts: dict[int, int] = {}  # run -> tokens of its prompt that are among those ids
        self._raw: dict[int, bytes] = {}

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
        recorder.model, recorder._texts = dict(recording.model), dict(recording.texts)
        recorder._raw = dict(recording.raw)
        recorder._stages.extend(stage_events(recording, recorder.origin_ns))
        for round_fact in round_facts(recording.tables, recorder.origin_ns):
            recorder.speculation(round_fact)
        for fact, digest in token_facts(recording, recorder.origin_ns):
            entry = Entry(fact)
            entry.digest = digest
            recorder._tokens.append(entry)
        recorder._stage_count = len(recorder._stages) + dropped["stages"]
        recorder._token_count = len(recorder._tokens) + dropped["tokens"]
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
            self._describe = describe
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
        """One generated token with the raw logits [V] it was chosen from; None: the model was not asked. `owned`:
        nobody writes over them; else the row is copied (6 to 40 us for 49,152 floats)."""
        started = time.perf_counter_ns()
        if logits is None:
            self._add_unasked(fact)
            return
        row = logits
        if not owned:
            row = self._rows.take(logits.size)
            np.multiply(logits, np.float32(1.0), out=row)  # several times faster than a memcpy on some machines
        entry = Entry(fact, row, borrowed=not owned)
        self._tokens.append(entry)
        self._token_count += 1
        self._waiting.append(entry)
        self._last = (fact.run, fact.index)
        if len(self._waiting) * row.nbytes > self.logits_bytes:
            with self._lock:
                self._digest_oldest()
        self.stage(fact.run, fact.index, "recorder", started, time.perf_counter_ns())

    def claim_engine(self, engine: object) -> bool:
        """Whether this engine, and no other, is recorded here: requests and steps are counted per engine."""
        self._engine = self._engine or id(engine)
        return self._engine == id(engine)

    def engine_step(self, fact: StepFact) -> None:
        """One committed step of an engine."""
        if len(self._steps) == self._steps.maxlen:
            self._past_pool.update({event.block: event for event in self._steps[0].pool})
        self._steps.append(fact)
        self._step_count += 1
        if self.on_engine is not None:
            self.on_engine()

    def engine_turn(self, fact: TurnFact) -> None:
        """A turn as far as it has come; a later fact of the same turn replaces it."""
        self._turns[(fact.request, fact.turn)] = fact
        self._turn_count += 1
        if fact.finish:
            self._open_turns.pop((fact.request, fact.turn), None)
        else:
            self._open_turns[(fact.request, fact.turn)] = fact.run
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
        return self._tokens.maxlen or 0

    @property
    def dropped(self) -> dict[str, int]:
        """Rows that did not fit: the oldest tokens and stage events. (A row is appended before it is counted.)"""
        return {
            "tokens": max(0, self._token_count - len(self._tokens)),
            "stages": max(0, self._stage_count - len(self._stages)),
            "steps": max(0, self._step_count - len(self._steps)),
        }

    @property
    def counts(self) -> dict[str, int]:
        """Rows seen so far, dropped ones included."""
        return {
            "tokens": self._token_count,
            "stages": self._stage_count,
            "steps": self._step_count,
            "turns": self._turn_count,
            "rounds": self._round_count,
        }

    @property
    def open_turns(self) -> frozenset[int]:
        """Runs of an engine's turns that are under way."""
        return frozenset(list(self._open_turns.values()))

    def source(self, run: int) -> Any:
        """Whoever made this run, if it still lives."""
        ref = self.sources.get(run)
        return ref() if ref is not None else None

    def settle(self) -> None:
        """Digest every row of logits that still waits."""
        with self._lock:
            while self._waiting:
                self._digest_oldest()

    def snapshot(
        self, first_token: int = 0, first_stage: int = 0, first_step: int = 0, *, owned_only: bool = False
    ) -> Recording:
        """Everything from the given absolute rows on, and every turn. `owned_only` leaves out stages whose run is not
        known yet."""
        with self._lock:
            self.settle()
            stages, stage_base = list(self._stages), self.dropped["stages"]
            entries, token_base = list(self._tokens), self.dropped["tokens"]
            entries = [e for e in entries[max(0, first_token - token_base) :] if e.digest is not None]
            stages = stages[max(0, first_stage - stage_base) :]
            if not owned_only:
                stages = stages + self._orphans
            tables = empty_tables()
            changed = changed_columns(entries, max(first_token, token_base))
            tables["tokens"] = token_columns(entries, self.origin_ns)
            tables["stages"], stage_names = stage_columns(stages, self.origin_ns)
            tables["changed"], tables["seen"], processor_names = changed
            turns, steps = list(self._turns.values()), list(self._steps)
            begin = max(0, first_step - self.dropped["steps"])
            before = steps[begin - 1] if begin else None
            if not begin and steps and self._past_pool:
                steps[0] = replace(steps[0], pool=(*self._past_pool.values(), *steps[0].pool))
            engine, words = engine_columns(steps[begin:], turns, self.origin_ns, before)
            tables.update(engine)
            if not owned_only:  # pictures get their news without: the tokens say what they show of it
                tables.update(speculation_columns(list(self._rounds.values()), self.origin_ns))
            texts = self._describe_tokens(tables["tokens"], tables["proposals"]["token"], tables["rounds"]["token"])
            return Recording(
                tables=tables,
                runs=list(self.runs) if first_token or owned_only else self._with_text(tables["tokens"]),
                texts=texts,
                raw={i: self._raw[i] for i in texts if i in self._raw},
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
        replaced = [e for e in self._tokens if (e.fact.run, e.fact.index) == (parent, fork) and e.digest is not None]
        if not replaced:
            return  # dropped from the ring: the branch begins without it
        source = replaced[0]
        now = time.perf_counter_ns()
        entry = Entry(
            replace(
                source.fact,
                run=run,
                index=0,
                position=position,
                token=forced,
                start_ns=now,
                end_ns=now,
                final_prob=float("nan"),
                origin=Origin.ALONE,
            )
        )
        entry.digest = source.digest.for_token(forced) if source.digest is not None else None
        self._tokens.append(entry)
        self._token_count += 1
        self._last = (run, 0)

    def _add_unasked(self, fact: TokenFact) -> None:
        """A token that a grammar forced."""
        entry = Entry(fact)
        entry.digest = Digest.of_one(fact.token)
        self._tokens.append(entry)
        self._token_count += 1
        self._last = (fact.run, fact.index)

    def _digest_oldest(self) -> None:
        try:
            entry = self._waiting.popleft()
        except IndexError:
            return
        row = entry.row
        if row is not None:
            if self._digester is None or self._digester.vocab_size != row.size:
                self._digester = Digester(row.size)
            fact = entry.fact
            entry.digest = self._digester.digest(row, fact.token, fact.seen, fact.changes)
            if fact.changes:  # of a whole vocabulary only what is shown is kept
                shown = np.unique(np.append(entry.digest.top_ids, np.int32(fact.token)))
                entry.fact = replace(fact, changes=tuple(among(change, shown) for change in fact.changes))
            entry.row = None
            if entry.borrowed:
                self._rows.give_back(row)

    def _describe_tokens(
        self, tokens: Mapping[str, NDArray[Any]], *others: NDArray[np.uint32]
    ) -> dict[int, tuple[str, bool]]:
        """Texts of every id that the tables, the runs and `others` mention; asked once per id."""
        ids = {i for column in (tokens["top_ids"], tokens["token"], *others) for i in np.unique(column).tolist()}
        for facts in self.runs:
            if self._read_prompts.get(facts.run) != facts.prompt.size:  # a live picture asks 30 times a second
                self._read_prompts[facts.run] = facts.prompt.size
                self._prompt_ids.update(np.unique(facts.prompt).tolist())
            if facts.forced is not None:
                ids.add(facts.forced)
        ids |= self._prompt_ids
        missing = sorted(ids - self._texts.keys())
        if missing and self._describe is not None:
            for token, told in zip(missing, self._describe(missing), strict=True):
                text = TokenText(*told)
                self._texts[token] = (text.text, text.special)
                if text.raw is not None:
                    self._raw[token] = text.raw
        return {i: self._texts[i] for i in sorted(ids) if i in self._texts}

    def _with_text(self, tokens: Mapping[str, NDArray[Any]]) -> list[RunFacts]:
        """The runs, each with the text of its answer."""
        describe = self._describe
        if not isinstance(describe, Decodes):
            return list(self.runs)
        rows = [answer_rows(tokens, self.runs, run.run) for run in self.runs]
        return [
            replace(run, text=describe.decode(tokens["token"][mine].tolist()))
            for run, mine in zip(self.runs, rows, strict=True)
        ]
