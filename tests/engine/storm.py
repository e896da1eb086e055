"""A storm over an engine: requests arrive, are cancelled, closed, dropped, rewound, asked again, and model runs fail,
all in an order that a seed decides. What every request was asked and answered is kept, to be judged afterwards.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from genai_lab.engine import Engine, EngineEvent, EngineEventFlags, Request, TurnOptions
from genai_lab.types import FinishReason
from tests.engine.asking import SAMPLED, Tokens


class BoomError(Exception):
    """An injected fault."""


@dataclass
class Asked:
    """One request's first turn (asked again after a rewind), and what came."""

    prompt: Tokens
    count: int
    seed: int | None
    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    ends: int = 0  # TURN_FINISHED events
    turns: int = 1
    gone: bool = False  # closed or dropped while under way

    @property
    def options(self) -> dict[str, Any]:
        """Search options of its turn."""
        return {} if self.seed is None else SAMPLED


class Storm:
    """Blows `total` requests over `engine`, `crowd` at a time."""

    def __init__(self, engine: Engine, seed: int, total: int, crowd: int, longest: int) -> None:
        self.engine, self.random = engine, random.Random(seed)
        self.total, self.crowd, self.longest = total, crowd, longest
        self.heads = [self._words(24) for _ in range(3)]
        self.asked: dict[int, Asked] = {}
        self.handles: dict[int, Request] = {}
        self.faults = self.forks = 0
        self._buffer = engine.create_event_buffer(16)

    def blow(self) -> None:
        """Until every request came and went."""
        with_faults = _Faults(self)
        try:
            while len(self.asked) < self.total or self.handles:
                while len(self.asked) < self.total and len(self.handles) < self.crowd and self._happens(0.8):
                    self._arrive()
                self._disturb()
                try:
                    events = list(self.engine.run(self._buffer))
                except BoomError:
                    self.faults += 1
                    continue
                for event in events:
                    self._take(event)
        finally:
            with_faults.end()

    # ---- inside

    def _happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def _words(self, count: int) -> Tokens:
        return np.array([self.random.randrange(3, 250) for _ in range(count)], np.int32)

    def _arrive(self) -> None:
        size = 150 if self._happens(0.01) else self.random.choice((1, 2, 3, 9, 17, 30))
        head = self.random.choice(self.heads)[: self.random.choice((0, 8, 24))]
        prompt = np.concatenate([head, self._words(size)])
        seed = self.random.randrange(1000) if self._happens(0.5) else None
        asked = Asked(prompt, self.random.randrange(1, self.longest), seed)
        request = self.engine.create_request()
        self.asked[request.number], self.handles[request.number] = asked, request
        ask(request, asked)

    def _disturb(self) -> None:
        if not self.handles or not self._happens(0.15):
            return
        number = self.random.choice(list(self.handles))
        asked, kind = self.asked[number], self.random.randrange(5)
        if kind > 2:
            self._fork(number, asked)
            return
        if kind == 0:
            self.handles[number].cancel_turn(asked.turns)
            return
        asked.gone = True
        handle = self.handles.pop(number)
        if kind == 1:
            handle.close()
        del handle

    def _fork(self, number: int, asked: Asked) -> None:
        state, seed = self.engine._states[number], self.random.randrange(1000)
        assert state.turn is not None
        if state.turn.finish is not None or (asked.seed is not None and state.turn.generated):
            return  # over; or it would draw on from another stream, and nobody else gets that answer
        twin = self.handles[number].fork(seed=seed)
        one = Asked(asked.prompt, asked.count, None if asked.seed is None else seed, turns=asked.turns)
        one.tokens, one.ends = twin.tokens()[asked.prompt.size :].tolist(), asked.turns - 1
        self.asked[twin.number], self.handles[twin.number] = one, twin
        self.forks += 1

    def _take(self, event: EngineEvent) -> None:
        if event.request is None:
            assert event.flags & EngineEventFlags.CAPACITY_BLOCKED
            return
        asked = self.asked[event.request.number]
        if event.token is not None:
            asked.tokens.append(event.token)
        if asked.gone or not event.flags & EngineEventFlags.TURN_FINISHED:  # the buffer kept a dropped handle alive
            return
        asked.ends += 1
        asked.finish = event.finish_reason
        if asked.turns == 1 and asked.finish is not FinishReason.FAILED and self._happens(0.2):
            self._ask_again(event.request, asked)
        else:
            self.handles.pop(event.request.number).close()

    def _ask_again(self, request: Request, asked: Asked) -> None:
        request.rewind_to_start_of_turn(1)
        asked.tokens.clear()
        asked.turns, asked.finish = 2, None
        if asked.seed is not None:
            asked.seed += 1
        ask(request, asked)


class _Faults:
    """Makes model runs and reservations of the engine fail now and then, before or after their work."""

    def __init__(self, storm: Storm) -> None:
        runner = storm.engine._runner
        self._places = [(runner.executor, "decode"), (runner.executor, "chunk"), (runner.store, "reserve")]
        for place, name in self._places:
            setattr(place, name, self._failing(storm, getattr(place, name)))

    def _failing(self, storm: Storm, real: Any) -> Any:
        def call(*args: Any) -> Any:
            early, late = storm._happens(0.01), storm._happens(0.01)
            if early:
                raise BoomError
            result = real(*args)
            if late:
                raise BoomError
            return result

        return call

    def end(self) -> None:
        for place, name in self._places:
            delattr(place, name)


def ask(request: Request, asked: Asked) -> None:
    """Begin its first turn."""
    turn = TurnOptions()
    turn.set_max_generated_tokens(asked.count)
    for name, value in asked.options.items():
        getattr(turn, f"set_{name}")(value)
    if asked.seed is not None:
        turn.set_seed(asked.seed)
    assert request.begin_turn(asked.prompt, turn) == asked.turns
