"""Rows of different lengths where attention counts the mask's ones: each is that row alone, in one file or several."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.models.row_front import known_front
from tests.graphs import plain_decoder
from tests.graphs_hybrid import hybrid
from tests.graphs_split import llama_in_stages, llama_with_convolution
from tests.graphs_stages import pipeline

ROWS = [[5, 6, 7, 9], [8], [9, 10]]
COUNTING: dict[str, Callable[[Path], Path]] = {"stages": llama_in_stages, "a convolution": llama_with_convolution}
PLACES: dict[str, Callable[[Path], Path]] = {
    "one file": plain_decoder,
    "keys and values together": lambda path: plain_decoder(path, combined=True),
    "stages of plain operators": pipeline,
    "a recurrence": hybrid,
}


@pytest.fixture(scope="module", params=COUNTING)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(COUNTING[request.param](tmp_path_factory.mktemp("counting") / "model"))


def answers(model: genai_lab.Model, rows: list[list[int]], new: int, **options: Any) -> list[list[int]]:
    """What follows each row's prompt, up to the token that ends it."""
    width, pad = max(map(len, rows)), model.config.model.pad_token_id
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=width + new, batch_size=len(rows), **options)
    generator = genai_lab.Generator(model, params)
    generator.append_tokens(np.array([[*row, *[pad] * (width - len(row))] for row in rows], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    found = [generator.get_sequence(n).tolist()[width:] for n in range(len(rows))]
    ends = model.config.model.eos_token_ids
    return [list(takewhile(lambda token: token not in ends, answer)) for answer in found]


@pytest.mark.parametrize("beams", [1, 3])
def test_a_row_is_that_row_alone(model: genai_lab.Model, beams: int) -> None:
    together = answers(model, ROWS, 12, num_beams=beams)
    assert together == [answers(model, [row], 12, num_beams=beams)[0] for row in ROWS]
    assert len({tuple(answer) for answer in together}) == len(ROWS)
    assert known_front(model)


@pytest.mark.parametrize("kind", PLACES)
def test_a_graph_that_looks_at_places_is_not_taken_for_one_that_counts(tmp_path: Path, kind: str) -> None:
    model = genai_lab.Model(PLACES[kind](tmp_path / "model"))
    together = answers(model, ROWS, 6)
    assert together == [answers(model, [row], 6)[0] for row in ROWS]
    assert known_front(model) is False
