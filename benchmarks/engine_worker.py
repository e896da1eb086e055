"""One fresh process: one way of serving one load of requests; prints JSON. Started by `engine_against_og`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Load = list[tuple[np.ndarray, int]]  # prompt, tokens to generate
PAD = 2  # the model's


def decode_heavy() -> Load:
    """Eight requests: prompts of 20 to 60 tokens, answers of 100 to 150."""
    rng = np.random.default_rng(1)
    return [
        (rng.integers(100, 40_000, int(rng.integers(20, 61))).astype(np.int32), int(rng.integers(100, 151)))
        for _ in range(8)
    ]


def mixed() -> Load:
    """Eight requests behind one system prompt of 200 tokens: own prompts of 20 to 400 tokens, answers of 20 to 60."""
    rng = np.random.default_rng(2)
    system = rng.integers(100, 40_000, 200)
    return [
        (
            np.concatenate([system, rng.integers(100, 40_000, int(rng.integers(20, 401)))]).astype(np.int32),
            int(rng.integers(20, 61)),
        )
        for _ in range(8)
    ]


def one_after_another(library: Any, model: Any, load: Load) -> int:
    """A Generator per request, in turn."""
    made = 0
    for prompt, tokens in load:
        params = library.GeneratorParams(model)
        params.set_search_options(max_length=len(prompt) + tokens, min_length=len(prompt) + tokens)
        generator = library.Generator(model, params)
        generator.append_tokens(prompt)
        while not generator.is_done():
            generator.generate_next_token()
            made += 1
    return made


def engine(library: Any, model: Any, load: Load) -> int:
    """The library's engine, everything asked at once."""
    served = library.Engine(model)
    buffer = served.create_event_buffer(64)
    requests = []
    for prompt, tokens in load:
        request = served.create_request()
        options = library.TurnOptions(request)
        options.set_max_generated_tokens(tokens)
        options.set_min_generated_tokens(tokens)
        request.begin_turn(prompt, options)
        requests.append(request)
    made = 0
    while served.has_pending_requests():
        served.run(buffer)
        made += sum(buffer[i].token is not None for i in range(len(buffer)))
    return made


def batch(library: Any, model: Any, load: Load) -> int:
    """One Generator for all: prompts are padded at their ends to the longest, and it runs until the longest answer is
    there."""
    longest, most = max(len(prompt) for prompt, _ in load), max(tokens for _, tokens in load)
    ids = np.full((len(load), longest), PAD, np.int32)
    for row, (prompt, _) in zip(ids, load, strict=True):
        row[: len(prompt)] = prompt
    params = library.GeneratorParams(model)
    length = longest + most
    params.set_search_options(batch_size=len(load), max_length=length, min_length=length)
    generator = library.Generator(model, params)
    generator.append_tokens(ids)
    while not generator.is_done():
        generator.generate_next_token()
    return sum(tokens for _, tokens in load)


WAYS: dict[str, Callable[[Any, Any, Load], int]] = {
    "sequential": one_after_another,
    "engine": engine,
    "batch": batch,
}
LOADS = {"decode-heavy": decode_heavy, "mixed": mixed}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module", choices=["genai_lab", "onnxruntime_genai"])
    parser.add_argument("way", choices=[*WAYS])
    parser.add_argument("load", choices=[*LOADS])
    parser.add_argument("folder")
    arguments = parser.parse_args()
    library = __import__(arguments.module)
    model = library.Model(arguments.folder)
    load = LOADS[arguments.load]()
    WAYS[arguments.way](library, model, [(load[0][0][:16], 2)])  # warm up
    start = time.perf_counter()
    tokens = WAYS[arguments.way](library, model, load)
    print(json.dumps({"seconds": time.perf_counter() - start, "tokens": tokens}))


if __name__ == "__main__":
    main()
