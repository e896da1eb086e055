"""Recordings of an engine made without a model: a real block cache, and made-up steps that are told to a Recorder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from genai_lab.engine.pool_log import PoolWatch, admission_fact
from genai_lab.kvcache import Allocation, CacheSnapshot, PagedCache, Receipt
from genai_lab.tracing import Recorder, StepFact, TurnFact
from genai_lab.tracing.engine_facts import DecisionFact, HolderFact
from tests.widgets.recorded import describe, model, settings

MILLISECOND = 1_000_000


@dataclass
class Conversation:
    """One request: its prompt, and how many tokens it will say."""

    request: int
    prompt: np.ndarray
    answer: int
    arrives: int = 0
    said: int = 0
    done: bool = False
    run: int = -1

    @property
    def tokens(self) -> np.ndarray:
        """All known so far, [n]."""
        return np.concatenate([self.prompt, np.arange(self.said, dtype=np.int32) + 1000 * (self.request + 1)])


@dataclass
class ScriptedEngine:
    """Serves conversations by the simplest rule there is: whoever fits. It never preempts.

    Args:
        recorder: told everything.
        blocks, block_size: the pool.
        rows: conversations at a time.
    """

    recorder: Recorder
    blocks: int = 24
    block_size: int = 4
    rows: int = 3
    budget: int = 32
    step: int = 0
    conversations: list[Conversation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = PagedCache(self.blocks, self.block_size)
        self._watch = PoolWatch(self.cache)
        self._tables: dict[int, tuple[int, ...]] = {}
        self.snapshots: list[CacheSnapshot] = []  # the cache itself, at the moment that each step was told of

    def ask(self, prompt: Sequence[int], answer: int) -> Conversation:
        """One conversation more."""
        one = Conversation(len(self.conversations), np.array(prompt, np.int32), answer, self.step)
        self.conversations.append(one)
        return one

    def run(self, steps: int = 1 << 30) -> None:
        """Steps until nothing is left to do, `steps` at most."""
        while steps and any(not one.done for one in self.conversations):
            self._one_step()
            steps -= 1

    def _one_step(self) -> None:
        decisions, admissions = [], []
        for one in self.conversations:
            if one.done:
                continue
            if one.request not in self.cache.requests:
                taken = len(self.cache.requests) < self.rows and self.cache.can_allocate(one.tokens).fits
                got = self.cache.allocate(one.request, one.tokens[:-1], step=self.step) if taken else None
                if not isinstance(got, Allocation):
                    operands = (("num_tokens", 0), ("rows", self.rows))
                    decisions.append(
                        DecisionFact(one.request, "wait", "no_row", 0, "It waits: all {rows} are taken.", operands)
                    )
                    continue
                one.run = self._open(one, got.num_cached_tokens)
                admissions.append(admission_fact(one.request, got.num_cached_tokens, got.match.miss))
            decisions.append(self._serve(one))
        self._tell(decisions, admissions)
        for one in self.conversations:
            if one.said >= one.answer and not one.done:
                one.done = True
                self._turn(one, "max_generated_tokens")
                self.cache.free(one.request, self.step)
        self.step += 1

    def _serve(self, one: Conversation) -> DecisionFact:
        new = one.tokens.size - self.cache.num_tokens(one.request)
        receipt = self.cache.reserve_step(one.request, new, self.step)
        assert isinstance(receipt, Receipt), "the script's pool is too small for its conversations"
        self.cache.commit(receipt, one.tokens)
        one.said += 1
        self._turn(one, "")
        return DecisionFact(
            one.request,
            "decode" if new == 1 else "prefill",
            "fits",
            new,
            "{num_tokens} tokens are read.",
            (("num_tokens", new),),
        )

    def _tell(self, decisions: list[DecisionFact], admissions: list) -> None:
        tables = {request: self.cache.block_table(request) for request in self.cache.requests}
        tables = {r: t if self._tables.get(r) != t else self._tables[r] for r, t in tables.items()}
        pool = self._watch.changes(self._tables, tables)
        self._tables, usage = tables, self.cache.usage()
        self.snapshots.append(self.cache.snapshot())
        start = self.recorder.origin_ns + 10 * MILLISECOND * self.step
        self.recorder.engine_step(
            StepFact(
                step=self.step,
                start_ns=start,
                end_ns=start + 9 * MILLISECOND,
                run_ns=8 * MILLISECOND,
                budget=self.budget,
                num_waiting=sum(d.verdict == "wait" for d in decisions),
                blocks_used=usage.blocks_used,
                blocks_cached=usage.blocks_cached,
                blocks_free=usage.blocks_free,
                block_size=self.block_size,
                decisions=tuple(decisions),
                holders=tuple(
                    HolderFact(request, row, self.cache.num_tokens(request), table)
                    for row, (request, table) in enumerate(tables.items())
                ),
                admissions=tuple(admissions),
                pool=pool,
            )
        )

    def _open(self, one: Conversation, cached: int) -> int:
        return self.recorder.open_run(
            prompt=one.prompt, settings=settings(), model=model(500), describe=describe, cached_tokens=cached
        )

    def _turn(self, one: Conversation, finish: str) -> None:
        now = self.recorder.origin_ns + 10 * MILLISECOND * self.step + 9 * MILLISECOND
        self.recorder.engine_turn(
            TurnFact(
                request=one.request,
                turn=1,
                run=one.run,
                status="idle" if finish else "running",
                finish=finish,
                prompt_tokens=one.prompt.size,
                generated_tokens=one.said,
                cached_prompt_tokens=0,
                preemptions=0,
                recomputed_tokens=0,
                arrived_ns=self.recorder.origin_ns + 10 * MILLISECOND * one.arrives + 1,
                scheduled_ns=now,
                first_token_ns=now,
                finished_ns=now if finish else 0,
            )
        )
        if finish:
            self.recorder.close_run(one.run, "length")
