"""An engine between two steps as plain values: what validators check. Taking one changes nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from genai_lab.engine.plan import Decision, Status
from genai_lab.engine.request import RequestState
from genai_lab.kvcache import CacheSnapshot
from genai_lab.types import FinishReason

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine


@dataclass(slots=True)
class TurnCounts:
    """What became of all turns so far; the engine counts as it goes."""

    begun: int = 0
    closed: int = 0  # closed while under way
    ended: Counter[FinishReason] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class RequestSnapshot:
    """One request."""

    request: int
    status: Status
    row: int | None
    computed: int  # tokens in its row
    tokens: bytes  # the whole sequence, int32
    turn_id: int  # 0: no turn yet, or its last was rewound
    known: int  # tokens that the sequence must have: before the turn, its prompt, what it generated
    finish: FinishReason | None  # of its last turn
    preemptions: int
    times: tuple[int, int, int, int]  # arrived, scheduled, first token, finished; 0 while they have not
    is_decode: bool  # its next run is that of an answer's last token

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence."""
        return len(self.tokens) // 4


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """Everything between two steps."""

    step: int
    budget: int
    rows: int
    begun: int
    closed: int
    ended: tuple[tuple[FinishReason, int], ...]
    requests: tuple[RequestSnapshot, ...]
    cache: CacheSnapshot

    def of(self, *statuses: Status) -> tuple[RequestSnapshot, ...]:
        """Requests that stand there."""
        return tuple(r for r in self.requests if r.status in statuses)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step: the moment before, what was decided, the moment after."""

    before: EngineSnapshot
    decisions: tuple[Decision, ...]
    after: EngineSnapshot


def take_snapshot(engine: Engine) -> EngineSnapshot:
    """The engine now; call it between steps."""
    counts = engine._turns.counts
    return EngineSnapshot(
        step=engine.steps,
        budget=engine.limits.max_scheduled_tokens,
        rows=engine.limits.max_batch_size,
        begun=counts.begun,
        closed=counts.closed,
        ended=tuple(sorted(counts.ended.items())),
        requests=tuple(_request(state) for state in engine._states.values()),
        cache=engine._cache.snapshot(),
    )


def _request(state: RequestState) -> RequestSnapshot:
    turn, times = state.turn, state.times
    # after a rewind the last turn says nothing about the sequence
    current = turn is not None and turn.turn_id in state.starts
    length = len(state.sequence)
    return RequestSnapshot(
        request=state.request,
        status=state.status,
        row=state.row,
        computed=state.computed,
        tokens=state.sequence.tokens.tobytes(),
        turn_id=turn.turn_id if turn is not None and current else 0,
        known=turn.start + turn.prompt_tokens + turn.generated if turn is not None and current else length,
        finish=turn.finish if turn is not None and current else None,
        preemptions=state.preemptions,
        times=(times.arrived, times.scheduled, times.first_token, times.finished),
        is_decode=state.next_run(state.computed)[0],
    )
