"""The model runs of a step for a graph that reads block tables: everybody's tokens in one run, decodes and prompts.

Receives works with rows and tokens, leaves logits in them, as `runs.RowRuns` does for graphs with rows of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from genai_lab.engine.request import RequestState
from genai_lab.engine.rows import RowTable
from genai_lab.engine.work import Work
from genai_lab.kvcache import BlockStore
from genai_lab.models.exactness import BatchFacts
from genai_lab.models.packed import PackedExecutor, Part
from genai_lab.models.packed_exactness import known_packed_facts, packed_facts


class PackedRuns:
    """Runs works on one model and one pool of blocks.

    Args:
        executor, store: the model over the pool's memory, and who has which blocks of it.
        exact: every sequence gets the bits that it gets alone: where this processor gives it others in company, runs
            are of one sequence each.
    """

    def __init__(self, executor: PackedExecutor, store: BlockStore, exact: bool) -> None:
        self.executor, self.store, self.exact = executor, store, exact
        self.may_end: Callable[[int], bool] | None = None if store.states is None else store.may_end
        self.recorded = False

    def facts(self) -> BatchFacts:
        """What holds of sequences in company on this processor; measured at the first call."""
        return packed_facts(self.executor.model, self.executor.paged, self.store.rows)

    def known_words(self) -> str:
        """The same in words, if somebody measured it."""
        facts = known_packed_facts(self.executor.model, self.store.rows)
        return "" if facts is None else f" ({facts.in_words()})"

    def bring_together(self, _holders: Sequence[RequestState], _table: RowTable) -> None:
        """A run takes whoever runs, wherever their tables stand."""

    def run(self, works: Sequence[Work], held: Mapping[int, int]) -> None:
        """One run, or with `exact` as many as it takes. `held`: idle sequences take no part."""
        del held
        if not works:
            return
        alone = self.exact and len(works) > 1 and not self.facts().is_exact
        for group in [[work] for work in works] if alone else [list(works)]:
            for work, logits in zip(group, self.executor.run([self._part(work) for work in group]), strict=True):
                if work.drafts.size:
                    work.verified = logits
                work.logits = logits[0] if work.is_last else None

    def _part(self, work: Work) -> Part:
        tokens = work.state.sequence.tokens[work.start : work.start + work.decision.num_tokens]
        if work.drafts.size:
            tokens = np.concatenate([work.state.sequence.tokens[work.start :], work.drafts])
        return Part(tokens, work.start, work.row, 1 + work.drafts.size)
