"""Speculation under a grammar: the text of plain guided decoding, in fewer runs; forced tokens are not guessed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import genai_lab as og
from genai_lab.workbench.default_model import model_folder
from tests.generation.test_speculative import consistent, finish

DIGITS = ("regex", "[0-9]{3}-[0-9]{3}")
FREE_END = ("regex", "[a-z ]{2,30}")
LITERAL = "the king of England and the queen of France"
FORCED = ("lark_grammar", f'start: "{LITERAL}"')
SAMPLING = {"do_sample": True, "random_seed": 7, "top_k": 40, "temperature": 0.9}


@pytest.fixture(scope="module")
def plain() -> og.Model:
    return og.Model(str(model_folder("tiny")))


@pytest.fixture(scope="module")
def pair() -> og.Model:
    return og.Model(str(model_folder("tiny-speculative")))


@pytest.fixture(scope="module")
def tokenizer(plain: og.Model) -> og.Tokenizer:
    return og.Tokenizer(plain)


@pytest.fixture(scope="module")
def prompt(tokenizer: og.Tokenizer) -> list[int]:
    """Some text with the literal in it, and again what came before it."""
    return tokenizer.encode(f"He said, {LITERAL}; he said,").tolist()


def guided(
    model: og.Model,
    prompt: list[int],
    grammar: tuple[str, str],
    options: dict[str, Any] | None = None,
    ff: bool = False,
    **speculative: Any,
) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": len(prompt) + 48} | (options or {}))
    params.set_speculative_options(**speculative)
    params.set_guidance(*grammar, ff)
    made = og.Generator(model, params)
    made.append_tokens(prompt)
    return made


def two_of(tokenizer: og.Tokenizer, text: str) -> list[int]:
    """A text whose last two tokens came before, with `text` behind them."""
    start = tokenizer.encode("one day").tolist()[-2:]
    return [*start, *tokenizer.encode(text).tolist(), *start]


@pytest.mark.slow
@pytest.mark.parametrize("grammar", [DIGITS, FREE_END, FORCED], ids=lambda grammar: grammar[1][:9])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_draft_follows_the_grammar_to_its_end(
    plain: og.Model, pair: og.Model, prompt: list[int], grammar: tuple[str, str], width: int
) -> None:
    made = guided(pair, prompt, grammar, max_draft_tokens=width)
    assert finish(made) == finish(guided(plain, prompt, grammar))
    assert consistent(made.get_speculative_stats())


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_draft_draws_follows_the_grammar(
    pair: og.Model, tokenizer: og.Tokenizer, prompt: list[int], width: int, seed: int
) -> None:
    made = guided(pair, prompt, DIGITS, SAMPLING | {"random_seed": seed}, max_draft_tokens=width)
    answer = finish(made)[len(prompt) :]
    assert re.fullmatch(DIGITS[1], tokenizer.decode(np.array(answer, np.int32)))


@pytest.mark.slow
@pytest.mark.parametrize("ff", [False, True])
@pytest.mark.parametrize("options", [{}, SAMPLING, {"repetition_penalty": 1.2}], ids=["greedy", "drawn", "penalty"])
@pytest.mark.parametrize("grammar", [DIGITS, FREE_END, FORCED], ids=lambda grammar: grammar[1][:9])
def test_ngrams_write_the_very_text_of_plain_guided_decoding(
    plain: og.Model, prompt: list[int], grammar: tuple[str, str], options: dict[str, Any], ff: bool
) -> None:
    expected = finish(guided(plain, prompt, grammar, options, ff))
    made = guided(plain, prompt, grammar, options, ff, ngram_size=2, max_draft_tokens=4)
    assert finish(made) == expected
    assert made.get_speculative_stats()["draft_forward_passes"] == 0


def test_a_proposal_ends_where_the_grammar_forbids_it(plain: og.Model, tokenizer: og.Tokenizer) -> None:
    made = guided(plain, two_of(tokenizer, "7x"), ("regex", "[0-9]{8}"), ngram_size=3, max_draft_tokens=4)
    made.generate_next_token()
    stats = made.get_speculative_stats()
    assert (stats["draft_tokens_proposed"], stats["ngram_lookup_tokens_proposed"]) == (1, 1)
    assert (stats["ngram_lookup_hits"], stats["ngram_grammar_candidate_rejections"]) == (1, 1)


def test_nothing_is_proposed_when_the_grammar_forbids_the_first(plain: og.Model, tokenizer: og.Tokenizer) -> None:
    made = guided(plain, two_of(tokenizer, "x7"), ("regex", "[0-9]{8}"), ngram_size=3, max_draft_tokens=4)
    made.generate_next_token()
    stats = made.get_speculative_stats()
    assert (stats["rounds"], stats["standard_fallback_steps"]) == (0, 1)
    assert (stats["ngram_lookup_hits"], stats["ngram_grammar_candidate_rejections"]) == (1, 1)


@pytest.mark.parametrize("width", [2, 3, 4])
def test_forced_tokens_fill_rounds_and_are_not_counted_as_guesses(
    plain: og.Model, tokenizer: og.Tokenizer, width: int
) -> None:
    text = two_of(tokenizer, LITERAL)
    made = guided(plain, text, FORCED, ff=True, ngram_size=3, max_draft_tokens=width)
    length = len(text)
    for number in (1, 2):
        made.generate_next_token()
        stats = made.get_speculative_stats()
        assert stats["rounds"] == number
        assert stats["draft_tokens_proposed"] == number * width
        assert (stats["draft_tokens_evaluated"], stats["draft_tokens_accepted"]) == (1, 1)  # the first alone is a guess
        assert (stats["tokens_buffered"], stats["bonus_tokens"]) == (width - 1, 0)
        assert (stats["target_forward_passes"], stats["target_reanchor_forward_passes"]) == (number, 0)
        assert made.token_count() == length + (number - 1) * width + 1
        if number == 1:
            for _ in range(width - 1):
                made.generate_next_token()
    assert tokenizer.decode(np.array(finish(made)[length:], np.int32)).strip() == LITERAL
    stats = made.get_speculative_stats()
    assert consistent(stats)
    assert stats["target_forward_passes"] < stats["tokens_emitted"]
    assert not stats["formula_supported"]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["draft", "ngram"])
@pytest.mark.parametrize("width", [1, 4])
def test_what_waits_to_be_written_is_forgotten_with_the_text_before_it(
    plain: og.Model, pair: og.Model, prompt: list[int], by: str, width: int
) -> None:
    model, speculative = (pair, {}) if by == "draft" else (plain, {"ngram_size": 2})
    expected = finish(guided(model, prompt, FORCED, ff=True, max_draft_tokens=width, **speculative))
    for tokens in (1, 2, 3):
        made = guided(model, prompt, FORCED, ff=True, max_draft_tokens=width, **speculative)
        for _ in range(tokens):
            made.generate_next_token()
        made.rewind_to(0)
        made.append_tokens(prompt)
        assert finish(made) == expected


def test_a_recording_knows_forced_tokens(plain: og.Model, tokenizer: og.Tokenizer) -> None:
    made_of = two_of(tokenizer, LITERAL)
    with og.record() as trace:
        made = guided(plain, made_of, FORCED, ff=True, ngram_size=3, max_draft_tokens=4)
        finish(made)
    tokens = trace.recording.tokens
    assert tokens["forced"].sum() > 3
    assert not tokens["forced"][0]
    stats, rounds = made.get_speculative_stats(), trace.rounds()
    assert rounds["accepted"].sum() == stats["draft_tokens_accepted"] + tokens["forced"].sum()
    assert rounds["emitted"].sum() == stats["tokens_emitted"]
