"""How large an expression gets, so that a short text cannot cost minutes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_lab.errors import GrammarError
from genai_lab.grammar.size import MAX_UNROLLED, check_size, lark_size, regex_size, schema_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("a{5}", 5),
        ("(ab){5}", 10),
        ("(a{10}b){10}", 110),
        (r"\(a{10}\)", 12),
        ("[(]{7}", 7),
        (r"[\]x]{7}", 7),
        ("a{2,6}", 6),
        ("a{6,}", 6),
        ("(a|bc)*", 3),
        ("a{99999999999999999999}", 10**9),
        ("))(", 0),
    ],
)
def test_a_regular_expressions_size(text: str, size: int) -> None:
    assert regex_size(text) == size


def test_terminals_count_as_what_they_stand_for() -> None:
    assert lark_size('start: A\nA: B{10}\nB: "ab"{3}') == 60
    assert lark_size('start: A "x"\nA.2: B~2..5\n   | "c"\nB: /d{4}/') == 22  # five times four, and two words
    assert lark_size("start: a{1000}\na: b{1000}\nb: /x/") == 1000  # rules are not written out


def test_a_schemas_patterns_are_looked_at_wherever_they_are() -> None:
    assert schema_size({"a": [{"pattern": "(a{9}){9}"}], "(b{10}){9}": 1}) == 90


def test_too_large_is_an_error_that_says_how_large() -> None:
    with pytest.raises(GrammarError, match=r"1,000,000 parts, at most 250,000"):
        check_size("regex", "(a{1000}){1000}")
    check_size("regex", f"a{{{MAX_UNROLLED}}}")


@given(
    st.recursive(st.just("a"), lambda x: st.tuples(x, x, st.integers(1, 4)).map(lambda t: f"({t[0]}{t[1]}){{{t[2]}}}"))
)
def test_it_is_the_length_of_the_one_text_that_matches(pattern: str) -> None:
    size = regex_size(pattern)
    if size <= 2_000:
        assert re.fullmatch(pattern, "a" * size)
        assert not re.fullmatch(pattern, "a" * (size + 1))
