"""The model runs of a step: which rows are decoded together, which prompts are read in chunks.

Receives works with rows and tokens, leaves logits in them. It keeps the numbers right: where this processor gives a row
other bits in a batch than alone, rows run one by one (`exact`), or never alone, so that an answer does not depend on
who else is answered at the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from genai_lab.engine.gaps import Gaps
from genai_lab.engine.plan import Status, Verdict
from genai_lab.engine.request import RequestState
from genai_lab.engine.rows import RowTable, decode_ranges, wasted_rows, with_company
from genai_lab.engine.work import Work
from genai_lab.kvcache import RowStore, Store
from genai_lab.models import Model
from genai_lab.models.exactness import BatchFacts, batch_facts, known_facts
from genai_lab.models.rows import RowsExecutor
from genai_lab.tracing.row_pool import RowPool

Held = Mapping[int, int]  # row -> tokens in it, for every row that a request holds


class Executor(Protocol):
    """A model over memory that somebody else owns."""

    model: Model

    @property
    def has_all_logits(self) -> bool:
        """Whether the graph gives the logits of every token it reads."""
        ...


class Runs(Protocol):
    """What carries out a step's works on a model and a store."""

    may_end: Callable[[int], bool] | None  # which block a prefix may end with; None: any
    recorded: bool  # whether somebody keeps the logits

    @property
    def executor(self) -> Executor: ...
    @property
    def store(self) -> Store: ...
    def facts(self) -> BatchFacts: ...
    def known_words(self) -> str: ...
    def bring_together(self, holders: Sequence[RequestState], table: RowTable, /) -> None: ...
    def run(self, works: Sequence[Work], held: Held, /) -> None: ...


class RowRuns:
    """Runs works on one model and one slab.

    Args:
        executor, store: the model's rows and their memory.
        exact: every row gets the bits that it gets alone, whatever that costs.
    """

    def __init__(self, executor: RowsExecutor, store: RowStore, exact: bool) -> None:
        self.executor, self.store, self.exact = executor, store, exact
        self.may_end: Callable[[int], bool] | None = None
        self.recorded, self._memory = False, RowPool()
        self._gaps = Gaps()

    def facts(self) -> BatchFacts:
        """What holds of batches on this processor; measured at the first call."""
        return batch_facts(self.executor.model, self.executor.rows)

    def known_words(self) -> str:
        """What holds of batches, if somebody measured it."""
        facts = known_facts(self.executor.model, self.executor.rows)
        return "" if facts is None else f" ({facts.in_words()})"

    def bring_together(self, holders: Sequence[RequestState], table: RowTable) -> None:
        """Move rows when the gaps between the running ones have cost as much as that; due between steps.

        Args:
            holders: everybody who has a row.
            table: who has which.
        """
        running = sorted(s.row for s in holders if s.row is not None and s.status is Status.RUNNING)
        is_dense = not running or running[-1] - running[0] == len(running) - 1
        goes_alone = self.exact and not is_dense and not self.facts().is_exact
        wasted = 0 if is_dense or goes_alone else wasted_rows(running)
        states = {state.row: state for state in holders} if wasted else {}

        def tokens_of(row: int) -> int:
            return states[row].computed if row in states else 0

        def cost(row: int) -> int:
            return self.store.moving_cost(row, tokens_of(row))

        for first, second in self._gaps.to_swap(running, table.rows, cost, wasted):
            self.store.swap_rows(first, second, tokens_of(first), tokens_of(second))
            table.swap(first, second)
            for row, place in ((first, second), (second, first)):
                if row in states:
                    states[row].row = place

    def run(self, works: Sequence[Work], held: Held) -> None:
        """The decode runs, then the chunk runs."""
        verifies = [work for work in works if work.drafts.size]
        decodes = {w.row: w for w in works if w.decision.verdict is Verdict.DECODE and not w.drafts.size}
        for first, last in self._ranges(decodes, held):
            self._run_decode(first, last, decodes, held)
        for work in works:
            if work.decision.verdict is Verdict.PREFILL:
                self._run_chunk(work)
        for work in verifies:
            self._run_verify(work)

    def _ranges(self, rows: Mapping[int, Work], held: Held) -> list[tuple[int, int]]:
        """[first, last] of each decode run."""
        ranges = decode_ranges(rows)
        if self.exact and len(rows) > 1 and not self.facts().is_exact:
            return [(row, row) for row in sorted(rows)]
        lonely = self.executor.rows > 1 and any(first == last for first, last in ranges)
        if lonely and not self.exact and not self.facts().is_exact:
            return [with_company(*both, self.executor.rows, held) for both in ranges]
        return ranges

    def _run_decode(self, first: int, last: int, works: Mapping[int, Work], held: Held) -> None:
        rows = [works.get(row) for row in range(first, last + 1)]
        tokens, cached = [], []
        for row, work in enumerate(rows, first):
            if work is None:  # carried along: it computes a token that nobody reads
                tokens.append(0)
                cached.append(self.store.idle_position(row, held.get(row, 0)))
            else:
                tokens.append(int(work.state.sequence.tokens[work.start]))
                cached.append(work.start)
        logits = self.executor.decode(first, tokens, cached, self._logits_memory(len(rows)))
        for place, work in enumerate(rows):
            if work is not None and work.is_last:
                work.logits, work.owns_logits = logits[place], self.recorded

    def _logits_memory(self, count: int) -> NDArray[np.float32] | None:
        """[B, 1, V] that a recording keeps."""
        vocabulary = self.executor.model.vocab_size
        return self._memory.cut(count, vocabulary).reshape(count, 1, vocabulary) if self.recorded else None

    def _run_chunk(self, work: Work) -> None:
        tokens = work.state.sequence.tokens[work.start : work.stop]
        logits = self.executor.chunk(work.row, tokens, work.start)
        work.logits = logits if work.is_last else None

    def _run_verify(self, work: Work) -> None:
        """The last known token and the proposed ones at once."""
        tokens = np.concatenate([work.state.sequence.tokens[work.start :], work.drafts])
        work.verified = self.executor.every(work.row, tokens, work.start)
        work.logits = work.verified[0]
