"""Tokens that are not committed yet, as processors look at them."""

from __future__ import annotations

import numpy as np
import pytest

from genai_lab.decoding import Sequence
from genai_lab.decoding.history import Ahead, Guess


@pytest.mark.parametrize("seed", range(10))
def test_a_guess_is_the_text_with_it_appended(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = Sequence(40)
    text.extend(rng.integers(0, 9, int(rng.integers(1, 20))).astype(np.int32))
    after = Sequence(40)
    after.extend_from(text, len(text))
    guess = Guess(text, 6)
    for token in rng.integers(0, 12, 6).tolist():
        guess.add(token)
        after.append(token)
        assert len(guess) == len(after) and guess.answer_start == after.answer_start
        assert guess.tokens.tolist() == after.tokens.tolist()
        assert guess.distinct.tolist() == after.distinct.tolist()


def test_the_text_stays_as_it_is() -> None:
    tokens = np.array([5, 6, 5], np.int32)
    guess = Guess(Ahead(tokens, answer_start=1), room=2)
    guess.add(7)
    assert tokens.tolist() == [5, 6, 5]
    assert guess.tokens.tolist() == [5, 6, 5, 7]
