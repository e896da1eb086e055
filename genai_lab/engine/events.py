"""What an engine tells its caller: events with flags, and a buffer of bounded capacity (og's names and numbers)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

from genai_lab.errors import ArgumentTypeError
from genai_lab.types import FinishReason

if TYPE_CHECKING:
    from genai_lab.engine.request import Request


class EngineEventFlags(IntFlag):
    """What an event says; several may be set."""

    NONE = 0
    TOKEN = 1
    TURN_FINISHED = 2
    CAPACITY_BLOCKED = 4
    FAILED = 8
    RETRYABLE = 16


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


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One thing that happened to a request. `token` is None unless TOKEN is set."""

    flags: EngineEventFlags
    request: Request | None = None
    turn_id: int = 0
    token: int | None = None
    finish_reason: FinishReason = FinishReason.NONE
    error_code: EngineErrorCode = EngineErrorCode.NONE
    matched_stop_string_index: int | None = None
    usage: TurnUsage = field(default_factory=TurnUsage)  # of the whole turn, in its last event; zeros before
    stop_reason: str | None = None  # ours: what a stopping criterion said, with STOPPING_CRITERION


class EngineEventBuffer:
    """Holds the events of the last `engine.run(buffer)`; at most `capacity` of them."""

    def __init__(self, capacity: int) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ArgumentTypeError(f"capacity is {capacity!r}; an integer of at least 1 is allowed")
        self.capacity = capacity
        self._events: list[EngineEvent] = []

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, index: int) -> EngineEvent:
        return self._events[index]

    def _hold(self, events: list[EngineEvent]) -> None:
        """Replace the content."""
        self._events = events
