"""A person's own processor, sampler and stopping rule: where they act, what they may return, what a failure leaves."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError, CallableError, StateError
from genai_lab.generation.one import One
from genai_lab.sampling import choose_sample

PROMPT = [1, 20, 30, 40, 50]
SAMPLED = {"do_sample": True, "random_seed": 5, "temperature": 1.5, "top_k": 40}
BUILT_IN = ("guidance", "min_length", "repetition_penalty", "no_repeat_ngram")


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def params_of(model: og.Model, **options: object) -> og.GeneratorParams:
    params = og.GeneratorParams(model)
    params.set_search_options(**({"max_length": 40} | options))
    return params


def generator(params: og.GeneratorParams) -> og.Generator:
    made = og.Generator(params.model, params)
    made.append_tokens(PROMPT)
    return made


def answer(made: og.Generator, tokens: int = 12) -> list[int]:
    found: list[int] = []
    while not made.is_done() and len(found) < tokens:
        made.generate_next_token()
        found.append(int(made.get_next_tokens()[0]))
    return found


def forbid_even(_tokens: Any, logits: Any) -> None:
    logits[::2] = -np.inf


# ---- processors


def test_a_processor_changes_the_logits_in_place_or_returns_new_ones(model: og.Model) -> None:
    def returns(_tokens: Any, logits: Any) -> Any:
        new = logits.astype(np.float64)
        new[::2] = -np.inf
        return new

    found = []
    for function in (forbid_even, returns):
        params = params_of(model, **SAMPLED)
        params.add_logits_processor(function)
        found.append(answer(generator(params)))
    assert found[0] == found[1]
    assert all(token % 2 for token in found[0])


def test_it_sees_prompt_and_answer_and_cannot_change_them(model: og.Model) -> None:
    seen: list[list[int]] = []

    def watch(tokens: Any, logits: Any) -> None:
        assert tokens.dtype == np.int32 and logits.dtype == np.float32 and logits.shape == (model.vocab_size,)
        seen.append(tokens.tolist())
        with pytest.raises(ValueError, match="read-only"):
            tokens[0] = 7

    params = params_of(model)
    params.add_logits_processor(watch)
    made = generator(params)
    tokens = answer(made, 3)
    assert seen == [PROMPT, [*PROMPT, tokens[0]], [*PROMPT, *tokens[:2]]]


def test_the_order_can_be_listed_chosen_and_changed(model: og.Model) -> None:
    params = params_of(model)
    assert list(params.logits_processors) == list(BUILT_IN)
    assert params.add_logits_processor(forbid_even) == "forbid_even"
    assert params.add_logits_processor(forbid_even) == "forbid_even_2"
    assert params.add_logits_processor(forbid_even, "first", at=0) == "first"
    params.add_logits_processor(forbid_even, "early", before="min_length")
    params.add_logits_processor(lambda _t, _l: None, after="guidance")
    assert params.logits_processors == (
        *("first", "guidance", "lambda", "early", "min_length", "repetition_penalty", "no_repeat_ngram"),
        *("forbid_even", "forbid_even_2"),
    )
    params.remove_logits_processor("first")
    params.remove_logits_processor("lambda")
    params.logits_processors = tuple(reversed(params.logits_processors))
    assert params.logits_processors[0] == "forbid_even_2" and params.logits_processors[-1] == "guidance"


def test_they_act_in_that_order(model: og.Model) -> None:
    calls: list[str] = []

    def named(name: str) -> Callable[[Any, Any], None]:
        def function(_tokens: Any, logits: Any) -> None:
            calls.append(f"{name}{'+' if logits[PROMPT[1]] < before[PROMPT[1]] else ''}")

        return function

    params = params_of(model, repetition_penalty=5.0)
    for name, place in (("a", {}), ("b", {"before": "repetition_penalty"}), ("c", {"at": 0})):
        params.add_logits_processor(named(name), name, **place)
    made = generator(params)
    before = made.get_logits()[0, 0]
    made.generate_next_token()
    assert calls == ["c", "b", "a+"]
    params.logits_processors = ("a", *(n for n in params.logits_processors if n != "a"))
    calls.clear()
    generator(params).generate_next_token()
    assert calls == ["a", "c", "b"]


def test_copies_of_params_are_independent_and_a_generator_keeps_its_own(model: og.Model) -> None:
    params = params_of(model, **SAMPLED)
    plain = answer(generator(params))
    made = generator(params)
    twin = copy.copy(params)
    twin.add_logits_processor(forbid_even)
    params.set_sampler(lambda logits, rng: 7)
    assert params.logits_processors == BUILT_IN
    assert answer(made) == plain
    assert all(token % 2 for token in answer(generator(twin)))
    assert answer(generator(params), 2) == [7, 7]
    assert answer(made.fork(len(PROMPT))) == plain


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda p: p.add_logits_processor(3), ArgumentTypeError, "callable is allowed"),
        (lambda p: p.add_logits_processor(forbid_even, "min_length"), ArgumentError, "is taken"),
        (lambda p: p.add_logits_processor(forbid_even, "select"), ArgumentError, "is taken"),
        (lambda p: p.add_logits_processor(forbid_even, ""), ArgumentError, "printable"),
        (lambda p: p.add_logits_processor(forbid_even, "a\nb"), ArgumentError, "printable"),
        (lambda p: p.add_logits_processor(forbid_even, 5), ArgumentTypeError, "string"),
        (lambda p: p.add_logits_processor(forbid_even, before="nobody"), ArgumentError, "nobody.*guidance"),
        (lambda p: p.add_logits_processor(forbid_even, before="guidance", at=0), ArgumentError, "one place"),
        (lambda p: p.add_logits_processor(forbid_even, at=9), ArgumentError, "0 to 4"),
        (lambda p: p.add_logits_processor(forbid_even, at=True), ArgumentTypeError, "a whole number"),
        (lambda p: p.remove_logits_processor("min_length"), ArgumentError, "was not added"),
        (lambda p: setattr(p, "logits_processors", ("guidance",)), ArgumentError, "the same names"),
        (lambda p: setattr(p, "logits_processors", "guidance"), ArgumentError, "the same names"),
        (lambda p: p.set_sampler("greedy"), ArgumentTypeError, "callable"),
        (lambda p: p.add_stopping_criterion(None), ArgumentTypeError, "callable"),
        (lambda p: p.remove_stopping_criterion("x"), ArgumentError, "was not added"),
        (lambda p: [p.add_logits_processor(forbid_even) for _ in range(40)], ArgumentError, "at most 32"),
    ],
)
def test_bad_hooks_are_refused(model: og.Model, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(params_of(model))


# ---- samplers


def test_a_sampler_chooses_from_processed_logits_with_the_generators_stream(model: og.Model) -> None:
    def gumbel(logits: Any, rng: np.random.Generator) -> Any:
        assert logits[0] == -np.inf
        with pytest.raises(ValueError, match="read-only"):
            logits[0] = 0
        return np.argmax(logits + rng.gumbel(size=logits.size))

    def make(seed: int) -> og.Generator:
        params = params_of(model, random_seed=seed)
        params.add_logits_processor(forbid_even)
        params.set_sampler(gumbel)
        return generator(params)

    first = answer(make(3))
    assert first == answer(make(3))
    assert first != answer(make(4))
    assert all(token % 2 for token in first)
    assert make(3).effective_mode.reason == "a sampler of your own chooses: gumbel"


def test_without_it_the_options_choose_again(model: og.Model) -> None:
    params = params_of(model)
    plain = answer(generator(params))
    params.set_sampler(lambda logits, rng: 9)
    assert answer(generator(params), 3) == [9, 9, 9]
    params.set_sampler(None)
    assert answer(generator(params)) == plain


def test_beams_choose_by_themselves(model: og.Model) -> None:
    params = params_of(model, num_beams=2)
    params.set_sampler(lambda logits, rng: 9)
    with pytest.raises(ArgumentError, match="a sampler of your own does not go with num_beams"):
        og.Generator(model, params)


# ---- stopping criteria


def test_a_stopping_criterion_ends_the_answer_with_its_reason(model: og.Model) -> None:
    params = params_of(model)
    params.add_stopping_criterion(lambda tokens: len(tokens) >= len(PROMPT) + 3 and "long enough", "length_of_mine")
    params.add_stopping_criterion(lambda tokens: False)
    made = generator(params)
    tokens = answer(made)
    assert len(tokens) == 3 and made.get_sequence(0).tolist() == PROMPT + tokens
    assert made.finish_reason is og.FinishReason.STOPPING_CRITERION
    assert made.stop_reason == "length_of_mine: long enough"
    made.rewind_to(len(PROMPT))
    assert made.stop_reason is None and not made.is_done()


@pytest.mark.parametrize(
    ("returned", "stops"), [(True, True), (np.True_, True), ("", False), (None, False), (0 > 1, 0)]
)
def test_what_a_stopping_criterion_may_return(model: og.Model, returned: object, stops: bool) -> None:
    params = params_of(model)
    params.add_stopping_criterion(lambda tokens: returned)
    assert len(answer(generator(params), 4)) == (1 if stops else 4)


# ---- failures


def raises(*_arguments: Any) -> None:
    raise KeyError("no such thing")  # the line that the error names


def wrong(value: Any) -> Callable[..., Any]:
    return lambda *_arguments: value


def spoil(value: float) -> Callable[..., Any]:
    def spoiler(_tokens: Any, logits: Any) -> None:
        logits[3] = value

    return spoiler


V = 288
FAILURES: list[tuple[str, Any, str]] = [
    ("add_logits_processor", raises, "logits processor 'raises' raised KeyError"),
    ("add_logits_processor", wrong(3), "returned int 3"),
    ("add_logits_processor", wrong([1.0] * V), "returned list"),
    ("add_logits_processor", wrong(np.zeros(5, np.float32)), r"shape \(5,\)"),
    ("add_logits_processor", wrong(np.zeros((1, V), np.float32)), r"shape \(1, 288\)"),
    ("add_logits_processor", wrong(np.zeros(V, np.int64)), "int64"),
    ("add_logits_processor", wrong(np.full(V, np.nan, np.float32)), "NaN at 288 of 288"),
    ("add_logits_processor", spoil(np.nan), "NaN at 1 of 288 tokens, the first at 3"),
    ("add_logits_processor", spoil(np.inf), r"\+inf at 1"),
    ("add_logits_processor", wrong(np.full(V, 1e300)), r"\+inf at 288"),
    ("add_logits_processor", wrong(np.full(V, -np.inf, np.float32)), "all -inf"),
    ("set_sampler", raises, "sampler 'raises' raised KeyError"),
    ("set_sampler", wrong(None), "returned NoneType"),
    ("set_sampler", wrong(True), "returned bool"),
    ("set_sampler", wrong(1.0), "returned float"),
    ("set_sampler", wrong(V), "returned 288; one token id is allowed, an integer of 0 to 287"),
    ("set_sampler", wrong(-1), "returned -1"),
    ("set_sampler", wrong(np.array([1, 2])), "returned ndarray"),
    ("add_stopping_criterion", raises, "stopping criterion 'raises' raised KeyError"),
    ("add_stopping_criterion", wrong(1), "returned int 1"),
    ("add_stopping_criterion", wrong([]), "returned list"),
]


@pytest.mark.parametrize(("call", "function", "words"), FAILURES, ids=[f"{c}-{w[:24]}" for c, _, w in FAILURES])
def test_a_failure_names_the_callable_and_changes_nothing(
    model: og.Model, call: str, function: Any, words: str
) -> None:
    plain = answer(generator(params_of(model, **SAMPLED)))
    broken = True

    def sometimes(*arguments: Any) -> Any:
        if broken:
            return function(*arguments)
        if call == "set_sampler":  # what ours would draw
            return ours(arguments[0])
        return None

    def ours(logits: Any) -> int:
        search = made._search
        assert isinstance(search, One)
        return choose_sample(logits, made.options, search._chooser.stream).token

    sometimes.__name__ = getattr(function, "__name__", "sometimes")
    params = params_of(model, **SAMPLED)
    getattr(params, call)(sometimes)
    made = generator(params)
    broken = False
    tokens = answer(made, 3)
    broken = True
    for _ in range(2):
        with pytest.raises(CallableError, match=words):
            made.generate_next_token()
        assert made.token_count() == len(PROMPT) + 3 and not made.is_done()
    broken = False
    assert tokens + answer(made, 9) == plain


@pytest.mark.parametrize("watched", [False, True])
def test_the_error_points_at_the_persons_line(model: og.Model, watched: bool) -> None:
    class Object:
        def __call__(self, tokens: Any, logits: Any) -> None:
            raises()

    for function in (raises, functools.partial(raises, 1), Object(), Object().__call__):
        params = params_of(model)
        params.add_logits_processor(function)
        made = generator(params)
        with pytest.raises(CallableError) as caught:
            if watched:
                with og.record():
                    made.generate_next_token()
            else:
                made.generate_next_token()
        assert isinstance(caught.value.__cause__, KeyError)
        assert "test_hooks.py, in raises" in str(caught.value)
        assert 'raise KeyError("no such thing")' in str(caught.value)


def test_processors_that_leave_nothing_are_named(model: og.Model) -> None:
    params = params_of(model, min_length=30)
    eos = model.config.model.eos_token_ids[0]

    def only_the_end(_tokens: Any, logits: Any) -> None:
        logits[np.arange(logits.size) != eos] = -np.inf

    params.add_logits_processor(only_the_end, before="min_length")
    with pytest.raises(StateError, match="together only_the_end, min_length forbid"):
        generator(params).generate_next_token()


# ---- the recording


def test_a_trace_names_them_and_shows_what_they_changed(model: og.Model) -> None:
    eos, lifted = model.config.model.eos_token_ids[0], 9

    def lift(_tokens: Any, logits: Any) -> None:
        logits[lifted] = logits.max() + 50
        logits[eos] = -np.inf

    params = params_of(model, **SAMPLED)
    params.add_logits_processor(lift)
    params.set_sampler(lambda logits, rng: int(np.argmax(logits)), "best")
    params.add_stopping_criterion(lambda tokens: len(tokens) > len(PROMPT) + 2, "three")
    with og.record() as trace:
        answer(generator(params))
    stages = trace.stages()
    assert stages[stages["stage"] == "lift"]["n"].tolist() == [2, 2, 2]
    assert (stages["stage"] == "best").sum() == 3 and not (stages["stage"] == "select").any()
    frame = trace.candidates(0)
    row = frame[frame["token"] == lifted].iloc[0]
    assert row["chosen"] and row["after_lift"] > frame["logit"].max() + 40
    settings = trace.recording.runs[0].settings
    assert settings["logits_processors"] == [*BUILT_IN, "lift"]
    assert (settings["sampler"], settings["stopping_criteria"]) == ("best", ["three"])
    assert trace.runs()["finish"][0] == "criterion"


def test_the_same_tokens_recorded_or_not(model: og.Model) -> None:
    params = params_of(model, **SAMPLED)
    params.add_logits_processor(lambda tokens, logits: logits * np.float32(0.5))
    plain = answer(generator(params))
    with og.record():
        assert answer(generator(params)) == plain
