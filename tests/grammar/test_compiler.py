"""A wrong grammar says where it is wrong; a right one gives masks that are a function of the answer alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_lab.errors import ArgumentError, ArgumentTypeError, GrammarError, StateError
from genai_lab.grammar import MAX_GRAMMAR_BYTES, GrammarCompiler, Guide, TokenTable

END = 300
WORDS = (b"ab", b"abc", b"12", b"123", b'{"', b'":', b"true", b"hello", b" world")
TOKENS = [*(bytes([byte]) for byte in range(256)), *WORDS]
TOKENS += [b""] * (END - len(TOKENS)) + [b"<|end|>", b""]


def encode(text: str) -> Sequence[int]:
    return list(text.encode())


COMPILER = GrammarCompiler(lambda: TokenTable(TOKENS, [END], (END,), encode))


def ids(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def allowed(guide: Guide, text: str) -> set[bytes]:
    return {TOKENS[i] for i in np.flatnonzero(guide.mask(ids(text)).allowed())}


def test_a_mask_holds_what_may_come_next() -> None:
    guide = COMPILER.guide("regex", "ab(c|12)3?")
    assert allowed(guide, "") == {b"a", b"ab", b"abc"}
    assert allowed(guide, "ab") == {b"c", b"1", b"12", b"123"}
    assert allowed(guide, "abc") == {b"3", b"<|end|>"}
    assert allowed(guide, "abc3") == {b"<|end|>"}
    assert guide.mask(ids("abc")).count == 2
    assert guide.mask(ids("abc")).size == len(TOKENS) - 2


def test_it_may_end_where_the_grammar_may() -> None:
    guide = COMPILER.guide("regex", "[0-9]{1,3}")
    assert [guide.may_end(ids(text)) for text in ("", "1", "12", "123")] == [False, True, True, True]


def test_what_is_forced_is_known() -> None:
    guide = COMPILER.guide("regex", "x(hello world)")
    assert bytes(b"".join(TOKENS[i] for i in guide.forced(ids("x")))) == b"hello world"
    assert guide.forced(ids("xhello world")) == []


ANSWERS = st.lists(st.sampled_from("0123456789"), max_size=6).map("".join)


@pytest.mark.slow
@given(st.lists(ANSWERS, min_size=1, max_size=8))
def test_the_state_is_a_function_of_the_answer(answers: list[str]) -> None:
    wandering = COMPILER.guide("regex", "[0-9]{0,3}(5[0-9]{2})?")
    for text in answers:
        fresh = COMPILER.guide("regex", "[0-9]{0,3}(5[0-9]{2})?")
        try:
            expected = fresh.mask(ids(text)).allowed()
        except ArgumentError:
            with pytest.raises(ArgumentError, match="do not follow the grammar"):
                wandering.mask(ids(text))
            continue
        assert np.array_equal(wandering.mask(ids(text)).allowed(), expected)
        assert np.array_equal(wandering.fork().mask(ids(text)).allowed(), expected)


def test_forks_go_their_own_ways() -> None:
    one = COMPILER.guide("regex", "ab(c|12)3?")
    one.mask(ids("ab"))
    other = one.fork()
    assert allowed(one, "abc") == {b"3", b"<|end|>"}
    assert allowed(other, "ab1") == {b"2"}
    assert allowed(one, "abc3") == {b"<|end|>"}


def test_asking_whether_more_fits_moves_nothing() -> None:
    guide = COMPILER.guide("regex", "[0-9]{4}")
    assert guide.accepts(ids("12"), ids("34"))
    assert not guide.accepts(ids("12"), ids("345"))
    assert not guide.accepts(ids("12"), np.array([-1], np.int32))  # an image
    assert guide.mask(ids("12")).count == 11  # ten digits and the token "12"


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("regex", "ab(c", r"column 3: unclosed group"),
        ("regex", "a{2,1}", r"column 2"),
        ("regex", "*", r"column 1"),
        ("lark_grammar", 'start: "a" other\n', r'line 1, column 8: unknown name: "other"'),
        ("lark_grammar", 'start: "a"\nx: (', r"line 2, column 5"),
        ("lark_grammar", 'begin: "a"', r"start"),
        ("json_schema", '{"type": }', r"line 1, column 10"),
        ("json_schema", '{\n "type":\n  oops}', r"line 3, column 3"),
        ("json_schema", '{"type": "frob"}', r"at its top: Invalid type: frob"),
        (
            "json_schema",
            '{"properties": {"a": {"items": {"type": "frob"}, "type": "array"}}}',
            r"at \$\.properties\.a\.items: Invalid type: frob",
        ),
        ("json_schema", '{"anyOf": [{"type": "string"}, {"pattern": "(", "type": "string"}]}', r"at \$\.anyOf\[1\]"),
        ("json_schema", "[1]", r"object or boolean"),
        ("json_schema", '{"$ref": "https://example.org/x"}', r"does not fetch|not present"),
    ],
)
def test_a_wrong_grammar_says_where(kind: str, text: str, words: str) -> None:
    with pytest.raises(GrammarError, match=words) as caught:
        COMPILER.guide(kind, text)
    assert kind in str(caught.value)


def test_the_place_is_shown_with_a_mark_under_it() -> None:
    with pytest.raises(GrammarError) as caught:
        COMPILER.guide("regex", "ab(c")
    assert str(caught.value).endswith("\n    ab(c\n      ^")


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("yaml", "x", GrammarError),
        ("regex", "", GrammarError),
        ("regex", "  \n", GrammarError),
        ("regex", "a\ud800", GrammarError),
        ("regex", "a" * (MAX_GRAMMAR_BYTES + 1), GrammarError),
        ("regex", b"a", ArgumentTypeError),
        (1, "a", ArgumentTypeError),
        ("json_schema", {"type": "string"}, ArgumentTypeError),
    ],
)
def test_what_cannot_be_a_grammar_is_refused_unread(kind: object, text: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="set_guidance"):
        COMPILER.guide(kind, text)  # type: ignore[arg-type]


HOSTILE = [
    ("regex", "(" * 50_000),
    ("regex", "(a{1000}){1000}"),
    ("regex", "(a{1,1000}){1,1000}b"),
    ("regex", "(a{500}){500}"),
    ("lark_grammar", 'start: A\nA: B{100}\nB: C{100}\nC: D{100}\nD: "a"{100}'),
    ("lark_grammar", 'start: A\nA: B~1..1000\n  | "x"\nB.1: "a"~1000'),
    ("lark_grammar", "start: /(a{1000}){1000}/"),
    ("json_schema", '{"anyOf": [{"type": "string", "pattern": "^(a{1000}){1000}$"}]}'),
    ("regex", "((((((((((a*)*)*)*)*)*)*)*)*)*"),
    ("regex", "(x+x+)+y"),
    ("json_schema", "[" * 100_000),
    ("json_schema", '{"anyOf": [' * 400 + "{}" + "]}" * 400),
    ("json_schema", '{"properties": {"a": ' * 120 + '{"type": "frob"}' + "}}" * 120),
    ("json_schema", '{"$ref": "#"}'),
    ("json_schema", '{"type": "string", "minLength": 100000000}'),
    ("lark_grammar", "start: " + "(" * 20_000),
    ("lark_grammar", "start: start start | start"),
    ("lark_grammar", "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(60)) + '\na60: "x"\nstart: a0'),
]


@pytest.mark.parametrize(("kind", "text"), HOSTILE, ids=[f"{kind}-{text[:16]!r}" for kind, text in HOSTILE])
def test_a_hostile_grammar_ends_in_an_answer_or_an_error(kind: str, text: str) -> None:
    try:
        mask = COMPILER.guide(kind, text).mask(np.empty(0, np.int32))
    except (GrammarError, StateError) as error:
        assert len(str(error)) < 2_000
    else:
        assert mask.vocab_size == len(TOKENS)


def test_a_state_error_leaves_the_guide_usable() -> None:
    guide = COMPILER.guide("regex", "[0-9]{4}")
    with pytest.raises(ArgumentError, match="do not follow the grammar"):
        guide.mask(ids("1x"))
    assert allowed(guide, "123") == {bytes([48 + i]) for i in range(10)}


def test_an_error_of_a_long_line_shows_its_neighbourhood_only() -> None:
    with pytest.raises(GrammarError) as caught:
        COMPILER.guide("regex", "a" * 5_000 + "(" + "b" * 5_000)
    assert max(map(len, str(caught.value).split("\n"))) < 200
    assert re.search(r"column 5001", str(caught.value))
