"""The engine's lock: first come, first served, and safe to meet from the garbage collector.

An ordinary lock lets the thread that steps the engine take it again before anybody who waits. Here each waiter is
handed the lock in turn, so a `submit` or `cancel` waits for one step at most. What is to be closed by and by (dropped
handles, answers that ended) is put into `dropped` and closed when the lock is taken or given back: never in the middle
of a step, and without waiting. It knows no engine, only how to close a number.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod


class Turnstile:
    """A re-entrant, fair lock.

    Args:
        close: a bound method that closes what a number stands for; held weakly.
    """

    def __init__(self, close: Callable[[int], None]) -> None:
        self.dropped: deque[int] = deque()
        self._close = WeakMethod(close)
        self._mutex = threading.Lock()  # guards the two below, for a moment
        self._taken = False
        self._queue: deque[Any] = deque()  # one locked lock a waiter; releasing it hands the turnstile over
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            self._depth += 1
            return
        self._wait()
        self._owner, self._depth = threading.get_ident(), 1
        self._tidy_or_leave()

    def __exit__(self, *_: object) -> None:
        if self._depth > 1:
            self._depth -= 1
            return
        try:
            self._tidy()
        finally:
            self._leave()

    def drop(self, number: int) -> None:
        """Close `number` now if nobody holds the lock, else when it is given back. Never waits: the garbage collector
        may call this anywhere, also inside a step."""
        self.dropped.append(number)
        if self._owner == threading.get_ident() or not self._mutex.acquire(blocking=False):
            return
        taken, self._taken = self._taken, True
        self._mutex.release()
        if not taken:
            self._owner, self._depth = threading.get_ident(), 1
            self.__exit__()

    # ---- inside

    def _wait(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            self._queue.append(gate)
        try:
            gate.acquire()
        except BaseException:  # an interrupt: step out of the queue, or pass on what was just handed over
            with self._mutex:
                queued = gate in self._queue
                if queued:
                    self._queue.remove(gate)
            if not queued:
                self._leave()
            raise

    def _leave(self) -> None:
        self._owner, self._depth = None, 0
        with self._mutex:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._taken = False

    def _tidy_or_leave(self) -> None:
        try:
            self._tidy()
        except BaseException:
            self._leave()
            raise

    def _tidy(self) -> None:
        close = self._close()
        while self.dropped and close is not None:
            close(self.dropped.popleft())
