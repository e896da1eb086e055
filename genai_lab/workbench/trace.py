"""The trace of the notebook: analysis' Trace, shown by the linked widgets, and continued from there."""

from __future__ import annotations

import operator
import os
from pathlib import Path
from typing import Any, Self

from genai_lab import analysis
from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.models import Model
from genai_lab.tracing import Recorder, Recording
from genai_lab.widgets import View, trace_model
from genai_lab.widgets.page import offline_page
from genai_lab.workbench.branch_tracer import Fork
from genai_lab.workbench.live import Live


class Trace(analysis.Trace):
    """Everything that was recorded; in a notebook it is shown by linked widgets.

    >>> trace = genai_lab.ask(model, "What is the capital of France?")     # doctest: +SKIP
    >>> trace                                                              # doctest: +SKIP
    >>> trace.wait().text()                                                # doctest: +SKIP
    'The capital of France is Paris.'
    """

    def __init__(self, source: Recorder | Recording, model: Model | None = None) -> None:
        super().__init__(source)
        self._live = Live(self, model)

    @property
    def recording(self) -> Recording:
        """The columns up to now."""
        with self._live.lock:
            return super().recording

    @property
    def driver(self) -> Live:
        """Continues the runs when a picture asks for it."""
        return self._live

    # ---- being written ------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether something is being written in the background, or waits to be."""
        return self._live.abilities.busy

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until nothing is being written; an interrupt (the notebook's stop button) stops it.

        Raises:
            TimeoutError: it takes longer than `timeout` seconds.
            Exception: what ended the last run badly.
        """
        try:
            self._live.wait(timeout)
        except KeyboardInterrupt:
            self._live.stop()
            raise
        return self

    def stop(self) -> Self:
        """Stop what is being written; the answer so far stays. Returns at once, `wait` waits for the end."""
        self._live.stop()
        return self

    def branch(self, index: int, token: int | None = None, run: int = 0, **search_options: Any) -> Self:
        """Continue a run from its token `index` in the background, as a new run.

        Args:
            index: of the token to replace, 0-based inside the run's answer.
            token: put there by hand; None draws it anew.
            run: which run.
            search_options: what differs from that run's own settings.

        Raises:
            ArgumentError: no such run, index, token or option.
            StateError: nothing can be continued; says why.
        """
        fork = Fork(_whole("run", run), _whole("index", index), None if token is None else _whole("token", token))
        self._live.branch(fork, search_options)
        return self

    def again(self, run: int = 0, **search_options: Any) -> Self:
        """Answer the prompt of a run once more in the background, as a new run. Raises as `branch` does."""
        self._live.branch(Fork(_whole("run", run), 0, None), search_options)
        return self

    # ---- shown --------------------------------------------------------------------------------------------------

    def show(self, kind: str = "all", model: Model | None = None) -> View:
        """A widget: "all", "ribbon", "pipeline" or "timeline". Views of one trace are linked.

        Args:
            kind: which picture.
            model: continues the runs of a trace that was loaded, or whose generator is gone.

        Raises:
            ArgumentError: no such kind, or a model with another vocabulary.
        """
        if model is not None:
            self._give(model)
        return View(trace_model(self), kind)

    def to_html(self, path: str | os.PathLike[str], kind: str = "all") -> Path:
        """Write one HTML file that shows the trace without a kernel, a server or a network."""
        question = next((run.question for run in self.recording.runs if run.question), "")
        title = f"{question[:80]} - genai_lab" if question else "genai_lab trace"
        target = Path(path)
        target.write_text(offline_page(self.recording, (kind,), title), encoding="utf-8")
        return target

    def _give(self, model: Model) -> None:
        vocabulary = self.recording.model.get("vocab_size")
        if vocabulary not in (None, model.vocab_size):
            raise ArgumentError(
                f"model: {model!r} has {model.vocab_size:,} tokens in its vocabulary, the trace was written with "
                f"{vocabulary:,}; give the model that wrote it"
            )
        if isinstance(self._source, Recording):
            self._source, self._cached = Recorder.resumed(self._source), None
        self._live.give(model)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = self.show()._repr_mimebundle_(**kwargs)
        if bundle is not None:
            bundle[0]["text/plain"] = repr(self)
        return bundle


def _whole(name: str, value: object) -> int:
    """A plain int, also of a numpy integer (a frame's cell); anything else is refused before it is recorded."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(
            f"branch: {name} is {value!r}; an integer is allowed, such as a cell of trace.candidates(0)"
        )
    return operator.index(value)
