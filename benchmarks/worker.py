"""One fresh process of one arm: load the folder, time prefill and decode, print JSON. Started by `benchmarks.__main__`.

Both libraries are driven through the same calls; an arm named twice (the A/A arm) shows what noise alone does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

DECODE_TOKENS = 48
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


def generator_of(library: Any, model: Any, max_length: int) -> Any:
    """A greedy generator that does not stop before max_length."""
    params = library.GeneratorParams(model)
    params.set_search_options(max_length=max_length, min_length=max_length)
    return library.Generator(model, params)


def prompt(tokens: int) -> np.ndarray:
    """The same made-up prompt for every arm, int32 [tokens]."""
    return np.random.default_rng(tokens).integers(100, 40_000, size=tokens).astype(np.int32)


def prefill_ms(library: Any, model: Any, tokens: int, clock: Clock = time.perf_counter) -> float:
    """Time until a prompt's logits are there."""
    generator = generator_of(library, model, tokens + 8)
    ids = prompt(tokens)
    start = clock()
    generator.append_tokens(ids)
    return (clock() - start) * 1e3


def decode_ms(library: Any, model: Any, context: int, clock: Clock = time.perf_counter) -> float:
    """Median time of a token after `context` tokens."""
    generator = generator_of(library, model, context + DECODE_TOKENS + 2)
    generator.append_tokens(prompt(context))
    generator.generate_next_token()  # its logits come from the prefill
    times = []
    for _ in range(DECODE_TOKENS):
        start = clock()
        generator.generate_next_token()
        times.append(clock() - start)
    return statistics.median(times) * 1e3


def peak_mib() -> float:
    """Largest resident set of this process so far."""
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module", choices=["genai_lab", "onnxruntime_genai"])
    parser.add_argument("folder")
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--clock", choices=[*CLOCKS], default="wall")
    arguments = parser.parse_args()
    clock = CLOCKS[arguments.clock]
    library = importlib.import_module(arguments.module)
    start = time.perf_counter()
    model = library.Model(arguments.folder)
    generator_of(library, model, 64)
    result = {"load_s": time.perf_counter() - start}
    prefill_ms(library, model, 64)  # warm up
    result[f"prefill_{arguments.prefill}_ms"] = min(
        prefill_ms(library, model, arguments.prefill, clock) for _ in range(2)
    )
    for context in arguments.contexts:
        result[f"decode_{context}_ms"] = decode_ms(library, model, context, clock)
    result["peak_mib"] = peak_mib()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
