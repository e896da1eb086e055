"""Guided answers: always in the grammar's language, drawn from the renormalised distribution, whatever is rewound."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError, GrammarError, StateError

PROMPT = [1, 20, 30, 40, 50]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6, "pattern": "^[a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
LANGUAGES = [
    ("regex", "[0-9]{4}"),
    ("regex", "(yes|no|maybe)"),
    ("regex", "ab+c?(hello world)?[xyz]{2,4}"),
    ("regex", "[äöü€]{2}😀"),
    ("lark_grammar", 'start: greeting " " NAME\ngreeting: "Hello" | "Hi"\nNAME: /[A-Z][a-z]{1,3}/'),
    ("json_schema", json.dumps(SCHEMA)),
]
SAMPLED: dict[str, Any] = {"do_sample": True, "temperature": 1.5, "top_k": 0}


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def generator(
    model: og.Model, kind: str, text: str, *, ff: bool = False, prompt: list[int] | None = None, **options: object
) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**({"max_length": 200} | options))
    params.set_guidance(kind, text, ff)
    made = og.Generator(model, params)
    made.append_tokens(prompt or PROMPT)
    return made


def finish(made: og.Generator, tokens: int = 150) -> None:
    while not made.is_done() and tokens:
        made.generate_next_token()
        tokens -= 1


def text_of(made: og.Generator, start: int = len(PROMPT)) -> str:
    return made.model.tokenizer.decode(made.get_sequence(0)[start:])


def check_language(kind: str, grammar: str, text: str) -> None:
    if kind == "json_schema":
        jsonschema.validate(json.loads(text), SCHEMA)
    elif kind == "regex":
        assert re.fullmatch(grammar, text)
    else:
        assert re.fullmatch("(Hello|Hi) [A-Z][a-z]{1,3}", text)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "grammar"), LANGUAGES, ids=[text[:12] for _, text in LANGUAGES])
@pytest.mark.parametrize("ff", [False, True], ids=["plain", "ff"])
@pytest.mark.parametrize(
    "options", [{}, SAMPLED, SAMPLED | {"repetition_penalty": 1.3}], ids=["greedy", "drawn", "pen"]
)
def test_every_answer_is_in_the_language(
    model: og.Model, kind: str, grammar: str, ff: bool, options: dict[str, Any]
) -> None:
    for seed in range(4 if options else 1):
        made = generator(model, kind, grammar, ff=ff, random_seed=seed, **options)
        finish(made)
        assert made.finish_reason is og.FinishReason.EOS
        check_language(kind, grammar, text_of(made))


def test_an_answer_that_reaches_its_length_is_the_beginning_of_one(model: og.Model) -> None:
    made = generator(model, "regex", "[0-9]{50}", max_length=len(PROMPT) + 7)
    finish(made)
    assert re.fullmatch("[0-9]{7}", text_of(made))


@pytest.mark.slow
def test_draws_follow_the_renormalised_distribution(model: og.Model) -> None:
    made = generator(model, "regex", "[0-9]", random_seed=3, **SAMPLED)
    digits = np.array([model.tokenizer.encode(str(i))[0] for i in range(10)])
    logits = made.get_logits()[0, 0, digits].astype(np.float64) / 1.5
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    draws, counts = 1500, np.zeros(10)
    for _ in range(draws):
        made.generate_next_token()
        counts[np.flatnonzero(digits == made.get_next_tokens()[0])[0]] += 1
        made.rewind_to(len(PROMPT))
    often = expected * draws >= 5
    chi = float((((counts - expected * draws) ** 2) / (expected * draws))[often].sum())
    assert chi < 27.9  # 9 degrees of freedom: one in a thousand, and the seed is fixed


def test_a_rewind_takes_the_grammar_to_the_place(model: og.Model) -> None:
    made = generator(model, "regex", "a[0-9]{5}b")
    finish(made)
    whole = made.get_sequence(0).tolist()
    for length in range(len(PROMPT), len(whole) + 1):
        made.rewind_to(length)
        finish(made)
        assert made.get_sequence(0).tolist() == whole


@given(st.data())
@settings(max_examples=25)
def test_any_walk_ends_in_the_language(tiny_folder: Path, data: st.DataObject) -> None:
    model = MODELS.setdefault(tiny_folder, og.Model(tiny_folder))
    made = generator(model, "regex", "[a-f]{6}(XY)?[0-9]{3}", ff=data.draw(st.booleans()), **SAMPLED, random_seed=1)
    for _ in range(data.draw(st.integers(0, 5))):
        for _ in range(data.draw(st.integers(0, 6))):
            if not made.is_done():
                made.generate_next_token()
        if data.draw(st.booleans()):
            made = made.fork(data.draw(st.integers(len(PROMPT), made.token_count())))
        else:
            made.rewind_to(data.draw(st.integers(len(PROMPT), made.token_count())))
    finish(made)
    assert re.fullmatch("[a-f]{6}(XY)?[0-9]{3}", text_of(made))


MODELS: dict[Path, og.Model] = {}


def test_a_fork_has_a_grammar_of_its_own(model: og.Model) -> None:
    made = generator(model, "regex", "[0-9]{6}", **SAMPLED, random_seed=1)
    finish(made, 3)
    twin = made.fork(len(PROMPT) + 2)
    finish(twin)
    finish(made)
    assert re.fullmatch("[0-9]{6}", text_of(made)) and re.fullmatch("[0-9]{6}", text_of(twin))
    assert text_of(made)[:2] == text_of(twin)[:2]


def test_each_answer_begins_the_grammar_anew(model: og.Model) -> None:
    made = generator(model, "regex", "[0-9]{3}")
    finish(made)
    made.append_tokens(PROMPT)
    finish(made)
    assert re.fullmatch("[0-9]{3}", text_of(made, made.token_count() - 3))
    made.rewind_to(len(PROMPT) + 1)  # back in the first answer
    finish(made)
    assert re.fullmatch("[0-9]{3}", text_of(made))


def test_tokens_appended_in_the_middle_go_on_with_the_answer(model: og.Model) -> None:
    made = generator(model, "regex", "[0-9]{5}")
    finish(made, 2)
    made.append_tokens(model.tokenizer.encode("77"))
    finish(made)
    assert re.fullmatch("[0-9]{2}77[0-9]", text_of(made))


def test_tokens_that_do_not_fit_are_refused_in_the_middle(model: og.Model) -> None:
    made = generator(model, "regex", "[0-9]{5}")
    finish(made, 2)
    with pytest.raises(ArgumentError, match="does not allow"):
        made.append_tokens(model.tokenizer.encode("x"))
    finish(made)
    assert re.fullmatch("[0-9]{5}", text_of(made))


def test_after_a_rewind_or_a_stop_a_new_prompt_may_be_asked(model: og.Model) -> None:
    for go_back in (True, False):
        made = generator(model, "regex", "[0-9]{5}")
        finish(made, 2)
        made.rewind_to(len(PROMPT) + 1) if go_back else made.stop()
        made.append_tokens(model.tokenizer.encode("x"))
        finish(made)
        assert re.fullmatch("[0-9]{5}", text_of(made, made.token_count() - 5))


def test_forced_tokens_are_appended_unasked(model: og.Model) -> None:
    asked, forced = (generator(model, "regex", "a: Hello the [0-9]", ff=ff) for ff in (False, True))
    steps = []
    for made in (asked, forced):
        steps.append(0)
        while not made.is_done():
            made.generate_next_token()
            steps[-1] += 1
    assert text_of(asked)[:-1] == text_of(forced)[:-1] == "a: Hello the "
    assert steps[1] == 3 < steps[0]  # the first token, the digit, the end


def test_forced_tokens_stop_at_max_length(model: og.Model) -> None:
    made = generator(model, "regex", "abcdefghijklmnopqrstuvwxyz", ff=True, max_length=len(PROMPT) + 5)
    finish(made)
    assert text_of(made) == "abcde"
    assert made.finish_reason is og.FinishReason.MAX_SESSION_TOKENS


def test_forced_tokens_are_recorded_as_forced(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model, "regex", "a: Hello the [0-9]", ff=True)
        finish(made)
    frame = trace.tokens()
    assert frame["forced"].tolist() == [False, True, True, True, True, True, False, False][: len(frame)] or (
        frame["forced"].sum() == len(frame) - 3
    )
    assert frame["token"].tolist()[:-1] == made.get_sequence(0)[len(PROMPT) :].tolist()
    assert frame["prob"][frame["forced"]].isna().all()


def test_what_the_grammar_took_away_is_recorded(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model, "regex", "[0-9]{3}", **SAMPLED, random_seed=4)
        logits = made.get_logits()[0, 0].astype(np.float64)
        finish(made)
    frame = trace.tokens()
    weights = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    digits = [int(model.tokenizer.encode(str(i))[0]) for i in range(10)]
    assert frame["allowed"].tolist() == [10, 10, 10, 1]
    assert frame["masked_mass"][0] == pytest.approx(1 - weights[digits].sum(), abs=1e-5)
    stages = trace.stages()
    assert stages[stages["stage"] == "guidance"]["n"].tolist() == [model.vocab_size - n for n in (10, 10, 10, 1)]


def test_candidates_show_what_was_allowed(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model, "regex", "[0-9]{3}", **SAMPLED, random_seed=4)
        finish(made)
    frame = trace.candidates(0)
    open_ones = frame[frame["after_guidance"] > -1e37]
    digits = {int(model.tokenizer.encode(str(i))[0]) for i in range(10)}
    assert set(open_ones["token"]) == digits
    assert open_ones["min_p"].sum() == pytest.approx(1.0, abs=1e-3)
    assert frame["chosen"].sum() == 1


def test_a_wrong_grammar_is_an_error_before_anything_runs(model: og.Model) -> None:
    params = og.GeneratorParams(model)
    params.set_guidance("regex", "a(b")
    with pytest.raises(GrammarError, match="column 2: unclosed group"):
        og.Generator(model, params)
    params.set_guidance("", "")
    og.Generator(model, params)


def test_set_guidance_wants_two_strings_and_a_flag(model: og.Model) -> None:
    params = og.GeneratorParams(model)
    for bad in [("regex", 3), (3, "a"), ("regex", "a", "yes"), ("json_schema", {"type": "string"})]:
        with pytest.raises(ArgumentTypeError, match="set_guidance"):
            params.set_guidance(*bad)  # type: ignore[arg-type]


def test_when_nothing_is_left_it_says_who_forbids_it(model: og.Model) -> None:
    made = generator(model, "regex", "ab", min_length=100)
    finish(made, 2)
    with pytest.raises(StateError, match="together guidance, min_length forbid"):
        made.generate_next_token()
    assert text_of(made) == "ab"


def test_every_row_of_a_batch_and_every_beam_follows_the_grammar(model: og.Model) -> None:
    for options, rows in (({"batch_size": 3}, 3), ({"num_beams": 3, "num_return_sequences": 3}, 3)):
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=60, **options)
        params.set_guidance("regex", "[a-f]{2}[0-9]{2}")
        made = og.Generator(model, params)
        prompts = np.array([PROMPT] * options.get("batch_size", 1), np.int32)
        made.append_tokens(prompts)
        finish(made)
        answers = [text_of_row(made, row) for row in range(rows)]
        assert all(re.fullmatch("[a-f]{2}[0-9]{2}", answer) for answer in answers)


def text_of_row(made: og.Generator, row: int) -> str:
    return made.model.tokenizer.decode(made.get_sequence(row)[len(PROMPT) :])


def test_importing_leaves_the_library_alone() -> None:
    import subprocess
    import sys

    program = "import genai_lab, sys; genai_lab.GeneratorParams; print('llguidance' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "grammar"), [LANGUAGES[2], LANGUAGES[4], LANGUAGES[5]], ids=["regex", "lark", "json"])
@pytest.mark.parametrize("ff", [False, True], ids=["plain", "ff"])
def test_the_real_model_stays_in_the_language(model_folder: Path, kind: str, grammar: str, ff: bool) -> None:
    real = MODELS.setdefault(model_folder, og.Model(model_folder))
    prompt = real.tokenizer.encode("Describe Bob: ").tolist()
    for seed in range(3):
        made = generator(real, kind, grammar, ff=ff, prompt=prompt, do_sample=True, random_seed=seed, top_k=40)
        finish(made)
        assert made.finish_reason is og.FinishReason.EOS
        check_language(kind, grammar, text_of(made, len(prompt)))
