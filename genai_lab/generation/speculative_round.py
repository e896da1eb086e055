"""A round of speculation that is under way: how far it has come, and what a recording is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Place
from genai_lab.decoding.speculation import Proposal
from genai_lab.generation.verifying import Decided, unseen
from genai_lab.tracing import NULL, RoundFact, Tracer
from genai_lab.tracing.speculation_facts import Proposer, Why


class Times(NamedTuple):
    """Nanoseconds."""

    start: int  # on the clock of perf_counter_ns
    draft: int  # took the proposing
    target: int  # took the target's run


@dataclass(slots=True)
class Round:
    """What the tokens that are decided and not handed out came from."""

    proposed: int
    evaluated: (
        int  # of the proposed tokens, looked at: all but those that a grammar forces and those behind a rejection
    )
    accepted: int  # of those
    worked_ns: int  # that deciding its tokens took
    row: NDArray[np.float32] | None = None  # [V] logits behind all its tokens; None: its last one is not read yet
    emitted: int = 0
    fact: RoundFact | None = None  # None: nobody records
    tracer: Tracer = NULL

    def record(
        self,
        by: Proposer,
        number: int,
        proposal: Proposal,
        decided: Sequence[Decided],
        width: int,
        times: Times,
        position: int,
        place: Place,
    ) -> None:
        """Tell the tracer of `place` that the round begins, and of its end when it comes.

        Args:
            number: of the round, from 1.
            width: tokens that were asked for.
            position, place: of the first decided token, in the sequence and in the trace.
        """
        looked_at = [one.proposed for one in decided if one.proposed is not None]
        rest = [unseen(proposal, index) for index in range(len(looked_at), len(proposal.tokens))]
        self.tracer = place.tracer
        self.fact = RoundFact(
            run=place.run,
            round=number,
            index=place.index,
            position=position,
            by=by,
            source=-1 if proposal.source is None else proposal.source,
            width=width,
            start_ns=times.start,
            draft_ns=times.draft,
            target_ns=times.target,
            end_ns=perf_counter_ns(),
            proposed=(*looked_at, *rest),
            token=decided[-1].chosen[0].token,
        )
        self.tell()

    def tell(self, discarded: int = 0, why: Why = Why.NOTHING) -> None:
        """What the round has come to, to whoever recorded its beginning."""
        if self.fact is not None:
            self.tracer.speculation(replace(self.fact, emitted=self.emitted, discarded=discarded, why=why))
