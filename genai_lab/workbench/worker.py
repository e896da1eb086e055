"""One thread for everything that is written in the background: jobs run one after another, in the order they came.

Two models at a time would each be half as fast, so a job waits until those before it are done. The thread ends when
there is nothing left to do; at the interpreter's exit, every job is told to stop first. It knows nothing about models.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from contextvars import Context, copy_context
from typing import Protocol

PATIENCE = 10.0  # seconds for the last job to hear that it should stop; the thread is a daemon and blocks no exit


class Job(Protocol):
    """Something to be done in the background. It keeps its own errors: `run` does not raise."""

    def run(self) -> None: ...

    def stop(self) -> None:
        """End soon. May be called from any thread, before or while `run` runs, and more than once."""


class Worker:
    """The thread and its queue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Job, Context]] = deque()
        self._current: Job | None = None
        self._thread: threading.Thread | None = None

    def submit(self, job: Job) -> None:
        """Run `job` when those before it are done, in a copy of the caller's context."""
        with self._lock:
            self._waiting.append((job, copy_context()))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="genai_lab worker", daemon=True)
                self._thread.start()

    def waits(self, job: Job) -> bool:
        """Whether `job` is still behind another one."""
        with self._lock:
            return self._current is not job and any(job is other for other, _ in self._waiting)

    def is_here(self) -> bool:
        """Whether the caller runs in the worker's thread, inside a job."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Stop every job and wait for the thread to end. Later jobs are taken again."""
        with self._lock:
            jobs = [job for job, _ in self._waiting] + ([self._current] if self._current is not None else [])
            thread = self._thread
        for job in jobs:
            job.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._current = self._thread = None
                    return
                self._current, context = self._waiting.popleft()
            context.run(self._current.run)


WORKER = Worker()
atexit.register(WORKER.close)
