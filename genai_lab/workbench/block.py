"""The `record()` block that a call is made in, and what is written in the background on its behalf.

An answer that `ask` writes has a recorder of its own. When it is done, its run is copied into the recorder of the block
it was asked in, so that both traces tell the same. Leaving the block waits for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from threading import Event
from typing import Protocol

from genai_lab.errors import StateError
from genai_lab.tracing import Recorder
from genai_lab.workbench.worker import WORKER


class Answer(Protocol):
    """What is written in the background."""

    done: Event

    def stop(self) -> None: ...


class Block:
    """One `with record()` block.

    Args:
        recorder: the block's.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._answers: list[Answer] = []
        self._numbers: dict[tuple[Recorder, int], int] = {}  # a run elsewhere -> its number here

    def began(self, answer: Answer) -> None:
        """An answer was asked for inside the block."""
        self._answers.append(answer)

    def take(self, source: Recorder, run: int) -> None:
        """Copy a run that has ended; one of this block's own recorder is here already."""
        if source is self.recorder:
            return
        parent = source.runs[run].parent
        known = None if parent is None else self._numbers.get((source, parent))
        self._numbers[(source, run)] = copy_run(source, run, self.recorder, known)

    def wait(self) -> None:
        """Wait for every answer. An interrupt stops them; an answer that failed is a run that says so.

        Raises:
            StateError: called by what is being written, which would wait for itself.
        """
        open_answers = [answer for answer in self._answers if not answer.done.is_set()]
        if open_answers and WORKER.is_here():
            raise StateError(
                "the end of a record() block inside on_text would wait for an answer that is written after this one. "
                "Ask outside of the block, or after this answer"
            )
        try:
            for answer in open_answers:
                answer.done.wait()
        except KeyboardInterrupt:
            for answer in open_answers:
                answer.stop()
            raise


_current: ContextVar[Block | None] = ContextVar("genai_lab_record_block", default=None)


def current_block() -> Block | None:
    """The block that the caller is in; None outside. Follows into the background's jobs."""
    return _current.get()


@contextmanager
def inside(block: Block) -> Iterator[None]:
    """Make `block` the current one."""
    token = _current.set(block)
    try:
        yield
    finally:
        _current.reset(token)


def copy_run(source: Recorder, run: int, target: Recorder, parent: int | None) -> int:
    """Copy a run that has ended, its tokens and its stages, into another recorder; its number there.

    `parent` is the number there of the run that it branches from; None when that one is not there.
    """
    with source._lock:
        source.settle()
        facts = source.runs[run]
        tokens = source._tokens.of_run(run)
        stages = [event for event in source._stages if event[3] == run]
    with target._lock:
        number = len(target.runs)
        shift = (source.origin_ns - target.origin_ns) / 1e6
        copied = replace(facts, run=number, start_ms=facts.start_ms + shift, parent=parent)
        target.runs.append(copied if parent is not None else replace(copied, fork=None, forced=None))
        target.model = dict(source.model)
        target._texts.describe = source._texts.describe
        if run in source.sources:
            target.sources[number] = source.sources[run]
        for start, end, name, _run, token, n in stages:
            target.stage(number, token, name, start, end, n)
        for fact, digest in tokens:
            target._tokens.add(replace(fact, run=number), digest)
    return number
