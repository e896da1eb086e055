"""What recording costs: one generator, plain and recorded blocks of steps taken in turn."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import genai_lab
from benchmarks.statistics_of import Ratio, ratio_of_medians
from benchmarks.worker import generator_of, prompt
from genai_lab.tracing import NULL

BLOCK = 16  # tokens
CONTEXT = 128


def steps_ms(generator: Any, count: int) -> list[float]:
    """Times of `count` decode steps."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        generator.generate_next_token()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def measure(folder: Path, rounds: int) -> tuple[Ratio, float, float]:
    """Recorded / plain step time; microseconds a plain step spends on the null tracer; microseconds per token to digest
    what was recorded, paid when the trace is read."""
    model = genai_lab.Model(folder)
    plain, recorded, digests = [], [], []
    for _ in range(rounds):
        for kind in ("plain", "recorded", "recorded", "plain"):
            generator = generator_of(genai_lab, model, CONTEXT + BLOCK + 4)
            generator.append_tokens(prompt(CONTEXT))
            generator.generate_next_token()
            if kind == "plain":
                plain.append(statistics.median(steps_ms(generator, BLOCK)))
                continue
            with genai_lab.record() as trace:
                recorded.append(statistics.median(steps_ms(generator, BLOCK)))
            start = time.perf_counter()
            assert trace.recorder is not None
            trace.recorder.settle()
            digests.append((time.perf_counter() - start) / BLOCK * 1e6)
    return ratio_of_medians(recorded, plain), null_tracer_us(), statistics.median(digests)


def null_tracer_us() -> float:
    """Time of the tracer calls and clock readings of one plain decode step, with nobody recording."""
    repeats = 20_000
    start = time.perf_counter_ns()
    for _ in range(repeats):
        for _ in range(6):
            NULL.stage(0, 0, "select", time.perf_counter_ns(), time.perf_counter_ns())
    return (time.perf_counter_ns() - start) / repeats / 1e3
