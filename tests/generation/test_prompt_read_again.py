"""A prompt that is read again, in whatever parts, gives the same numbers, bit by bit.

The model is int4, because there ONNX Runtime computes a token alone in another way than a token among others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab as og
from tests.tiny import tiny_model_folder

LENGTH = 10  # tokens of an answer
Answer = tuple[list[int], list[NDArray[np.float32]]]


@pytest.fixture(scope="module")
def int4(tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    return og.Model(tiny_model_folder(tmp_path_factory.mktemp("int4") / "model", "int4"))


@pytest.fixture(scope="module")
def default(model_folder: Path) -> og.Model:
    return og.Model(model_folder)


def new(model: og.Model) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=100)
    return og.Generator(model, params)


def prompt_of(model: og.Model) -> list[int]:
    return np.random.default_rng(3).integers(3, min(5000, model.vocab_size - 50), 20).tolist()


def answer(generator: og.Generator, tokens: int = LENGTH) -> Answer:
    chosen: list[int] = []
    logits: list[NDArray[np.float32]] = []
    while len(chosen) < tokens and not generator.is_done():
        logits.append(generator.get_logits())
        generator.generate_next_token()
        chosen.append(int(generator.get_next_tokens()[0]))
    return chosen, logits


def rewound(length: int) -> Callable[[og.Generator, list[int]], og.Generator]:
    def back(generator: og.Generator, prompt: list[int]) -> og.Generator:
        generator.rewind_to(length)
        if prompt[length:]:
            generator.append_tokens(prompt[length:])
        return generator

    return back


def forked(length: int) -> Callable[[og.Generator, list[int]], og.Generator]:
    return lambda generator, prompt: rewound(length)(generator.fork(length), prompt)


def one_by_one(generator: og.Generator, prompt: list[int]) -> og.Generator:
    made = new(generator.model)
    for token in prompt:
        made.append_tokens([token])
    return made


WAYS = {f"{way.__name__} to {n}": way(n) for way in (rewound, forked) for n in (1, 10, 18, 19, 20)}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["int4", "default"])
@pytest.mark.parametrize("again", [*WAYS.values(), one_by_one], ids=[*WAYS, "one by one"])
def test_the_answer_is_the_first_one_again(
    model: str, again: Callable[[og.Generator, list[int]], og.Generator], request: pytest.FixtureRequest
) -> None:
    loaded = request.getfixturevalue(model)
    prompt, first = prompt_of(loaded), new(loaded)
    first.append_tokens(prompt)
    chosen, logits = answer(first)
    chosen_again, logits_again = answer(again(first, prompt))
    assert chosen_again == chosen
    np.testing.assert_array_equal(logits_again, logits)


@pytest.mark.parametrize("index", [0, 1, 4])
def test_a_token_of_an_answer_is_read_alone_whoever_puts_it_there(int4: og.Model, index: int) -> None:
    prompt, first = prompt_of(int4), new(int4)
    first.append_tokens(prompt)
    chosen, logits = answer(first)
    drawn, by_hand = (first.fork(len(prompt) + index) for _ in range(2))
    by_hand.append_tokens([chosen[index]])
    for generator, start in ((drawn, index), (by_hand, index + 1)):
        tokens, found = answer(generator, LENGTH - start)
        assert tokens == chosen[start:]
        np.testing.assert_array_equal(found, logits[start:])
