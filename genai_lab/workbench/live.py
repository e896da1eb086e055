"""The kernel's side of one trace: starts, stops and continues its runs, and tells the pictures what is new.

Receives requests from Python or from the page. Everything is written by the one background `worker`, so a request
waits until those before it are done; meanwhile its trace says that it is busy. A person's own generators are only read.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from genai_lab import analysis
from genai_lab.analysis.trace import runs_in_words
from genai_lab.config import SearchOptions
from genai_lab.decoding import Hooks
from genai_lab.decoding.hooks import GuidanceText
from genai_lab.errors import ArgumentError, GenaiLabError, StateError
from genai_lab.generation import Generator, GeneratorParams
from genai_lab.models import Model
from genai_lab.tracing import Recorder
from genai_lab.widgets import Abilities, TraceModel
from genai_lab.workbench.branch_tracer import Fork
from genai_lab.workbench.engine_live import Telling
from genai_lab.workbench.kept import KEPT
from genai_lab.workbench.kernel_ear import find_ear
from genai_lab.workbench.worker import WORKER
from genai_lab.workbench.writing import Question, Writing, check_room, facts_of

PAUSE = 1 / 30  # seconds between two messages to the page
NAP = 0.03  # seconds between two looks at what the page says while a cell waits
BRANCH_TOKENS = 256  # a branch may be this long at least, whatever the length of the run it leaves
NOTHING = "No answer is in this recording (beam search keeps none), so there is nothing to continue."
NO_MODEL = (
    "The generator that wrote this is gone, and the trace knew its model by it only. "
    "Give it the model: trace.show(model=model)."
)
LOADED = "This trace was loaded from a file. To continue it, give it its model: trace.show(model=model)."
CLOSED = "The model that wrote this was closed. Load it again and give it: trace.show(model=model)."
PUT_AWAY = "This trace was closed, so it has no model. Give it one to go on: trace.show(model=model)."
FULL = "This recording is full ({:,} tokens). Ask again to begin a new one."
KNOBS = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
}


class Live:
    """The driver (see `widgets.Driver`) of one trace.

    Args:
        trace: whose runs it continues.
        model: writes them; without it, the model of a generator that the recorder knows and that still lives.
    """

    def __init__(self, trace: analysis.Trace, model: Model | None = None) -> None:
        self._trace = trace
        self._given = model
        self._found: weakref.ref[Model] | None = None
        self._jobs: list[Writing] = []  # not ended yet, in order
        self._last: Writing | None = None
        self._put_away = False  # closed by its holder
        self._picture: TraceModel | None = None
        self._telling: Telling | None = None  # of an engine's run
        self._next_message = 0.0
        self.lock = threading.RLock()

    # ---- what a picture asks ------------------------------------------------------------------------------------

    @property
    def running(self) -> frozenset[int]:
        """The runs being written."""
        mine = frozenset(job.run_id for job in list(self._jobs) if job.run_id is not None)
        return mine | self._telling.running if self._telling is not None else mine

    @property
    def abilities(self) -> Abilities:
        """What can be done now, and in words what cannot."""
        busy = bool(self._jobs)
        why = self._why_not()
        return Abilities(busy=busy, branch=why == "", stop=busy, why=why)

    def command(self, message: Mapping[str, Any]) -> None:
        """Do what the page asks. What makes no sense is ignored: a page can send anything."""
        kind = message.get("type")
        if kind == "stop":
            self.stop()
            return
        request = read_request(message)
        if request is None or self._why_not() or not self._exists(request[0]):
            self.tell_state()
            return
        try:
            self.branch(*request)
        except GenaiLabError as error:  # a setting out of its range, or too much memory
            self._refuse(request[0], error)

    # ---- what a person or a picture wants -----------------------------------------------------------------------

    def ask(self, params: GeneratorParams, question: Question, on_text: Callable[[str], None] | None = None) -> None:
        """Answer a question, as a new run."""
        self._submit(Writing(self, self._model_now(), params, question, on_text=on_text))

    def branch(self, fork: Fork, changes: Mapping[str, Any]) -> None:
        """Continue a run from one of its tokens, with another one there or drawn anew, under its own settings with
        `changes`.

        Raises:
            ArgumentError: no such run, index or token, or a setting that is not allowed.
            StateError: it cannot be continued; says why.
        """
        why = self._why_not()
        if why:
            raise StateError(why)
        model = self._model_now()
        if fork.token is not None and not 0 <= fork.token < model.vocab_size:
            raise ArgumentError(f"token {fork.token} is not in the vocabulary; allowed is 0 to {model.vocab_size - 1}")
        prefix = self._prefix(fork)
        params = self._params(model, fork, prefix.size, changes)
        self._submit(Writing(self, model, params, fork, prefix))

    def stop(self) -> None:
        """Stop what is being written and drop what waits. Returns at once."""
        for job in list(self._jobs):
            job.stop()
        self.tell_state()

    def wait(self, timeout: float | None) -> None:
        """Wait until nothing of this trace is being written. In a notebook's cell, the page is heard meanwhile.

        Raises:
            TimeoutError: it takes longer than `timeout` seconds.
            Exception: what ended the last run badly.
        """
        end = None if timeout is None else time.monotonic() + timeout
        for job in dict.fromkeys([*self._jobs, self._last] if self._last is not None else []):
            if not wait_listening(job.done, end):
                raise TimeoutError(f"still writing after {timeout:g} s; trace.stop() ends it, trace.wait() waits on")
        if self._picture is not None:
            self._picture.renew_stills()  # a program that runs notebooks hears only what the running cell says
        if self._last is not None and self._last.error is not None:
            raise self._last.error

    # ---- what a job tells (in the background thread) ------------------------------------------------------------

    @property
    def recorder(self) -> Recorder:
        """Where runs are recorded."""
        recorder = self._trace.recorder
        if recorder is None:
            raise StateError(LOADED)
        return recorder

    def began(self, job: Writing) -> None:
        self.tell_state()

    def opened(self, job: Writing) -> None:
        self._publish()  # a long prompt is read for seconds before the first token: the page should know

    def wrote(self) -> None:
        if time.monotonic() >= self._next_message:
            self._publish()

    def ended(self, job: Writing) -> None:
        self._jobs.remove(job)
        self._publish()
        if self._picture is not None:
            self._picture.settle()
        self.tell_state()

    def generators(self) -> list[Generator]:
        """A person's generators that this trace has seen and that still live."""
        recorder = self.recorder
        found = (recorder.source(run.run) for run in list(recorder.runs))
        return [generator for generator in found if isinstance(generator, Generator)]

    # ---- pictures -----------------------------------------------------------------------------------------------

    def show_in(self, picture: TraceModel) -> None:
        """Tell this picture from now on. Remembers the model (weakly) while a generator that has it may still live."""
        self._picture = picture
        if self._telling is None and self._trace.recorder is not None:
            self._telling = Telling(self._trace.recorder, self._publish, self._keep)
        self._remember_model()

    def give(self, model: Model) -> None:
        """Continue runs with this model from now on."""
        self._given, self._put_away = model, False
        self.tell_state()

    def close(self) -> None:
        """Stop what is being written, let the model go, and close the generators that were kept to continue it."""
        self.stop()
        for job in list(self._jobs):
            job.done.wait()
        model = self.model
        self._given = self._found = self._last = None
        self._put_away = True
        if model is not None:
            KEPT.forget(model)
        self.tell_state()

    def tell_state(self) -> None:
        """Tell the page what can be done now."""
        if self._picture is not None:
            self._picture.tell_state()

    def _publish(self) -> None:
        if self._picture is not None:
            self._picture.tell_news()
            self._next_message = time.monotonic() + PAUSE

    def _keep(self) -> None:
        if self._picture is not None:
            self._picture.refresh()

    # ---- inside -------------------------------------------------------------------------------------------------

    def _submit(self, job: Writing) -> None:
        self._last = job
        self._jobs.append(job)
        self.tell_state()
        WORKER.submit(job)

    @property
    def model(self) -> Model | None:
        """The model that was given, or that of a generator which the recorder knows."""
        if self._put_away:
            return None
        if self._given is not None:
            return self._given
        self._remember_model()
        return self._found() if self._found is not None else None

    def _remember_model(self) -> None:
        if self._found is None and self._trace.recorder is not None:
            model = next((generator.model for generator in self.generators()), None)
            self._found = weakref.ref(model) if model is not None else None

    def _model_now(self) -> Model:
        model = self.model
        if model is None:
            raise StateError(PUT_AWAY if self._put_away else NO_MODEL)
        return model

    def _why_not(self) -> str:
        """Why nothing can be continued; empty when it can."""
        recorder = self._trace.recorder
        if recorder is None:
            return LOADED
        if self._put_away:
            return PUT_AWAY
        model = self.model
        if model is None:
            return NO_MODEL if recorder.runs else NOTHING
        if is_closed(model):
            return CLOSED
        return FULL.format(recorder.counts["tokens"]) if room(recorder) < 1 else ""

    def _prefix(self, fork: Fork) -> NDArray[np.int32]:
        """Every token before the fork, the prompt included, [n]."""
        recorder = self.recorder
        if not 0 <= fork.run < len(recorder.runs):
            raise ArgumentError(f"run {fork.run} is not in the trace; {runs_in_words(len(recorder.runs))}")
        with self.lock:
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

    def _exists(self, fork: Fork) -> bool:
        recorder, model = self.recorder, self._model_now()
        if fork.run >= len(recorder.runs) or (fork.token or 0) >= model.vocab_size:
            return False
        with self.lock:
            tokens = self._trace.recording.tokens
        written = tokens["index"][tokens["run"] == fork.run].max(initial=0)
        return fork.index <= int(written)

    def _refuse(self, fork: Fork, error: GenaiLabError) -> None:
        """A request from the page that cannot be met is a run that failed, so that the page shows the words."""
        recorder, model = self.recorder, self._model_now()
        with self.lock:
            run = recorder.open_run(
                prompt=self._prefix(fork),
                settings=recorder.runs[fork.run].settings,
                model=facts_of(model),
                describe=model.token_texts,
                parent=fork.run,
                fork=fork.index,
                forced=fork.token,
            )
            recorder.close_run(run, "failed", str(error))
        self._publish()
        self.tell_state()

    def _hooks(self, run: int) -> Hooks:
        """What a person put into the run's steps; of a run whose generator is gone, only its grammar is known."""
        source = self.recorder.source(run)
        if isinstance(source, Generator):
            return source.params.hooks
        return recorded_hooks(self.recorder.runs[run].settings)

    def _params(self, model: Model, fork: Fork, prefix: int, changes: Mapping[str, Any]) -> GeneratorParams:
        """The run's own options with `changes`; as long as the run may be, or at least a branch's length."""
        recorder = self.recorder
        settings = recorder.runs[fork.run].settings
        names = {field.name for field in fields(SearchOptions)} - {"context_length"}
        options = {name: settings[name] for name in names if settings.get(name) is not None}
        if settings.get("mode") == "greedy":
            options["do_sample"] = False  # whatever rule made it so
        options |= changes
        if fork.token is None:
            options["random_seed"] = -1  # the same seed would draw the same token again
        params = GeneratorParams(model)
        params.set_search_options(**options)
        params.hooks = self._hooks(fork.run)
        written = int((self._trace.recording.tokens["run"] == fork.run).sum())
        longest = prefix + min(max(BRANCH_TOKENS, written - fork.index), room(recorder))
        params.set_search_options(max_length=min(params.options.max_length, longest))
        check_room(prefix, params.options.max_length, model.config.model.context_length)
        return params


