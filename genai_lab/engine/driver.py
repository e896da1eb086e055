"""The thread that steps an engine while somebody waits for an answer; asleep, or gone, when nobody does.

It holds the engine weakly while it sleeps, so an engine that is dropped goes away and the thread with it.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable
from typing import Protocol


class Driven(Protocol):
    """What a driver steps."""

    def _work(self) -> bool:
        """One step for those who wait; False when nobody does. Raises nothing."""
        ...


class Driver:
    """Steps `engine` in a daemon thread.

    `wake` starts the thread when there is none; it ends when nothing is left to do, unless `start` asked it to stay.
    """

    def __init__(self, engine: Driven) -> None:
        self._engine: Callable[[], Driven | None] = weakref.ref(engine)
        self._change = threading.Condition()  # guards all below
        self._thread: threading.Thread | None = None
        self._wanted = self._ending = self._stays = False
        weakref.finalize(engine, _end, self)

    @property
    def running(self) -> bool:
        """Whether there is a thread, awake or asleep."""
        return self._thread is not None

    def start(self) -> None:
        """Have a thread that stays."""
        with self._change:
            self._stays = True
            self._ensure()

    def wake(self) -> None:
        """There is something to do."""
        with self._change:
            self._wanted = True
            self._ensure()
            self._change.notify_all()

    def stop(self) -> None:
        """End the thread after the step under way, and wait for that."""
        with self._change:
            thread, self._stays, self._ending = self._thread, False, True
            self._change.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._change:
            self._ending = self._wanted = False

    def _ensure(self) -> None:
        if self._thread is None:
            # recorders are found by context: the thread keeps that of whoever started it
            run = contextvars.copy_context().run
            self._thread = threading.Thread(target=run, args=(self._loop,), name="genai_lab engine", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while self._next():
            engine = self._engine()
            if engine is None:
                return
            while not self._ending and engine._work():
                pass
            del engine

    def _next(self) -> bool:
        """Sleep until there is something to do; False when the thread is to end."""
        with self._change:
            while not self._wanted and not self._ending and self._stays:
                self._change.wait()
            if self._ending or not self._wanted:
                self._thread = None
                return False
            self._wanted = False
            return True


def _end(driver: Driver) -> None:
    """The engine is gone, or the interpreter ends."""
    driver.stop()
