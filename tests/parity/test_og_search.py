"""Batches and beams: the same folder, run by onnxruntime-genai and by us, gives the same tokens.

Known differences, by choice: a row of a ragged batch is scored and penalised by its own tokens, where onnxruntime-genai
counts the padding too (length_penalty, min_length, repetition_penalty with prompts of different lengths).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og
PAD = 2


@pytest.fixture(scope="module")
def models(tiny_folder: Path) -> tuple[object, object]:
    return og.Model(str(tiny_folder)), genai_lab.Model(tiny_folder)


def sequences(
    library: object, model: object, prompts: NDArray[np.int32], options: dict[str, object]
) -> list[list[int]]:
    """Every result of one generator."""
    params = library.GeneratorParams(model)  # type: ignore[attr-defined]
    params.set_search_options(**options)
    made = library.Generator(model, params)  # type: ignore[attr-defined]
    made.append_tokens(prompts)
    while not made.is_done():
        made.generate_next_token()
    count = int(options["batch_size"]) * int(options.get("num_return_sequences", 1))  # type: ignore[call-overload]
    return [made.get_sequence(index).tolist() for index in range(count)]


def random_case(seed: int) -> tuple[NDArray[np.int32], dict[str, object]]:
    """Prompts and options that both libraries answer alike."""
    rng = np.random.default_rng(seed)
    batch, beams = int(rng.integers(1, 5)), int(rng.choice([1, 2, 3, 5]))
    width = int(rng.integers(1, 9))
    prompts = rng.integers(3, 250, (batch, width)).astype(np.int32)
    options: dict[str, object] = {
        "batch_size": batch,
        "num_beams": beams,
        "max_length": width + int(rng.integers(1, 40)),
    }
    if beams > 1:
        options["num_return_sequences"] = int(rng.integers(1, beams + 1))
        options["length_penalty"] = float(rng.choice([0.0, 0.5, 1.0, 2.0]))
        options["early_stopping"] = bool(rng.random() < 0.5)
    elif rng.random() < 0.5:
        options |= {"do_sample": True, "random_seed": seed, "top_k": int(rng.choice([3, 20, 100]))}
        options |= {"top_p": float(rng.choice([0.0, 0.7])), "temperature": float(rng.choice([1.0, 5.0]))}
    if rng.random() < 0.3:
        options["repetition_penalty"] = float(rng.choice([1.3, 0.8]))
    if rng.random() < 0.3:
        options["min_length"] = int(rng.integers(1, 20))
    if rng.random() < 0.2:
        options["no_repeat_ngram_size"] = 2
    if "length_penalty" not in options and not {"repetition_penalty", "min_length"} & set(options):
        for row in range(1, batch):  # ragged: padded on the right, as onnxruntime-genai can
            prompts[row, int(rng.integers(1, width + 1)) :] = PAD
    return prompts, options


@pytest.mark.parametrize("block", range(10))
def test_random_searches_find_ogs_sequences(models: tuple[object, object], block: int) -> None:
    for seed in range(block * 12, block * 12 + 12):
        prompts, options = random_case(seed)
        expected = sequences(og, models[0], prompts, options)
        assert sequences(genai_lab, models[1], prompts, options) == expected, (seed, options, prompts.tolist())


def test_a_left_padded_row_is_masked_here_and_read_as_text_there(models: tuple[object, object]) -> None:
    options: dict[str, object] = {"batch_size": 2, "max_length": 12}
    prompts = np.array([[10, 11, 12, 13], [PAD, PAD, 12, 13]], np.int32)
    alone = sequences(genai_lab, models[1], np.array([[12, 13]]), {"batch_size": 1, "max_length": 10})[0]
    assert sequences(genai_lab, models[1], prompts, options)[1][4:] == alone[2:]
    assert sequences(og, models[0], prompts, options)[1][4:] != alone[2:]


@pytest.mark.parametrize(
    "plan", [[[2, 2]], [[7, 8], [2, 2]], [[2, 8], [7, 2]], [[7, 2], [2, 8]], [[7, 2], [9, 8], [2, 3]]]
)
def test_the_end_of_a_batch_looks_the_same(models: tuple[object, object], plan: list[list[int]]) -> None:
    """Each row is told its tokens; 2 ends a row."""
    found = []
    for library, model in zip((og, genai_lab), models, strict=True):
        params = library.GeneratorParams(model)
        params.set_search_options(max_length=12, batch_size=2)
        made = library.Generator(model, params)
        made.append_tokens(np.array([[5, 6], [5, 6]], np.int32))
        for tokens in plan:
            logits = np.full_like(made.get_logits(), -10)
            for row, token in enumerate(tokens):
                logits[row, 0, token] = 10
            made.set_logits(logits)
            made.generate_next_token()
        found.append(([made.get_sequence(row).tolist() for row in range(2)], made.is_done(), made.token_count()))
    assert found[0] == found[1]
    assert found[0][1]
