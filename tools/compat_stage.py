"""Where the small calls are made that hold the table's claims against both libraries, and how their outcomes compare.

Receives one of the two modules and the folder of a tiny model. A call returns plain values or ends in an error; two
outcomes agree when the values are equal, or when ours is also an error of theirs' class, so that an `except` clause
written for theirs catches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

PROMPT = [5, 9, 13]


@dataclass(frozen=True)
class Stage:
    """One library on one folder."""

    lib: ModuleType
    folder: Path

    @cached_property
    def model(self) -> Any:
        return self.lib.Model(str(self.folder))

    @cached_property
    def tokenizer(self) -> Any:
        return self.lib.Tokenizer(self.model)

    def config(self) -> Any:
        return self.lib.Config(str(self.folder))

    def params(self, **options: Any) -> Any:
        params = self.lib.GeneratorParams(self.model)
        params.set_search_options(**{"max_length": 12} | options)
        return params

    def empty(self, **options: Any) -> Any:
        return self.lib.Generator(self.model, self.params(**options))

    def generator(self, steps: int = 0, **options: Any) -> Any:
        made = self.empty(**options)
        made.append_tokens(PROMPT)
        for _ in range(steps):
            made.generate_next_token()
        return made

    def engine(self) -> Any:
        return self.lib.Engine(self.model)

    def options(self, request: Any, **given: Any) -> Any:
        options = self.lib.TurnOptions(request)
        for name, value in {"max_generated_tokens": 3, **given}.items():
            getattr(options, f"set_{name}")(value)
        return options

    def events(self, capacity: int = 8, **given: Any) -> list[Any]:
        """Of one whole turn."""
        engine = self.engine()
        request = engine.create_request()
        request.begin_turn(PROMPT, self.options(request, **given))
        buffer, found = engine.create_event_buffer(capacity), []
        while engine.has_pending_requests():
            engine.run(buffer)
            # looked at before the buffer is used again, as theirs are borrowed from it
            found += [Seen(buffer[n], request) for n in range(len(buffer))]
        return found

    def turn(self, change: Callable[[Any], object]) -> Any:
        """Whether a turn with these options is accepted: its id."""
        engine = self.engine()
        request = engine.create_request()
        options = self.options(request)
        change(options)
        turn = request.begin_turn(PROMPT, options)
        request.close()
        return turn

    def set_one(self, name: str, value: object) -> object:
        """What a turn with one option comes to: its id, or the class of the error."""
        return refused(lambda: self.turn(lambda options: getattr(options, f"set_{name}")(value)))

    def open_turn(self) -> tuple[Any, Any, int]:
        """An engine in the middle of a turn, its request, and the turn's id."""
        engine = self.engine()
        request = engine.create_request()
        turn = request.begin_turn(PROMPT, self.options(request))
        engine.run(engine.create_event_buffer(1))
        return engine, request, turn

    def finished(self) -> tuple[Any, Any, int]:
        """An engine whose request has answered its first turn."""
        engine = self.engine()
        request = engine.create_request()
        turn = request.begin_turn(PROMPT, self.options(request))
        buffer = engine.create_event_buffer(8)
        while engine.has_pending_requests():
            engine.run(buffer)
        return engine, request, turn

    def named(self) -> Any:
        tensors = self.lib.NamedTensors()
        tensors["a"] = np.array([[1, 2]], np.int32)
        return tensors

    def logged(self, **flags: bool) -> int:
        """Lines that a log of four tokens calls back with, roughly."""
        lines: list[str] = []
        self.lib.set_log_callback(lines.append)
        self.lib.set_log_options(enabled=True, **flags)
        try:
            self.generator(1)
        finally:
            self.lib.set_log_options(enabled=False, **dict.fromkeys(flags, False))
            self.lib.set_log_callback(None)
        return sum("generate_next_token" in line for line in lines)


class Seen:
    """What an event said."""

    def __init__(self, event: Any, request: Any) -> None:
        for name in ("error_code", "finish_reason", "flags", "matched_stop_string_index", "token", "turn_id"):
            setattr(self, name, getattr(event, name))
        self.is_requests = event.request is request and {event.request: 1}[request] == 1
        usage = event.usage
        self.usage = (usage.prompt_tokens, usage.generated_tokens, usage.cached_prompt_tokens)


Call = Callable[[Stage], object]


@dataclass(frozen=True, slots=True)
class Calls:
    """Of one member: what agrees, what more is possible here, what differs, what is refused here."""

    same: Call | None = None
    more: Call | None = None
    """Works here, and there not, or otherwise."""
    differs: Call | None = None
    absent: Call | None = None
    here: Call | None = None
    """Must work here; there it cannot be tried, because of ..."""
    why_not_there: str = ""


def each(owner: str, names: Iterable[str], make: Callable[[str], Calls]) -> dict[str, Calls]:
    """Calls of members that are tried alike."""
    return {f"{owner}.{name}": make(name) for name in names}


def plain(value: object) -> object:
    """A value that compares across libraries: arrays as lists, enums as numbers."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), np.round(value.astype(float), 3).tolist()]
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, type) or value is None or isinstance(value, str | bool):
        return value
    if hasattr(value, "__index__"):
        return int(value)
    return value if isinstance(value, float) else type(value).__name__


def refused(call: Callable[[], object]) -> object:
    """The class of the error that a call ends in; what it returns when it does not."""
    try:
        return call()
    except Exception as error:
        return type(error)


def outcome(call: Call, stage: Stage) -> object:
    """What a call came to: a plain value, or the class of its error."""
    return plain(refused(lambda: call(stage)))


def is_error(found: object) -> bool:
    """Whether an outcome is an error."""
    return isinstance(found, type) and issubclass(found, Exception)


def agree(theirs: object, ours: object) -> bool:
    """Whether two outcomes are the same for whoever wrote a script for theirs."""
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(agree, theirs, ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(agree(theirs[name], ours[name]) for name in theirs)
    if isinstance(theirs, type) and isinstance(ours, type):
        return issubclass(ours, theirs)
    return bool(theirs == ours)
