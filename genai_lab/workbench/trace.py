"""The trace of the notebook: analysis' Trace, shown by the linked widgets, and continued from there."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from genai_lab import analysis
from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError
from genai_lab.kinds import seconds, whole
from genai_lab.models import Model
from genai_lab.paths import checked_path, whole_file
from genai_lab.tracing import Recorder, Recording
from genai_lab.widgets import View, trace_model
from genai_lab.widgets.models import KINDS
from genai_lab.widgets.page import offline_page
from genai_lab.workbench.branch_tracer import Fork
from genai_lab.workbench.live import Live
from genai_lab.workbench.worker import WORKER


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

        Args:
            timeout: seconds from 0 on; None or math.inf: no limit.

        Raises:
            ArgumentError, ArgumentTypeError: `timeout` is no number of seconds.
            StateError: called by what is being written (`ask`'s on_text), which would wait for itself.
            TimeoutError: it takes longer than `timeout` seconds.
            Exception: what ended the last run badly.
        """
        time = seconds("timeout", timeout)
        if self.running and WORKER.is_here():
            raise StateError(
                "wait() is called inside on_text, in the thread that writes the answers: it would wait for itself. "
                "Keep the trace, and wait for it when this answer is done"
            )
        try:
            self._live.wait(time)
        except KeyboardInterrupt:
            self._live.stop()
            raise
        return self

    def stop(self) -> Self:
        """Stop what is being written; the answer so far stays. Returns at once, `wait` waits for the end."""
        self._live.stop()
        return self

    def close(self) -> None:
        """Stop what is being written and let the model and the memory of its answers go. What was recorded can still be
        read and shown; going on with it is a StateError until it is given a model: `show(model=model)`. Closing twice
        is allowed.

        Raises:
            StateError: called by what is being written (`ask`'s on_text), which would wait for itself.
        """
        if self.running and WORKER.is_here():
            raise StateError("close() is called inside on_text, by what it would wait for; call stop() there")
        self._live.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def branch(self, index: int, token: int | None = None, run: int = 0, **search_options: Any) -> Self:
        """Continue a run from its token `index` in the background, as a new run.

        Args:
            index: of the token to replace, 0-based inside the run's answer.
            token: put there by hand; None draws it anew, with `random_seed` where that is given.
            run: which run.
            search_options: what differs from that run's own settings.

        Raises:
            ArgumentError: no such run, index, token or option.
            StateError: nothing can be continued; says why.
        """
        fork = Fork(whole("run", run), whole("index", index), None if token is None else whole("token", token))
        self._live.branch(fork, search_options)
        return self

    def again(self, run: int = 0, **search_options: Any) -> Self:
        """Answer the prompt of a run once more in the background, as a new run. Raises as `branch` does."""
        self._live.branch(Fork(whole("run", run), 0, None), search_options)
        return self

    def text(self, run: int = 0) -> str:
        """The answer of a run as far as it is written (special tokens left out); empty while it waits to begin.

        Raises:
            ArgumentError: there is no such run; says which there are.
        """
        if self.running and whole("run", run) == len(self.recording.runs):
            return ""
        return super().text(run)

    def __repr__(self) -> str:
        waits = self.running and not self.recording.runs
        return "<genai_lab.Trace: waiting to begin>" if waits else super().__repr__()

    # ---- shown --------------------------------------------------------------------------------------------------

    def show(self, kind: str = "all", model: Model | None = None) -> View:
        """A widget. Views of one trace are linked.

        Args:
            kind: "all", "ribbon", "pipeline" or "timeline"; of an engine's run also "engine" (which "all" of such a
                trace is), "batching" or "blocks".
            model: continues the runs of a trace that was loaded, whose generator is gone, or that an Engine, a batch or
                speculation wrote.

        Raises:
            ArgumentError: no such kind, or a model with another vocabulary.
            ArgumentTypeError: `model` is no `Model`.
        """
        if model is not None:
            self._give(model)
        return View(trace_model(self), kind)

    def to_html(self, path: str | os.PathLike[str], kind: str = "all") -> Path:
        """Write one HTML file that shows the trace without a kernel, a server or a network.

        Raises:
            ArgumentError: no such kind.
            OutputError: the file cannot be written; what was there stays.
        """
        target = checked_path(path, "path", "the file to write")
        if kind not in KINDS:
            raise ArgumentError(f"kind={kind!r:.60}: there is no such view; allowed are {', '.join(KINDS)}")
        question = next((run.question for run in self.recording.runs if run.question), "")
        title = f"{question[:80]} - genai_lab" if question else "genai_lab trace"
        with whole_file(target) as partial:
            partial.write_text(offline_page(self.recording, (kind,), title), encoding="utf-8")
        return target

    def _give(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise ArgumentTypeError(
                f"show: model is {model!r:.60} ({type(model).__name__}); a genai_lab.Model is allowed: "
                "model = genai_lab.load('smollm2')"
            )
        vocabulary = self.recording.model.get("vocab_size")
        if vocabulary not in (None, model.vocab_size):
            raise ArgumentError(
                f"model: {model!r} has {model.vocab_size:,} tokens in its vocabulary, the trace was written with "
                f"{vocabulary:,}; give the model that wrote it"
            )
        if isinstance(self._source, Recording):
            self._source, self._cached = Recorder.resumed(self._source), None
        self._live.give(model)

    def _ipython_display_(self) -> None:
        self.show()._ipython_display_(repr(self))

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = self.show()._repr_mimebundle_(**kwargs)
        if bundle is not None:
            bundle[0]["text/plain"] = repr(self)
        return bundle
