"""The engine's lock: first come, first served, and safe to meet from the garbage collector.

An ordinary lock lets the thread that steps the engine take it again before anybody who waits. Here each waiter is
handed the lock in turn, so a `submit` or `cancel` waits for one step at most. What is to be closed by and by (dropped
handles, answers that ended) is put into `dropped` and closed when the lock is taken or given back: never in the middle
of a step, and without waiting. While the main thread holds it, Ctrl-C waits. While a guest (a person's policy or
processor) runs under it, nobody but others' threads may come in. It knows no engine, only how to close a number.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

from genai_lab.engine.interrupts import Shield
from genai_lab.errors import StateError


class Guest:
    """A person's code runs inside, in the middle of a step; its calls of what the lock guards are refused."""

    def __init__(self) -> None:
        self.is_inside = False

    def __enter__(self) -> None:
        self.is_inside = True

    def __exit__(self, *_: object) -> None:
        self.is_inside = False


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
        self._shield: Shield | None = None
        self.guest = Guest()

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            self.check_no_guest()
            self._depth += 1
            return
        shield = Shield.here()
        try:
            self._wait()
            self._own(shield)
            self._tidy_or_leave()
        except BaseException:
            if shield is not None:
                shield.end()
            raise

    def __exit__(self, *_: object) -> None:
        if self._depth > 1:
            self._depth -= 1
            return
        shield = self._shield
        try:
            self._tidy()
        finally:
            self._leave()
            if shield is not None:
                shield.end()

    def let_interrupt_through(self) -> None:
        """The books are in order: an interrupt that came meanwhile is raised here."""
        if self._owner == threading.get_ident() and self._shield is not None:
            self._shield.let_through()

    def check_no_guest(self) -> None:
        """Raises StateError when the caller is a guest."""
        if self.guest.is_inside and self._owner == threading.get_ident():
            raise StateError(
                "the engine was called from inside its own step, by a policy, a logits processor, a sampler or a "
                "stopping criterion; nothing was done. Make the call when the step is over, such as after run or "
                "generate_all"
            )

    def drop(self, number: int) -> None:
        """Close `number` now if nobody holds the lock, else when it is given back. Never waits: the garbage collector
        may call this anywhere, also inside a step."""
        self.dropped.append(number)
        if self._owner == threading.get_ident():
            return
        shield = Shield.here()
        free = self._mutex.acquire(blocking=False)
        if free:
            free, self._taken = not self._taken, True
            self._mutex.release()
        if free:
            self._own(shield)
            self.__exit__()
        elif shield is not None:
            shield.end()

    # ---- inside

    def _own(self, shield: Shield | None) -> None:
        self._owner, self._depth, self._shield = threading.get_ident(), 1, shield

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
        self._owner, self._depth, self._shield = None, 0, None
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
        while self.dropped and (close := self._close()) is not None:
            close(self.dropped.popleft())
