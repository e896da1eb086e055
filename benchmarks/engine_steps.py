"""What an Engine spends beside the model, and what a cached beginning saves: `python -m benchmarks.engine_steps`.

Eight conversations are decoded by an engine alone; in each step the time inside onnxruntime is taken apart from the
rest. Python's share is counted in processor time of the stepping thread, which other programs on the machine disturb
less than the clock. What recording adds is the difference between two engines with the same conversations, one of them
recorded, that step in turns; once with memory for every row of logits, once with none left, so that each row is
digested in its step. Then a prompt of 512 tokens is answered cold and again, on both backends, in the row that has it
and in a fresh one.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import genai_lab
from genai_lab.engine import Engine, Request, TurnOptions
from genai_lab.tracing import NULL, Recorder

PREFIX, OWN, ROWS, TOKENS = 512, 8, 8, 45
ROUNDS = 4  # of a comparison of two engines
ROOM, FULL = 2 << 30, 0  # bytes for rows of logits that wait to be digested


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


class Crowd:
    """An engine with eight conversations, which go on past end tokens; two of them do the same."""

    def __init__(self, model: genai_lab.Model, clock: Clocked, backend: str, recorder: Recorder | None = None) -> None:
        self.engine = Engine(model, kv_backend=backend, tracer=NULL if recorder is None else recorder)
        self.engine._turns._eos = frozenset()
        self._clock, self._held = clock, [ask(self.engine, prompt(20 + 5 * n, n), TOKENS) for n in range(ROWS)]

    def step(self) -> tuple[bool, float, float]:
        """Whether all eight were decoded; milliseconds outside onnxruntime and of the whole step."""
        self._clock.thread_ns, start = 0, time.thread_time_ns()
        decisions = self.engine.step()
        step = time.thread_time_ns() - start
        self.engine._outbox.events.clear()
        decoded = [d.verdict.value for d in decisions] == ["decode"] * ROWS
        return decoded, (step - self._clock.thread_ns) / 1e6, step / 1e6


@dataclass
class Shares:
    """Decode steps of eight rows, in milliseconds of processor time."""

    own: list[float] = field(default_factory=list)  # outside onnxruntime, of an engine alone
    whole: list[float] = field(default_factory=list)  # the same steps
    plain: list[float] = field(default_factory=list)  # steps of an engine beside a recorded one
    added: list[list[float]] = field(default_factory=list)  # by recording, step by step, of each round
    beside: list[float] = field(default_factory=list)  # a step, in the threads that make memory ready, of each round

    def own_words(self) -> str:
        """What Python takes."""
        own, whole = statistics.median(self.own), statistics.median(self.whole)
        return f"{own:.2f} ms of a step of {whole:.1f} ms = {own / whole:.1%}"

    def added_words(self) -> str:
        """What recording adds."""
        whole, rounds = statistics.median(self.plain), [statistics.median(steps) for steps in self.added]
        added = statistics.median([one for steps in self.added for one in steps])
        least, most, beside = min(rounds), max(rounds), statistics.median(self.beside)
        span = f"({least:.2f} to {most:.2f}) ms = {added / whole:.2%} ({least / whole:.2%} to {most / whole:.2%})"
        return f"{added:.2f} {span}; {beside:.2f} ms in threads beside it"


def alone(model: genai_lab.Model, clock: Clocked, backend: str, shares: Shares) -> None:
    """One engine after another, nobody records."""
    for _ in range(ROUNDS):
        crowd = Crowd(model, clock, backend)
        while crowd.engine.has_pending_requests():
            decoded, own, whole = crowd.step()
            if decoded:
                shares.own.append(own)
                shares.whole.append(whole)
        crowd.engine.close()


def recording(model: genai_lab.Model, clock: Clocked, backend: str, logits_bytes: int, rounds: int = ROUNDS) -> Shares:
    """Two engines with the same conversations, one of them recorded, step in turns."""
    shares = Shares()
    for _ in range(rounds):
        recorder = Recorder(logits_bytes=logits_bytes)
        pair = [Crowd(model, clock, backend), Crowd(model, clock, backend, recorder)]
        added: list[float] = []
        began, steps = thread_ms(), 0
        while pair[0].engine.has_pending_requests():
            order = (0, 1) if steps % 2 else (1, 0)  # the second finds the processor's caches as the first left them
            found = {which: pair[which].step() for which in order}
            steps += 1
            if found[0][0] and found[1][0]:
                added.append(found[1][1] - found[0][1])
                shares.plain.append(found[0][2])
        shares.added.append(added)
        shares.beside.append((thread_ms() - began) / steps)
        for one in pair:
            one.engine.close()
    return shares


def thread_ms() -> float:
    """Processor time of the threads that make a recording's memory ready, in milliseconds."""
    makers = [t.ident for t in threading.enumerate() if t.name == "genai_lab rows" and t.ident is not None]
    return sum(time.clock_gettime_ns(time.pthread_getcpuclockid(ident)) for ident in makers) / 1e6


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
        shares = recording(model, clock, backend, ROOM)
        alone(model, clock, backend, shares)
        print(f"{backend + ': outside onnxruntime':40} {shares.own_words()}")
        print(f"{backend + ': recording adds':40} {shares.added_words()}", flush=True)
        table.append((f"{backend}: {PREFIX} cached tokens", lambda b=backend: _times(warm_start(model, b))))  # type: ignore[misc]
    shares = recording(model, clock, backends[0], FULL, rounds=2)
    print(f"{backends[0] + ': recording adds, no room left':40} {shares.added_words()}", flush=True)
    for name, measure in table:
        print(f"{name:40} {measure()}", flush=True)


def _times(measured: dict[str, float]) -> str:
    return ", ".join(f"{name}: {ratio:.0f} times as fast" for name, ratio in measured.items())


if __name__ == "__main__":
    main()
