"""Tells a trace's picture what an engine records, while it runs: in a thread of its own, at most 30 times a second.

The engine's thread only sets a flag. Telling digests rows of logits and packs a chunk, so it must not be in the way of
a step; it takes a sixth of a core at most. When every turn is over, or nothing came for a while, the picture is
settled: a saved notebook keeps it. It knows no engine, only the recorder that one writes to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from genai_lab.tracing import Recorder

PAUSE = 1 / 30  # seconds between two messages, at least
SHARE = 5  # a message that took t seconds is followed by a pause of SHARE * t, unless everything is over
REST = 0.1  # seconds after the last turn until the picture is settled: another may begin
SILENCE = 5.0  # seconds without a step after which an engine is taken to have stopped


class Telling:
    """One trace's engine on one picture.

    Args:
        recorder: what the engine writes to.
        tell: sends what is new.
        settle: keeps everything in the picture.
    """

    def __init__(self, recorder: Recorder, tell: Callable[[], None], settle: Callable[[], None]) -> None:
        self._recorder, self._tell, self._settle = recorder, tell, settle
        self._news, self._over = threading.Event(), threading.Event()
        self._lock = threading.Lock()  # guards the thread
        self._thread: threading.Thread | None = None
        recorder.on_engine = self.wake

    @property
    def running(self) -> frozenset[int]:
        """Runs that an engine is writing now."""
        return self._recorder.open_turns if self._thread is not None else frozenset()

    def wake(self) -> None:
        """Something was recorded. Called in the engine's thread, so it only says so."""
        self._news.set()
        if not self._recorder.open_turns:
            self._over.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="genai_lab pictures", daemon=True)
                    self._thread.start()

    def _work(self) -> None:
        while self._wait():
            began = time.monotonic()
            self._over.clear()
            self._tell()
            took = time.monotonic() - began
            time.sleep(PAUSE)
            self._over.wait(max(0.0, SHARE * took - PAUSE))

    def _wait(self) -> bool:
        """Wait for news; False when there are none for so long that the thread ends."""
        while not self._news.wait(SILENCE if self._recorder.open_turns else REST):
            with self._lock:
                if self._news.is_set():
                    continue
                self._thread = None  # whoever wakes now starts another
            if self._recorder.open_turns:  # an engine that stopped in the middle writes no more
                self._tell()
            self._settle()
            return False
        self._news.clear()
        return True