def recorded_hooks(settings: Mapping[str, Any]) -> Hooks:
    """The grammar of a recorded run; a file may hold anything."""
    given = settings.get("guidance")
    if not isinstance(given, dict) or not all(isinstance(given.get(key), str) for key in ("type", "data")):
        return Hooks()
    return Hooks(guidance=GuidanceText(given["type"], given["data"], given.get("enable_ff_tokens") is True))


def wait_listening(done: threading.Event, end: float | None) -> bool:
    """Wait for `done`, until the monotonic clock says `end` at most, and hear the page. Whether it is done."""
    ear = find_ear()
    nap = NAP if ear is not None else None
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        if done.wait(left if nap is None else nap if left is None else min(left, nap)):
            return True
        if left == 0.0 or (ear is None and left is not None):
            return False
        if ear is not None:
            ear.listen()


def is_closed(model: Model) -> bool:
    """Whether a model can no longer run."""
    try:
        return model.session is None
    except StateError:
        return True


def room(recorder: Recorder) -> int:
    """How many tokens fit before the oldest are dropped."""
    return recorder.max_tokens - recorder.counts["tokens"]


def read_request(message: Mapping[str, Any]) -> tuple[Fork, dict[str, Any]] | None:
    """A message from the page as a fork and changed options; None when it is not one."""
    again = message.get("type") == "again"
    run, index = message.get("run"), 0 if again else message.get("index")
    token, settings = message.get("token"), message.get("settings")
    if not is_count(run) or not is_count(index) or not (again or token is None or is_count(token)):
        return None  # not in the protocol
    if not (settings is None or isinstance(settings, dict)):
        return None
    return Fork(run, index, None if again else token), read_knobs(settings or {})


def read_knobs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The page's settings as search options; what is missing or no number is left as it was."""
    options: dict[str, Any] = {}
    if settings.get("mode") in ("greedy", "sample"):
        options["do_sample"] = settings["mode"] == "sample"
    for name, kind in KNOBS.items():
        value = settings.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            options[name] = kind(value)
    return options


def is_count(value: object) -> TypeGuard[int]:
    """A whole number from 0 on, not a flag."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
