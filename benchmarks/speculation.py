"""What speculation gains on the shipped pair, on text that it knows: greedy answers, every way in turn on each prompt.

    python -m benchmarks.speculation                 the table, with one thread
    python -m benchmarks.speculation --threads 2

Every way writes the same tokens, which is checked. A ratio is the median over prompts of that prompt's plain time over
its speculative time, with a 95 % bootstrap interval: neighbours in time see the same load of the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import genai_lab
from benchmarks.statistics_of import spread
from genai_lab.workbench.default_model import model_folder
from tools.tiny.text import read_book

PROMPT, ANSWER = 48, 96  # tokens


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write an answer."""

    name: str
    package: str
    model: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    recorded: bool = False


PLAIN = Way("plain", "genai_lab", "tiny")
OG_PLAIN = Way("onnxruntime-genai, plain", "onnxruntime_genai", "tiny")
WAYS = (
    PLAIN,
    Way("plain once more (A/A)", "genai_lab", "tiny"),
    *(Way(f"draft, {k} tokens", "genai_lab", "tiny-speculative", {"max_draft_tokens": k}) for k in (2, 4, 6)),
    Way("draft, adaptive from 2", "genai_lab", "tiny-speculative", {"min_adaptive_k": 2}),
    Way("draft, 4 tokens, recorded", "genai_lab", "tiny-speculative", {"max_draft_tokens": 4}, recorded=True),
    Way("n-grams of 3, 4 tokens", "genai_lab", "tiny", {"max_draft_tokens": 4, "ngram_size": 3}),
    OG_PLAIN,
    Way("onnxruntime-genai, draft, 4 tokens", "onnxruntime_genai", "tiny-speculative", {"max_draft_tokens": 4}),
)


@dataclass(slots=True)
class Measured:
    """Of one way, an answer each."""

    wall_us: list[float] = field(default_factory=list)  # a token
    cpu_us: list[float] = field(default_factory=list)
    rounds: int = 0
    tokens: int = 0  # that the rounds gave


def load(way: Way, threads: int) -> Any:
    """The way's model with `threads` threads."""
    library = importlib.import_module(way.package)
    config = library.Config(str(model_folder(way.model)))
    section = {"session_options": {"intra_op_num_threads": threads}}
    sections = {"decoder": section} | ({"draft": section} if way.model == "tiny-speculative" else {})
    config.overlay(json.dumps({"model": sections}))
    return library.Model(config)


def answer(way: Way, model: Any, prompt: np.ndarray, into: Measured) -> list[int]:
    """One answer; its times are added."""
    library = importlib.import_module(way.package)
    params = library.GeneratorParams(model)
    params.set_search_options(max_length=PROMPT + ANSWER)
    params.set_speculative_options(**way.options)
    generator = library.Generator(model, params)
    generator.append_tokens(prompt)
    wall, cpu = time.perf_counter(), time.process_time()
    if way.recorded:
        with genai_lab.record():
            _write(generator)
    else:
        _write(generator)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tokens = generator.get_sequence(0).tolist()
    into.wall_us.append(wall / (len(tokens) - PROMPT) * 1e6)
    into.cpu_us.append(cpu / (len(tokens) - PROMPT) * 1e6)
    stats = generator.get_speculative_stats()
    into.rounds, into.tokens = into.rounds + stats["rounds"], into.tokens + stats["tokens_emitted"]
    return [int(token) for token in tokens]


def _write(generator: Any) -> None:
    while not generator.is_done():
        generator.generate_next_token()


def measure(prompts: int = 24, threads: int = 1) -> dict[Way, Measured]:
    """Every way on every prompt, in shuffled order."""
    models = {way: load(way, threads) for way in WAYS}
    text = genai_lab.Tokenizer(genai_lab.Model(model_folder("tiny"))).encode(read_book().by_heart)
    measured = {way: Measured() for way in WAYS}
    order = list(WAYS)
    chance = random.Random(0)
    for number, start in enumerate([0, *np.linspace(0, text.size - PROMPT, prompts).astype(int)]):
        chance.shuffle(order)
        into = measured if number else {way: Measured() for way in WAYS}  # the first is for warming up
        told = {way: answer(way, models[way], text[start : start + PROMPT], into[way]) for way in order}
        different = [way.name for way in WAYS if told[way] != told[PLAIN]]
        if different:
            raise AssertionError(f"at token {start} other tokens than plain decoding's: {', '.join(different)}")
    return measured


def gain(plain: list[float], other: list[float]) -> str:
    """How many times faster, prompt by prompt."""
    ratios = np.array(plain) / np.array(other)
    medians = np.median(np.random.default_rng(0).choice(ratios, (4000, ratios.size)), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return f"{np.median(ratios):.2f} ({low:.2f} to {high:.2f})"


def table(measured: dict[Way, Measured]) -> str:
    """As Markdown."""
    lines = [
        "| way | µs a token | processor µs a token | faster than plain | by processor time | tokens a round |",
        "|---|---|---|---|---|---|",
    ]
    for way, one in measured.items():
        plain = measured[OG_PLAIN if way.package == OG_PLAIN.package else PLAIN]
        ratios = (
            "|"
            if way in (PLAIN, OG_PLAIN)
            else f"{gain(plain.wall_us, one.wall_us)} | {gain(plain.cpu_us, one.cpu_us)}"
        )
        a_round = f"{one.tokens / one.rounds:.2f}" if one.rounds else ""
        lines.append(f"| {way.name} | {spread(one.wall_us)} | {spread(one.cpu_us)} | {ratios} | {a_round} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speculation", description=main.__doc__)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print(table(measure(arguments.prompts, arguments.threads)))


if __name__ == "__main__":
    main()
