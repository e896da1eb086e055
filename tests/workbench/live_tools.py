"""What the tests of background writing share: a page that hears everything, and a hold on the writer between tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from genai_lab.widgets import TraceModel, trace_model
from genai_lab.workbench.live import Live
from genai_lab.workbench.trace import Trace
from tests.widgets.chunks import Reader

PATIENCE = 60.0  # seconds until a test gives up


class Page:
    """The browser's side of a trace's model: keeps the messages, puts the chunks together."""

    def __init__(self, trace: Trace, monkeypatch: pytest.MonkeyPatch, *, greets: bool = True) -> None:
        self.messages: list[dict[str, Any]] = []
        self.reader = Reader()
        monkeypatch.setattr(TraceModel, "send", lambda _model, content, buffers=None: self._hear(content, buffers))
        self.model = trace_model(trace)
        self.reader.take(self.model.chunk)
        if greets:
            self.say(type="hello")
            self.messages.clear()

    def _hear(self, content: dict[str, Any], buffers: list[bytes] | None) -> None:
        self.messages.append(content)
        if content["type"] == "chunk":
            assert buffers is not None
            self.reader.take(buffers[0])

    def say(self, **message: object) -> None:
        self.model.hear(message)

    @property
    def state(self) -> dict[str, Any]:
        """The last state that was told."""
        return next(m for m in reversed(self.messages) if m["type"] == "state")


class Held:
    """The writer stops after its nth token, counted over all runs, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tokens: int = 1) -> None:
        self._reached, self._free = threading.Event(), threading.Event()
        self._left = tokens
        original = Live.wrote

        def wrote(live: Live) -> None:
            original(live)
            self._left -= 1
            if self._left == 0:
                self._reached.set()
                assert self._free.wait(PATIENCE)

        monkeypatch.setattr(Live, "wrote", wrote)

    def wait(self) -> None:
        assert self._reached.wait(PATIENCE)

    def let_go(self) -> None:
        self._free.set()


def at_each_run(monkeypatch: pytest.MonkeyPatch, action: Callable[[int], None]) -> None:
    """Call `action(tokens)` just before each run of the model over that many tokens."""
    from genai_lab.models import DecoderState

    prepare = DecoderState.prepare

    def watched(state: DecoderState, tokens: Any, cached: int) -> Any:
        action(tokens.size)
        return prepare(state, tokens, cached)

    monkeypatch.setattr(DecoderState, "prepare", watched)
