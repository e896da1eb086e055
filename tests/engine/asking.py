"""Random prompts, and what a Generator answers to them: what an engine is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import genai_lab

Tokens = NDArray[np.int32]


def prompts(*sizes: int, seed: int = 0, shared: int = 0) -> list[Tokens]:
    """Random prompts that begin with the same `shared` tokens."""
    rng = np.random.default_rng(seed)
    head = rng.integers(3, 250, shared)
    return [np.concatenate([head, rng.integers(3, 250, size)]).astype(np.int32) for size in sizes]


def alone(model: genai_lab.Model, prompt: Tokens, count: int, seed: int | None = None, **options: object) -> list[int]:
    """The answer of a Generator, without the end token."""
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + count, random_seed=-1 if seed is None else seed, **options)
    generator = genai_lab.Generator(model, params)
    generator.append_tokens(prompt)
    answer = []
    while not generator.is_done():
        generator.generate_next_token()
        answer.append(int(generator.get_next_tokens()[0]))
    return [token for token in answer if token not in model.config.model.eos_token_ids]
