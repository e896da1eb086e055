"""What an engine tells its caller: events with flags, and a buffer of bounded capacity (og's names and numbers)."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from genai_lab.errors import ArgumentTypeError, CountError, StateError
from genai_lab.types import FinishReason, named

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine
    from genai_lab.engine.request import Request

MOST_EVENTS = 2**63 - 1


@named
class EngineEventFlags(IntFlag):
    """What an event says; several may be set."""

    NONE = 0
    TOKEN = 1
    TURN_FINISHED = 2
    CAPACITY_BLOCKED = 4
    FAILED = 8
    RETRYABLE = 16


@named
class EngineErrorCode(IntEnum):
    """Why something failed or was put off."""

    NONE = 0
    CAPACITY_DEFERRED = 1
    EXECUTION_CAPACITY_EXCEEDED = 2
    RETRYABLE_EXECUTION = 3
    REQUEST_UNSERVICEABLE = 4
    ENGINE_CONTRACT_FAILURE = 5
    ENGINE_EXECUTION_FAILURE = 6


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """Tokens of a turn."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_prompt_tokens: int = 0  # taken over from the cache, not computed


class EngineEvent(NamedTuple):
    """One thing that happened to a request. `token` is None unless TOKEN is set."""

    flags: EngineEventFlags
    request: Request | None = None
    turn_id: int = 0
    token: int | None = None
    finish_reason: FinishReason = FinishReason.NONE
    error_code: EngineErrorCode = EngineErrorCode.NONE
    matched_stop_string_index: int | None = None
    usage: TurnUsage = TurnUsage()  # of the whole turn, in its last event; zeros before
    stop_reason: str | None = None  # ours: what a stopping criterion said, or a policy that rejected it


class EngineEventBuffer:
    """Holds the events of the last `engine.run(buffer)`; at most `capacity` of them.

    Args:
        engine: the one that fills it.
        capacity: 0 holds nothing, so `run` hands nothing over.
    """

    def __init__(self, engine: Engine, capacity: int) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int | np.integer):
            raise ArgumentTypeError(f"capacity is {capacity!r:.60}; a whole number (int) is allowed")
        if not 0 <= capacity <= MOST_EVENTS:
            raise CountError(f"capacity is {capacity}; an integer from 0 on is allowed, such as 8")
        self.capacity = int(capacity)
        self._engine = weakref.ref(engine)
        self._events: list[EngineEvent] = []

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, index: int) -> EngineEvent:
        return self._events[index]

    def _check_of(self, engine: Engine) -> None:
        if self._engine() is not engine:
            raise StateError(
                "buffer must be used with the Engine that created it; make one: engine.create_event_buffer(8)"
            )

    def _hold(self, events: list[EngineEvent]) -> None:
        """Replace the content."""
        self._events = events
