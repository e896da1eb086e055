"""What a step does for one request, and a step before its commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.engine.memory import Leave
from genai_lab.engine.plan import Decision
from genai_lab.engine.request import NO_TOKENS, RequestState
from genai_lab.kvcache import Receipt
from genai_lab.sampling import Choice
from genai_lab.tracing import Change, Masking


@dataclass(frozen=True, slots=True)
class Chosen:
    """A token that was chosen after a proposed one had proved right."""

    choice: Choice
    changes: tuple[Change | Masking, ...]
    logits: NDArray[np.float32]  # [V]


@dataclass(slots=True)
class Work:
    """One scheduled request: what it computes, on which blocks, and what came out."""

    state: RequestState
    decision: Decision
    receipt: Receipt | None  # None: it shares what another read
    start: int  # tokens in its row before
    admitted: bool  # in this step
    is_last: bool  # this run reads its last known token, so that the next can be chosen
    drafts: NDArray[np.int32] = field(default_factory=lambda: NO_TOKENS)  # proposed tokens [k] that the run reads too
    stream_state: Any = None  # of its random numbers, before this step
    logits: NDArray[np.float32] | None = None  # of its last known token; None while its prompt is not read to the end
    owns_logits: bool = False  # nobody writes over them, so that a recording need not copy them
    choice: Choice | None = None
    changes: tuple[Change | Masking, ...] = ()
    verified: NDArray[np.float32] | None = None  # logits [1 + drafts, V] of a run that read proposed tokens too
    more: list[Chosen] = field(default_factory=list)  # tokens chosen after `choice`
    error: Exception | None = None  # its own: a processor that failed
    started_ns: int = 0

    @property
    def row(self) -> int:
        """Its row."""
        if self.state.row is None:
            raise AssertionError("a scheduled request holds a row")
        return self.state.row

    @property
    def stop(self) -> int:
        """Tokens in its row afterwards; of proposed ones, those that proved right."""
        return self.start + (self.decision.num_tokens if self.verified is None else 1 + len(self.more))


@dataclass(slots=True)
class Outcome:
    """A step before its commit."""

    works: list[Work] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)  # one per request the policy saw
    leaves: list[Leave] = field(default_factory=list)  # who gives way
    run_ns: int = 0  # inside the model
