"""Beam search alone: what it chooses, what it remembers as finished, when it is over."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_lab.sampling.beam import BeamSearch, Candidate, log_softmax

END = 0


def rows(*tokens: list[int]) -> list[NDArray[np.int32]]:
    return [np.array(row, np.int32) for row in tokens]


def table_of_logits(seed: int, vocabulary: int) -> NDArray[np.float32]:
    """[V, V] logits of the next token by the last one: a language model of one token's memory."""
    return np.random.default_rng(seed).normal(size=(vocabulary, vocabulary)).astype(np.float32)


def search_all(table: NDArray[np.float32], start: int, length: int, width: int) -> list[tuple[list[int], float]]:
    """Texts of `length` tokens without the end token, best first, by looking at every one of them."""
    logs = log_softmax(table)
    found = []
    for tail in itertools.product(range(1, table.shape[0]), repeat=length - 1):
        text = [start, *tail]
        found.append((text, float(sum(logs[a, b] for a, b in itertools.pairwise(text)))))
    return sorted(found, key=lambda each: -each[1])[:width]


@pytest.mark.parametrize("seed", range(5))
def test_with_enough_beams_the_best_texts_are_found(seed: int) -> None:
    """Beams as many as there are texts: nothing is given up, so the search is exhaustive."""
    table, length = table_of_logits(seed, 4), 4
    table[:, END] = -50.0
    beams = BeamSearch(27, {END})
    texts = rows(*[[2]] * 27)
    for _ in range(length - 1):
        step = beams.advance(beams.candidates(table[[row[-1] for row in texts]]), texts)
        texts = [np.append(texts[c.parent], np.int32(c.token)) for c in step.chosen]
    best = search_all(table, 2, length, 3)
    results = beams.results(texts, 3)
    assert [r.tokens.tolist() for r in results] == [text for text, _ in best]
    np.testing.assert_allclose([r.score for r in results], [s / length for _, s in best], rtol=1e-4)


def test_only_the_first_beam_is_continued_from_the_prompt() -> None:
    beams = BeamSearch(3, {END})
    logits = np.tile(np.array([0, 4, 3, 2, 1], np.float32), (3, 1))
    candidates = beams.candidates(logits)
    assert [c.token for c in candidates[:4]] == [1, 2, 3, 4]
    assert {c.parent for c in candidates[:4]} == {0}


def test_an_end_among_the_best_is_remembered_and_a_worse_one_forgotten() -> None:
    beams = BeamSearch(2, {END})
    kept = beams.advance([Candidate(0, END, -1.0), Candidate(0, 5, -2.0), Candidate(0, 6, -3.0)], rows([7, 8], [7, 8]))
    assert [h.tokens.tolist() for h in kept.finished] == [[7, 8]]
    assert kept.finished[0].score == pytest.approx(-0.5)
    forgotten = beams.advance(
        [Candidate(0, 5, -2.5), Candidate(1, 5, -2.6), Candidate(0, END, -2.7)], rows([7, 8, 5], [7, 8, 6])
    )
    assert forgotten.finished == ()
    assert [c.parent for c in forgotten.chosen] == [0, 1]


def test_early_stopping_ends_with_num_beams_texts_and_else_only_when_none_can_get_better() -> None:
    for early, over in ((True, True), (False, False)):
        beams = BeamSearch(1, {END}, early_stopping=early, length_penalty=0.0)
        beams.advance([Candidate(0, END, -3.0), Candidate(0, 4, -3.5)], rows([1, 2]))
        step = beams.advance([Candidate(0, 4, -1.0), Candidate(0, 5, -4.0)], rows([1, 2, 4]))
        assert step.done is over
        assert (step.chosen == ()) is over


def test_a_length_penalty_above_one_prefers_the_longer_text() -> None:
    def best(length_penalty: float) -> list[int]:
        beams = BeamSearch(2, {END}, length_penalty=length_penalty, early_stopping=False)
        beams.advance([Candidate(0, END, -2.0), Candidate(0, 4, -2.1), Candidate(0, 5, -9.0)], rows([1, 2], [1, 2]))
        found = beams.results(rows([1, 2, 4, 4], [1, 2, 5, 5]), 1)
        return [int(token) for token in found[0].tokens]

    beams_score = {0.0: [1, 2], 2.0: [1, 2, 4, 4]}
    assert {penalty: best(penalty) for penalty in beams_score} == beams_score


def test_several_end_tokens_leave_enough_to_go_on_with() -> None:
    beams = BeamSearch(2, {0, 1, 2}, early_stopping=False)
    logits = np.array([[9, 8, 7, 1, 0]] * 2, np.float32)
    step = beams.advance(beams.candidates(logits), rows([3], [3]))
    assert [c.token for c in step.chosen] == [3, 4]


def test_log_softmax_of_large_logits_is_finite_and_sums_to_one() -> None:
    logs = log_softmax(np.array([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]], np.float32))
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-6)
