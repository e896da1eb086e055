"""Ctrl-C while an engine's books are open: it waits until they are in order.

In the main thread Python may raise KeyboardInterrupt between any two statements, also between taking a block and
writing down who has it. A shield keeps one interrupt back until it ends, or until somebody says that all is in order. A
second one is let through at once: what runs may be a person's endless loop. It knows no engine.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

try:  # what the module signal calls; up to Python 3.11 that takes 50 us more, to find that a function is no number
    from _signal import getsignal  # type: ignore[import-not-found,unused-ignore]
    from _signal import signal as exchange
except ImportError:
    from signal import getsignal
    from signal import signal as exchange


class Shield:
    """Keeps one interrupt back until `end`.

    >>> shield = Shield.here()
    >>> if shield is not None:
    ...     shield.end()
    """

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler, self._came = handler, False
        exchange(signal.SIGINT, self._keep)

    @classmethod
    def here(cls) -> Shield | None:
        """A shield, or None where none is needed: other threads are not interrupted, and a system that answers itself
        ends the program."""
        if threading.current_thread() is not threading.main_thread():
            return None
        handler = getsignal(signal.SIGINT)
        return cls(handler) if callable(handler) else None

    def let_through(self) -> None:
        """All is in order now: an interrupt that came is raised here."""
        if self._came:
            self._came = False
            self._handler(signal.SIGINT, None)

    def end(self) -> None:
        """Interrupts are raised where they come again; one that was kept back, here. A handler that was set meanwhile
        stays."""
        newer = exchange(signal.SIGINT, self._handler)
        if newer != self._keep:
            exchange(signal.SIGINT, newer)
        self.let_through()

    def _keep(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            self._came = False
            self._handler(number, frame)
            return
        self._came = True
