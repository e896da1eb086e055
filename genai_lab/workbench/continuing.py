"""What continues the runs of one trace, from where, and under which settings; or in words why nothing does.

Receives a trace and perhaps a model; without one, that of a generator which the trace has seen and which still lives.
Returns what a new run needs: the tokens before it and its params. Writing it, and telling anybody, is not done here.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab import analysis
from genai_lab.analysis.trace import runs_in_words
from genai_lab.config import SearchOptions
from genai_lab.decoding import Hooks
from genai_lab.decoding.hooks import GuidanceText
from genai_lab.errors import ArgumentError, StateError
from genai_lab.generation import Generator, GeneratorParams
from genai_lab.models import Model
from genai_lab.tracing import Recorder
from genai_lab.workbench.branch_tracer import Fork
from genai_lab.workbench.writing import check_room

BRANCH_TOKENS = 256  # a branch may be this long at least, whatever the length of the run it leaves
ONE_ANSWER = ("batch_size", "num_beams", "num_return_sequences")
NOTHING = "No answer is in this recording (beam search keeps none), so there is nothing to continue."
GIVE = "trace.show(model=model)"
NO_MODEL = f"The generator that wrote this is gone, and the trace knew its model by it only. Give it the model: {GIVE}."
NEVER_KNOWN = (
    "An Engine, a batch or a generator that proposes tokens wrote this; a trace does not know the model of these. "
    f"To continue from here, give it the model: {GIVE}."
)
LOADED = f"This trace was loaded from a file. To continue it, give it its model: {GIVE}."
CLOSED = f"The model that wrote this was closed. Load it again and give it: {GIVE}."
PUT_AWAY = f"This trace was closed, so it has no model. Give it one to go on: {GIVE}."
FULL = "This recording is full ({:,} tokens). Ask again to begin a new one."


class Continuing:
    """The model of one trace, and what it may go on with.

    Args:
        trace: whose runs are continued.
        model: writes them; None: that of a generator which the trace knows.
        lock: held while the trace's columns are read.
    """

    def __init__(self, trace: analysis.Trace, model: Model | None, lock: AbstractContextManager[object]) -> None:
        self._trace, self._lock = trace, lock
        self._given = model
        self._found: weakref.ref[Model] | None = None
        self._put_away = False  # closed by its holder

    # ---- with what ----------------------------------------------------------------------------------------------

    @property
    def recorder(self) -> Recorder:
        """Where runs are recorded."""
        recorder = self._trace.recorder
        if recorder is None:
            raise StateError(LOADED)
        return recorder

    def generators(self) -> list[Generator]:
        """A person's generators that this trace has seen and that still live."""
        recorder = self.recorder
        found = (recorder.source(run.run) for run in list(recorder.runs))
        return [generator for generator in found if isinstance(generator, Generator)]

    @property
    def model(self) -> Model | None:
        """The model that was given, or that of a generator which the recorder knows."""
        if self._put_away:
            return None
        if self._given is not None:
            return self._given
        self.remember_model()
        return self._found() if self._found is not None else None

    def remember_model(self) -> None:
        """Know the model, weakly, of a generator that still lives."""
        if self._found is None and self._trace.recorder is not None:
            model = next((generator.model for generator in self.generators()), None)
            self._found = weakref.ref(model) if model is not None else None

    def give(self, model: Model) -> None:
        """Continue with this model from now on."""
        self._given, self._put_away = model, False

    def put_away(self) -> None:
        """Let the model go; nothing is continued until another is given."""
        self._given = self._found = None
        self._put_away = True

    def model_now(self) -> Model:
        """The model; StateError when there is none."""
        model = self.model
        if model is None:
            raise StateError(PUT_AWAY if self._put_away else self._why_no_model(self.recorder))
        return model

    def why_not(self) -> str:
        """Why nothing can be continued; empty when it can."""
        recorder = self._trace.recorder
        if recorder is None:
            return LOADED
        if self._put_away:
            return PUT_AWAY
        model = self.model
        if model is None:
            return self._why_no_model(recorder)
        if is_closed(model):
            return CLOSED
        return FULL.format(recorder.counts["tokens"]) if room(recorder) < 1 else ""

    @staticmethod
    def _why_no_model(recorder: Recorder) -> str:
        """A generator of one answer is known to the recorder while it lives; whatever else writes answers never is."""
        if not recorder.runs:
            return NOTHING
        return NO_MODEL if all(run.run in recorder.sources for run in recorder.runs) else NEVER_KNOWN

    # ---- from where ---------------------------------------------------------------------------------------------

    def prefix(self, fork: Fork) -> NDArray[np.int32]:
        """Every token before the fork, the prompt included, [n]."""
        recorder = self.recorder
        if not 0 <= fork.run < len(recorder.runs):
            raise ArgumentError(f"run {fork.run} is not in the trace; {runs_in_words(len(recorder.runs))}")
        with self._lock:
            tokens = self._trace.recording.tokens
        own = tokens["run"] == fork.run
        index = tokens["index"][own]
        answer = tokens["token"][own][np.argsort(index, kind="stable")]
        lost = int(index.min()) if index.size and fork.index > 0 else 0
        if lost:
            raise StateError(
                f"the first {lost} tokens of run {fork.run} did not fit into the recorder, so the text before index "
                f"{fork.index} is not known; branch at index 0, or record with a larger max_tokens"
            )
        if not 0 <= fork.index < max(1, answer.size):
            raise ArgumentError(
                f"index {fork.index} of run {fork.run} is not in the trace; it has {answer.size} recorded tokens"
            )
        prompt = recorder.runs[fork.run].prompt
        return np.concatenate([prompt, answer[: fork.index]]).astype(np.int32)

    def exists(self, fork: Fork) -> bool:
        """Whether there is such a run, index and token."""
        recorder, model = self.recorder, self.model_now()
        if fork.run >= len(recorder.runs) or (fork.token or 0) >= model.vocab_size:
            return False
        with self._lock:
            tokens = self._trace.recording.tokens
        written = tokens["index"][tokens["run"] == fork.run].max(initial=0)
        return fork.index <= int(written)

    # ---- how ----------------------------------------------------------------------------------------------------

    def params(self, model: Model, fork: Fork, prefix: int, changes: Mapping[str, Any]) -> GeneratorParams:
        """The run's own options with `changes`; as long as the run may be, or at least a branch's length."""
        recorder = self.recorder
        settings = recorder.runs[fork.run].settings
        names = {field.name for field in fields(SearchOptions)} - {"context_length"}
        options = {name: settings[name] for name in names if settings.get(name) is not None}
        if settings.get("mode") == "greedy":
            options["do_sample"] = False  # whatever rule made it so
        if fork.token is None:
            options["random_seed"] = -1  # the same seed would draw the same token again
        options |= dict.fromkeys(ONE_ANSWER, 1) | dict(changes)  # the run may have been one of a batch
        params = GeneratorParams(model)
        params.set_search_options(**options)
        check_one_answer(params.options)
        params.hooks = self._hooks(fork.run)
        written = int((self._trace.recording.tokens["run"] == fork.run).sum())
        longest = prefix + min(max(BRANCH_TOKENS, written - fork.index), room(recorder))
        params.set_search_options(max_length=min(params.options.max_length, longest))
        check_room(prefix, params.options.max_length, model.config.model.context_length)
        return params

    def _hooks(self, run: int) -> Hooks:
        """What a person put into the run's steps; of a run whose generator is gone, only its grammar is known."""
        source = self.recorder.source(run)
        if isinstance(source, Generator):
            return source.params.hooks
        return recorded_hooks(self.recorder.runs[run].settings)


def recorded_hooks(settings: Mapping[str, Any]) -> Hooks:
    """The grammar of a recorded run; a file may hold anything."""
    given = settings.get("guidance")
    if not isinstance(given, dict) or not all(isinstance(given.get(key), str) for key in ("type", "data")):
        return Hooks()
    return Hooks(guidance=GuidanceText(given["type"], given["data"], given.get("enable_ff_tokens") is True))


def check_one_answer(options: SearchOptions) -> None:
    """ArgumentError when a branch would be several answers."""
    for name in ONE_ANSWER:
        if (value := getattr(options, name)) != 1:
            raise ArgumentError(
                f"{name} is {value}; a branch is one answer, so 1 is allowed. For several, branch several times"
            )


def is_closed(model: Model) -> bool:
    """Whether a model can no longer run."""
    try:
        return model.session is None
    except StateError:
        return True


def room(recorder: Recorder) -> int:
    """How many tokens fit before the oldest are dropped."""
    return recorder.max_tokens - recorder.counts["tokens"]
