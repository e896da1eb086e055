"""What an Engine spends beside the model, and what a cached beginning saves: `python -m benchmarks.engine_steps`.

Eight conversations are decoded; in each step the time inside onnxruntime is taken apart from the rest. Python's share
is counted in processor time of the stepping thread, which other programs on the machine disturb less than the clock.
Then a prompt of 512 tokens is answered cold and again, on both backends, in the row that has it and in a fresh one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

import genai_lab
from genai_lab.engine import Engine, Request, TurnOptions

PREFIX, OWN, ROWS, TOKENS = 512, 8, 8, 60


class Clocked:
    """An inference session that counts the time inside."""

    def __init__(self, session: Any) -> None:
        self._session, self.thread_ns = session, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, *arguments: Any) -> None:
        """Run, and count."""
        start = time.thread_time_ns()
        self._session.run_with_iobinding(*arguments)
        self.thread_ns += time.thread_time_ns() - start


def prompt(size: int, seed: int) -> NDArray[np.int32]:
    """Random token ids."""
    return np.random.default_rng(seed).integers(100, 40_000, size).astype(np.int32)


def ask(engine: Engine, tokens: NDArray[np.int32], most: int) -> Request:
    """Begin a greedy turn, without any processor."""
    request, options = engine.create_request(), TurnOptions()
    options.set_max_generated_tokens(most)
    request.begin_turn(tokens, options)
    return request


def python_share(model: genai_lab.Model, clock: Clocked, backend: str, recorded: bool) -> tuple[float, float]:
    """Milliseconds of a decode step of eight rows outside onnxruntime, and their share of the step; medians."""
    engine = Engine(model, kv_backend=backend)
    held = [ask(engine, prompt(20 + 5 * row, row), TOKENS) for row in range(ROWS)]
    own, whole = [], []
    with genai_lab.record() if recorded else nullcontext():
        while engine.has_pending_requests():
            clock.thread_ns, start = 0, time.thread_time_ns()
            decisions = engine.step()
            step = time.thread_time_ns() - start
            if [d.verdict.value for d in decisions] == ["decode"] * ROWS:
                own.append((step - clock.thread_ns) / 1e6)
                whole.append(step / 1e6)
            engine._outbox.events.clear()
    del held
    engine.close()
    return statistics.median(own), statistics.median(own) / statistics.median(whole)


def seconds_to_first_token(engine: Engine, tokens: NDArray[np.int32]) -> tuple[float, Request]:
    """Processor time of all threads, until the first token of an answer."""
    start = time.process_time()
    request = ask(engine, tokens, 1)
    engine.step()
    while not engine._outbox.events:
        engine.step()
    spent = time.process_time() - start
    engine._outbox.events.clear()
    return spent, request


def warm_start(model: genai_lab.Model, backend: str) -> dict[str, float]:
    """How many times as fast a cached beginning of 512 tokens brings the first token."""
    engine, held = Engine(model, kv_backend=backend), []
    seconds_to_first_token(engine, prompt(40, 1))
    cold = [seconds_to_first_token(engine, prompt(PREFIX + OWN, seed))[0] for seed in (2, 3)]
    begin = prompt(PREFIX, 4)
    found: dict[str, list[float]] = {"same row": [], "fresh row": []}
    for seed in range(6):
        tokens = np.concatenate([begin, prompt(OWN, 10 + seed)])
        spent, request = seconds_to_first_token(engine, tokens)
        if seed > 0:
            found["same row" if seed < 3 else "fresh row"].append(spent)
        if seed >= 2:
            held.append(request)  # keeps its row
    return {name: statistics.median(cold) / statistics.median(warm) for name, warm in found.items()}


def main() -> None:
    model = genai_lab.load("smollm2")
    clock = Clocked(model.session.inference)
    model.session.inference = clock
    backends: tuple[str, ...] = ("slots", "vm")
    table: list[tuple[str, Callable[[], str]]] = []
    for backend in backends:
        for recorded in (False, True):
            name = f"{backend}{', recorded' if recorded else ''}: outside onnxruntime"
            table.append((name, lambda b=backend, r=recorded: _share(python_share(model, clock, b, r))))  # type: ignore[misc]
        table.append((f"{backend}: {PREFIX} cached tokens", lambda b=backend: _times(warm_start(model, b))))  # type: ignore[misc]
    for name, measure in table:
        print(f"{name:40} {measure()}", flush=True)


def _share(measured: tuple[float, float]) -> str:
    return f"{measured[0]:.2f} ms of a step of {ROWS} rows = {measured[1]:.1%}"


def _times(measured: dict[str, float]) -> str:
    return ", ".join(f"{name}: {ratio:.0f} times as fast" for name, ratio in measured.items())


if __name__ == "__main__":
    main()
