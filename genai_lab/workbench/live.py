"""The kernel's side of one trace: starts, stops and continues its runs, and tells the pictures what is new.

Receives requests from Python or from the page. Everything is written by the one background `worker`, so a request
waits until those before it are done; meanwhile its trace says that it is busy. A person's own generators are only read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from genai_lab import analysis
from genai_lab.errors import ArgumentError, GenaiLabError, StateError
from genai_lab.generation import Generator, GeneratorParams
from genai_lab.models import Model
from genai_lab.tracing import Recorder
from genai_lab.widgets import Abilities, TraceModel
from genai_lab.workbench.branch_tracer import Fork
from genai_lab.workbench.continuing import Continuing
from genai_lab.workbench.engine_live import Telling
from genai_lab.workbench.kept import KEPT
from genai_lab.workbench.kernel_ear import wait_listening
from genai_lab.workbench.page_request import read_request
from genai_lab.workbench.worker import WORKER
from genai_lab.workbench.writing import Question, Writing, facts_of

PAUSE = 1 / 30  # seconds between two messages to the page


class Live:
    """The driver (see `widgets.Driver`) of one trace.

    Args:
        trace: whose runs it continues.
        model: writes them; without it, the model of a generator that the recorder knows and that still lives.
    """

    def __init__(self, trace: analysis.Trace, model: Model | None = None) -> None:
        self._trace = trace
        self._jobs: list[Writing] = []  # not ended yet, in order
        self._last: Writing | None = None
        self._picture: TraceModel | None = None
        self._telling: Telling | None = None  # of an engine's run
        self._next_message = 0.0
        self.lock = threading.RLock()
        self._continuing = Continuing(trace, model, self.lock)

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
        why = self._continuing.why_not()
        return Abilities(busy=busy, branch=why == "", stop=busy, why=why)

    def command(self, message: Mapping[str, Any]) -> None:
        """Do what the page asks. What makes no sense is ignored: a page can send anything."""
        kind = message.get("type")
        if kind == "stop":
            self.stop()
            return
        request = read_request(message)
        if request is None or self._continuing.why_not() or not self._continuing.exists(request[0]):
            self.tell_state()
            return
        try:
            self.branch(*request)
        except GenaiLabError as error:  # a setting out of its range, or too much memory
            self._refuse(request[0], error)

    # ---- what a person or a picture wants -----------------------------------------------------------------------

    def ask(self, params: GeneratorParams, question: Question, on_text: Callable[[str], None] | None = None) -> None:
        """Answer a question, as a new run."""
        self._submit(Writing(self, self._continuing.model_now(), params, question, on_text=on_text))

    def branch(self, fork: Fork, changes: Mapping[str, Any]) -> None:
        """Continue a run from one of its tokens, with another one there or drawn anew, under its own settings with
        `changes`.

        Raises:
            ArgumentError: no such run, index or token, or a setting that is not allowed.
            StateError: it cannot be continued; says why.
        """
        why = self._continuing.why_not()
        if why:
            raise StateError(why)
        model = self._continuing.model_now()
        if fork.token is not None and not 0 <= fork.token < model.vocab_size:
            raise ArgumentError(f"token {fork.token} is not in the vocabulary; allowed is 0 to {model.vocab_size - 1}")
        prefix = self._continuing.prefix(fork)
        params = self._continuing.params(model, fork, prefix.size, changes)
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
        return self._continuing.recorder

    def generators(self) -> list[Generator]:
        """A person's generators that this trace has seen and that still live."""
        return self._continuing.generators()

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

    # ---- pictures -----------------------------------------------------------------------------------------------

    def show_in(self, picture: TraceModel) -> None:
        """Tell this picture from now on. Remembers the model (weakly) while a generator that has it may still live."""
        self._picture = picture
        if self._telling is None and self._trace.recorder is not None:
            self._telling = Telling(self._trace.recorder, self._publish, self._keep)
        self._continuing.remember_model()

    def give(self, model: Model) -> None:
        """Continue runs with this model from now on."""
        self._continuing.give(model)
        self.tell_state()

    def close(self) -> None:
        """Stop what is being written, let the model go, and close the generators that were kept to continue it."""
        self.stop()
        for job in list(self._jobs):
            job.done.wait()
        model, self._last = self._continuing.model, None
        self._continuing.put_away()
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

    def _refuse(self, fork: Fork, error: GenaiLabError) -> None:
        """A request from the page that cannot be met is a run that failed, so that the page shows the words."""
        recorder, model = self.recorder, self._continuing.model_now()
        with self.lock:
            run = recorder.open_run(
                prompt=self._continuing.prefix(fork),
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
