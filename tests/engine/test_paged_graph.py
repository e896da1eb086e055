"""An Engine on a graph that reads block tables answers as a Generator does on the same weights with rows of its own."""

from __future__ import annotations

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Engine
from tests.engine.asking import Tokens, alone, answers
from tests.graphs import VOCABULARY, plain_decoder
from tests.graphs_paged import paged_decoder


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(plain_decoder(tmp_path_factory.mktemp("dense") / "model"))


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(paged_decoder(tmp_path_factory.mktemp("paged") / "model"))


def asked(*sizes: int, seed: int = 0, shared: int = 0) -> list[Tokens]:
    """Random prompts that begin with the same `shared` tokens."""
    rng = np.random.default_rng(seed)
    head = rng.integers(2, VOCABULARY, shared)
    return [np.concatenate([head, rng.integers(2, VOCABULARY, size)]).astype(np.int32) for size in sizes]


def test_one_request_gets_the_tokens_of_the_same_weights_without_blocks(
    dense: genai_lab.Model, paged: genai_lab.Model
) -> None:
    prompt = asked(9)[0]
    assert answers(Engine(paged, check_invariants=True), [prompt], 20) == [alone(dense, prompt, 20)]
