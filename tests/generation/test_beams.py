"""Beam search in a generator: every beam's cache is that beam's; results are what the search found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, StateError
from genai_lab.generation.beams import Beams


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def generator(model: og.Model, **options: object) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**options)
    return og.Generator(model, params)


@pytest.mark.parametrize("batch", [1, 2])
def test_the_logits_of_every_beam_are_those_of_its_text_read_anew(model: og.Model, batch: int) -> None:
    """The cache's rows are moved to where their continuation is; a wrong move would show here."""
    made = generator(model, num_beams=4, batch_size=batch, max_length=40)
    made.append_tokens(np.array([[10, 20, 30], [40, 50, 60]][:batch]))
    for _ in range(12):
        made.generate_next_token()
    search = made._search
    assert isinstance(search, Beams)
    logits = made.get_logits()
    for row, tokens in enumerate(search._rows):
        fresh = generator(model, max_length=40)
        fresh.append_tokens(tokens)
        np.testing.assert_allclose(logits[row, 0], fresh.get_logits()[0, 0], atol=2e-4)


def test_the_score_of_a_result_is_the_likelihood_of_its_text(model: og.Model) -> None:
    made = generator(model, num_beams=3, num_return_sequences=3, max_length=9)
    made.append_tokens([10, 20, 30])
    while not made.is_done():
        made.generate_next_token()
    search = made._search
    assert isinstance(search, Beams)
    scores = []
    for text in search.results(0):
        reader = generator(model, max_length=12)
        reader.append_tokens([10, 20, 30])
        total = 0.0
        for token in text.tokens[3:].tolist():
            logits = reader.get_logits()[0, 0].astype(np.float64)
            total += logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            reader.append_tokens([token])
        assert text.score == pytest.approx(total / text.tokens.size, rel=1e-3)
        scores.append(text.score)
    assert scores == sorted(scores, reverse=True)
    assert [made.get_sequence(i).tolist() for i in range(3)] == [t.tokens.tolist() for t in search.results(0)]


def test_more_beams_find_texts_that_are_at_least_as_likely(model: og.Model) -> None:
    def score(beams: int) -> float:
        made = generator(model, num_beams=beams, max_length=12, min_length=12)
        made.append_tokens([10, 20, 30])
        while not made.is_done():
            made.generate_next_token()
        assert isinstance(made._search, Beams)
        return made._search.results(0)[0].score

    assert score(8) >= score(2) - 1e-6


def test_ragged_prompts_are_searched_as_if_alone(model: og.Model) -> None:
    def result(prompts: list[list[int]], row: int) -> list[int]:
        made = generator(model, num_beams=3, batch_size=len(prompts), max_length=len(prompts[0]) + 8)
        made.append_tokens(np.array(prompts))
        while not made.is_done():
            made.generate_next_token()
        return made.get_sequence(row).tolist()

    together = result([[10, 20, 30, 40], [50, 60, 2, 2]], 1)
    assert together[:4] == [50, 60, 2, 2]
    assert together[4:12] == result([[50, 60]], 0)[2:10]


def test_what_beam_search_cannot_do_is_said(model: og.Model) -> None:
    made = generator(model, num_beams=2, max_length=12)
    made.append_tokens([10, 20])
    made.generate_next_token()
    with pytest.raises(StateError, match="cannot go back"):
        made.rewind_to(0)
    with pytest.raises(StateError, match="reads its prompt once"):
        made.append_tokens([10])
    with pytest.raises(ArgumentError, match="num_return_sequences"):
        generator(model, num_beams=2, num_return_sequences=3)
    with pytest.raises(ArgumentError, match="does not draw"):
        generator(model, num_beams=2, do_sample=True)
