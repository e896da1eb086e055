"""What a decode run takes by its rows, and a chunk of a prompt by its tokens: `python -m benchmarks.decode_rows`.

97 % of an engine's step is the model's run, so these times set how much faster a batch can be than its rows in turn.
Rows hold 100 tokens each. Every round measures all sizes in shuffled order.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import genai_lab

ROWS, HELD = range(1, 9), 100
CHUNKS = (16, 32, 64, 128, 256)
ROUNDS, TRIES = 12, 4


def milliseconds(act: Callable[[], object], tries: int) -> float:
    """The shortest of some tries."""
    found = []
    for _ in range(tries):
        start = time.perf_counter()
        act()
        found.append((time.perf_counter() - start) * 1e3)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", help="a model folder; the default model without it")
    folder = parser.parse_args().folder
    model = genai_lab.Model(folder) if folder else genai_lab.load("smollm2")
    rows = genai_lab.Engine(model, max_batch_size=len(ROWS))._runs.executor
    dice = np.random.default_rng(0)
    text = dice.integers(100, 40_000, max(CHUNKS)).astype(np.int32)
    for row in range(len(ROWS)):
        rows.chunk(row, text[:HELD], 0)
    decode: dict[int, list[float]] = {count: [] for count in ROWS}
    chunk: dict[int, list[float]] = {size: [] for size in CHUNKS}
    for _ in range(ROUNDS):
        for count in dice.permutation(ROWS).tolist():
            held = np.full(count, HELD)
            decode[count].append(milliseconds(lambda n=count, c=held: rows.decode(0, text[:n], c), TRIES))  # type: ignore[misc]
        for size in dice.permutation(CHUNKS).tolist():
            chunk[size].append(milliseconds(lambda n=size: rows.chunk(0, text[:n], 0), 1))  # type: ignore[misc]
    for what, times in (("decode run of {} rows", decode), ("chunk of {} tokens", chunk)):
        for count, found in times.items():
            whole = statistics.median(found)
            print(f"{what.format(count):24} {whole:7.1f} ms, {whole / count:6.2f} each")


if __name__ == "__main__":
    main()
