"""One fresh process of one way to search: load the folder, run it once to warm up, time it, print JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROMPT, NEW, ROWS, BEAMS = 30, 96, 8, 4
GRAMMAR = r"[a-z ]{400}"  # longer than what is generated: it never ends


def prompts(rows: int) -> NDArray[np.int32]:
    """Random token ids [rows, PROMPT], the same for every library."""
    return np.random.default_rng(7).integers(100, 40_000, (rows, PROMPT)).astype(np.int32)


def generator(
    library: Any, model: Any, ids: NDArray[np.int32], prepare: Callable[[Any], None] | None = None, **options: Any
) -> Any:
    """A generator that has read `ids` and does not end by itself."""
    params = library.GeneratorParams(model)
    length = PROMPT + NEW
    params.set_search_options(max_length=length, **({"min_length": length} | options))
    if prepare is not None:
        prepare(params)
    made = library.Generator(model, params)
    made.append_tokens(ids)
    return made


def finish(made: Any) -> None:
    """Generate to the end."""
    while not made.is_done():
        made.generate_next_token()


def batch(library: Any, model: Any) -> None:
    """Eight prompts in one generator."""
    finish(generator(library, model, prompts(ROWS), batch_size=ROWS))


def in_turn(library: Any, model: Any) -> None:
    """Eight generators, one after another."""
    for row in prompts(ROWS):
        finish(generator(library, model, row))


def beams(library: Any, model: Any) -> None:
    """Beam search over one prompt."""
    finish(generator(library, model, prompts(1)[0], num_beams=BEAMS))


def guided(library: Any, model: Any) -> None:
    """Greedy under a grammar."""
    finish(generator(library, model, prompts(1)[0], lambda p: p.set_guidance("regex", GRAMMAR), min_length=0))


def own_processor(library: Any, model: Any) -> None:
    """A person's own change of the logits: a processor here, get_logits and set_logits there."""

    def no_low_ids(_tokens: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        logits[:50] = -np.inf

    if hasattr(library.GeneratorParams, "add_logits_processor"):
        finish(generator(library, model, prompts(1)[0], lambda p: p.add_logits_processor(no_low_ids)))
        return
    made = generator(library, model, prompts(1)[0])
    while not made.is_done():
        logits = made.get_logits()
        no_low_ids(made.get_sequence(0), logits[0, 0])
        made.set_logits(logits)
        made.generate_next_token()


WAYS = {"batch": batch, "in turn": in_turn, "beams": beams, "guided": guided, "own processor": own_processor}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module", choices=["genai_lab", "onnxruntime_genai"])
    parser.add_argument("way", choices=[*WAYS])
    parser.add_argument("folder")
    arguments = parser.parse_args()
    library = importlib.import_module(arguments.module)
    model = library.Model(arguments.folder)
    way = WAYS[arguments.way]
    way(library, model)
    start = time.perf_counter()
    way(library, model)
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
