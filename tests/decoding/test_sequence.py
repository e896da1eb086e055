"""A sequence behaves like a list of tokens with a limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_lab.decoding import Sequence, StopRule
from genai_lab.errors import ArgumentError, CapacityError
from genai_lab.types import FinishReason

actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 9)),
        st.tuples(st.just("extend"), st.lists(st.integers(0, 9), max_size=6)),
        st.tuples(st.just("rewind"), st.integers(0, 12)),
    ),
    max_size=30,
)


@given(actions)
def test_it_is_a_list_with_a_limit(steps: list[tuple[str, object]]) -> None:
    sequence, model = Sequence(12), []
    views: list[tuple[np.ndarray, list[int]]] = []
    for name, value in steps:
        before = list(model)
        try:
            if name == "append":
                sequence.append(value)  # type: ignore[arg-type]
                model.append(value)
            elif name == "extend":
                sequence.extend(np.array(value, np.int32))
                model.extend(value)  # type: ignore[arg-type]
            else:
                sequence.rewind(value)  # type: ignore[arg-type]
                del model[value:]  # type: ignore[misc]
        except CapacityError:
            assert len(before) + (1 if name == "append" else len(value)) > 12  # type: ignore[arg-type]
        except ArgumentError:
            assert value > len(before)  # type: ignore[operator]
        assert sequence.tokens.tolist() == model
        assert sequence.distinct.tolist() == list(dict.fromkeys(model))
        views.append((sequence.distinct, list(dict.fromkeys(model))))
    for view, expected in views:  # what was handed out stays as it was
        assert view.tolist() == expected


def test_the_limit_is_named() -> None:
    sequence = Sequence(2)
    sequence.append(1)
    with pytest.raises(CapacityError, match=r"3 more tokens after 1 exceed max_length = 2"):
        sequence.extend(np.array([1, 2, 3], np.int32))
    assert len(sequence) == 1


def test_a_sequence_ends_at_an_end_token_or_at_its_limit() -> None:
    rule = StopRule(frozenset({2}), 8)
    assert rule.after(5, 7) is None
    assert rule.after(5, 8) is FinishReason.MAX_SESSION_TOKENS
    assert rule.after(2, 8) is FinishReason.EOS
