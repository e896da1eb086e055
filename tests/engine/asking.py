"""Random prompts, what a Generator answers to them, and asking an engine the same."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab
from genai_lab.engine import Engine, EngineEvent, TurnOptions
from genai_lab.kvcache import VmStore, check_cache, raise_if_broken

Tokens = NDArray[np.int32]
SAMPLED = {"do_sample": True, "top_k": 20, "temperature": 1.5, "repetition_penalty": 1.2}


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


def turn(count: int, seed: int | None = None, **options: object) -> TurnOptions:
    """Options of a turn of at most `count` tokens."""
    made = TurnOptions()
    made.set_max_generated_tokens(count)
    for name, value in options.items():
        getattr(made, f"set_{name}")(value)
    if seed is not None:
        made.set_seed(seed)
    return made


def drain(engine: Engine) -> list[EngineEvent]:
    """Run until nothing is left; every step's cache is checked."""
    buffer, events = engine.create_event_buffer(5), []
    while engine.has_pending_requests():
        engine.run(buffer)
        raise_if_broken(check_cache(engine._cache.snapshot()))
        events += list(buffer)
    return events


def answers(engine: Engine, asked: list[Tokens], count: int, **options: object) -> list[list[int]]:
    """Ask everything at once; the answers in order."""
    requests = [engine.create_request() for _ in asked]
    for number, (request, prompt) in enumerate(zip(requests, asked, strict=True)):
        request.begin_turn(prompt, turn(count, seed=number if options else None, **options))
    found: dict[int, list[int]] = {request.number: [] for request in requests}
    for event in drain(engine):
        if event.token is not None and event.request is not None:
            found[event.request.number].append(event.token)
    return [found[request.number] for request in requests]


def skip_without_pages(mode: dict[str, object]) -> None:
    """The mapped backend needs Linux; everywhere else its modes are skipped, and say why."""
    availability = VmStore.is_available()
    if mode.get("kv_backend") == "vm" and not availability.available:
        pytest.skip(availability.reason)
