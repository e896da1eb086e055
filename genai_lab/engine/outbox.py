"""What happened, on its way to the callers: events that wait for `Engine.run`, or go to whoever listens at once."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping

from genai_lab.engine.events import EngineErrorCode, EngineEvent, EngineEventFlags, TurnUsage
from genai_lab.engine.request import Request, RequestState
from genai_lab.types import FinishReason

NO_USAGE = TurnUsage()


class Outbox:
    """Events by request number: a waiting event keeps no request alive."""

    def __init__(self) -> None:
        self.events: deque[tuple[int | None, EngineEvent]] = deque()

    def emit(
        self,
        state: RequestState,
        flags: EngineEventFlags,
        *,
        token: int | None = None,
        finish: FinishReason = FinishReason.NONE,
        error: EngineErrorCode = EngineErrorCode.NONE,
        stop: int | None = None,
    ) -> None:
        """Something happened to a request's turn."""
        if state.turn is None:
            return
        turn = state.turn
        usage = turn.usage if finish is not FinishReason.NONE else NO_USAGE
        event = EngineEvent(flags, None, turn.turn_id, token, finish, error, stop, usage, turn.stop_reason)
        if state.sink is not None:
            state.sink.receive(event, state.failure)
            return
        state.undrained += 1
        self.events.append((state.request, event))

    def blocked(self) -> None:
        """Nobody could run, and nobody has anything to take."""
        if not self.events:
            flags, code = EngineEventFlags.CAPACITY_BLOCKED, EngineErrorCode.CAPACITY_DEFERRED
            self.events.append((None, EngineEvent(flags, error_code=code)))

    def take(
        self, count: int, states: Mapping[int, RequestState], handles: Mapping[int, weakref.ref[Request]]
    ) -> list[EngineEvent]:
        """The oldest events, at most `count`, with their requests' handles."""
        taken: list[EngineEvent] = []
        while self.events and len(taken) < count:
            number, event = self.events.popleft()
            if number is not None:
                states[number].undrained -= 1
                event = event._replace(request=handles[number]())
            taken.append(event)
        return taken

    def forget(self, number: int) -> None:
        """A closed request's events are nobody's."""
        self.events = deque((n, event) for n, event in self.events if n != number)
