"""Each processor against a plain restatement of its rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from genai_lab.decoding import Sequence
from genai_lab.sampling import FORBIDDEN, MinLength, NoRepeatNgram, RepetitionPenalty, build_processors
from genai_lab.sampling.processors import ngram_continuations

VOCABULARY = 12
token_lists = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40)
logit_rows = st.lists(st.floats(-20, 20, width=32), min_size=VOCABULARY, max_size=VOCABULARY)


def history(tokens: list[int]) -> Sequence:
    sequence = Sequence(64)
    sequence.extend(np.array(tokens, np.int32))
    return sequence


@given(token_lists, logit_rows, st.floats(0.25, 4.0))
def test_repetition_penalty_touches_each_seen_id_once(tokens: list[int], row: list[float], penalty: float) -> None:
    logits = np.array(row, np.float32)
    changed = RepetitionPenalty(penalty)(logits, history(tokens))
    expected = np.array(row, np.float32)
    for token in set(tokens):
        expected[token] = (
            expected[token] * np.float32(penalty) if expected[token] < 0 else expected[token] / np.float32(penalty)
        )
    np.testing.assert_array_equal(logits, expected)
    assert sorted(changed.tolist()) == sorted(set(tokens))


@given(token_lists, st.integers(1, 5))
def test_ngram_continuations_are_those_a_double_loop_finds(tokens: list[int], size: int) -> None:
    found = set()
    prefix = tokens[len(tokens) - size + 1 :] if size > 1 else []
    for start in range(len(tokens) - size + 1):
        if tokens[start : start + size - 1] == prefix:
            found.add(tokens[start + size - 1])
    if len(tokens) < size:
        found = set()
    assert set(ngram_continuations(np.array(tokens, np.int32), size).tolist()) == found


def test_no_repeat_ngram_forbids_and_reports() -> None:
    logits = np.ones(VOCABULARY, np.float32)
    changed = NoRepeatNgram(2)(logits, history([3, 4, 3]))
    assert changed.tolist() == [4]
    assert logits[4] == FORBIDDEN
    assert (np.delete(logits, 4) == 1).all()


def test_min_length_counts_the_prompt() -> None:
    processor = MinLength(3, np.array([2], np.int32))
    short, long = np.ones(VOCABULARY, np.float32), np.ones(VOCABULARY, np.float32)
    assert processor(short, history([1, 1])).tolist() == [2]
    assert short[2] == FORBIDDEN
    assert processor(long, history([1, 1, 1])).size == 0
    assert (long == 1).all()


@dataclass(frozen=True)
class Options:
    min_length: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0


def test_processors_come_in_ogs_order_and_only_when_asked_for() -> None:
    assert build_processors(Options(), [2]) == ()
    names = [p.name for p in build_processors(Options(5, 1.2, 3), [2])]
    assert names == ["min_length", "repetition_penalty", "no_repeat_ngram"]


def test_everything_forbidden_still_gives_a_distribution() -> None:
    from genai_lab.sampling.sampler import softmax

    logits: NDArray[np.float32] = np.full(VOCABULARY, FORBIDDEN, np.float32)
    np.testing.assert_allclose(softmax(logits, 0.7), 1 / VOCABULARY, rtol=1e-6)
