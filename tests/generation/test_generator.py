"""The Generator's promises, on a tiny model: what it refuses, and what equals what."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError, CapacityError, StateError
from genai_lab.models.chunks import chunk_stops

PROMPT = [1, 20, 30, 40, 50]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def params(model: og.Model, **options: object) -> og.GeneratorParams:
    made = og.GeneratorParams(model)
    made.set_search_options(**({"max_length": 60} | options))
    return made


def generator(model: og.Model, prompt: list[int] | None = None, **options: object) -> og.Generator:
    made = og.Generator(model, params(model, **options))
    if prompt != []:
        made.append_tokens(prompt or PROMPT)
    return made


def answer(made: og.Generator, tokens: int = 12) -> list[int]:
    found: list[int] = []
    while not made.is_done() and len(found) < tokens:
        made.generate_next_token()
        found.append(int(made.get_next_tokens()[0]))
    return found


SAMPLED = {"do_sample": True, "random_seed": 5, "temperature": 1.5, "top_k": 40}
EVERY_WAY = [
    {},
    {"repetition_penalty": 1.4},
    {"no_repeat_ngram_size": 2, "min_length": 30},
    SAMPLED,
    SAMPLED | {"top_p": 0.9},
]


@pytest.mark.parametrize("options", EVERY_WAY)
def test_recorded_equals_plain(model: og.Model, options: dict[str, object]) -> None:
    plain = answer(generator(model, **options))
    with og.record() as trace:
        recorded = answer(generator(model, **options))
    assert recorded == plain
    assert trace.tokens()["token"].tolist() == plain


@pytest.mark.parametrize("options", EVERY_WAY)
def test_the_same_seed_gives_the_same_tokens(model: og.Model, options: dict[str, object]) -> None:
    assert answer(generator(model, **options)) == answer(generator(model, **options))


def test_the_prompt_may_come_in_parts(model: og.Model) -> None:
    parts = generator(model, PROMPT[:2])
    parts.append_tokens(PROMPT[2:])
    np.testing.assert_allclose(parts.get_logits(), generator(model).get_logits(), atol=1e-4)
    assert answer(parts) == answer(generator(model))


@pytest.mark.parametrize("size", [2, 3, 7, 16, 39])
def test_a_prompt_read_in_chunks_gives_the_same_numbers(model: og.Model, size: int) -> None:
    prompt = np.random.default_rng(1).integers(3, 250, 40).tolist()
    whole, chunked = generator(model, prompt), generator(model, prompt, chunk_size=size)
    np.testing.assert_array_equal(chunked.get_logits(), whole.get_logits())
    assert answer(chunked) == answer(whole)


def test_no_chunk_of_one_token_is_left_over() -> None:
    for start in range(0, 4):
        for stop in range(start + 2, 60):
            for size in range(1, 20):
                stops = [start, *chunk_stops(start, stop, size)]
                assert stops[-1] == stop
                assert all(b - a >= 2 for a, b in itertools.pairwise(stops))
    assert chunk_stops(5, 6, 4) == [6]  # one token in all


def test_a_rewound_generator_goes_on_like_a_fresh_one(model: og.Model) -> None:
    made = generator(model)
    first = answer(made)
    made.rewind_to(len(PROMPT) + 4)
    assert made.token_count() == len(PROMPT) + 4
    assert not made.is_done()
    assert answer(made, 8) == first[4:]
    made.rewind_to(0)
    assert made.token_count() == 0
    made.append_tokens(PROMPT)
    assert answer(made) == first


def test_a_choice_may_be_replaced_after_a_rewind(model: og.Model) -> None:
    made = generator(model)
    answer(made)
    made.rewind_to(len(PROMPT) + 2)
    made.append_tokens([77])
    fresh = generator(model, [*made.get_sequence(0).tolist()])
    assert made.get_sequence(0).tolist() == fresh.get_sequence(0).tolist()
    np.testing.assert_allclose(made.get_logits(), fresh.get_logits(), atol=1e-4)


def test_a_fork_leaves_its_source_alone(model: og.Model) -> None:
    made = generator(model)
    first = answer(made, 6)
    twin = made.fork(len(PROMPT) + 3)
    assert answer(twin, 9) == answer(generator(model), 12)[3:]
    assert made.get_sequence(0).tolist() == [*PROMPT, *first]
    assert [*first, *answer(made, 6)] == answer(generator(model), 12)


def test_logits_are_read_and_replaced(model: og.Model) -> None:
    made = generator(model)
    before = made.get_logits()
    assert before.shape == (1, 1, model.vocab_size)
    assert before.dtype == np.float32
    chosen = np.full(model.vocab_size, -5.0, np.float32)
    chosen[33] = 1.0
    made.set_logits(chosen)
    made.generate_next_token()
    assert made.get_next_tokens().tolist() == [33]
    with pytest.raises(StateError, match="no logits are computed yet"):
        made.set_logits(chosen)
    assert made.get_logits().shape == (1, 1, model.vocab_size)
    made.set_logits(chosen)
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == [*PROMPT, 33, 33]


def test_an_end_token_is_returned_but_not_appended(model: og.Model) -> None:
    made = generator(model)
    end = np.full(model.vocab_size, -5.0, np.float32)
    eos = model.config.model.eos_token_ids[0]
    end[eos] = 1.0
    made.set_logits(end)
    made.generate_next_token()
    assert made.is_done()
    assert made.get_next_tokens().tolist() == [eos]
    assert made.token_count() == len(PROMPT)
    with pytest.raises(StateError, match="done"):
        made.generate_next_token()
    made.append_tokens([60])
    assert made.get_sequence(0).tolist() == [*PROMPT, 60]
    assert not made.is_done()


def test_max_length_ends_the_sequence(model: og.Model) -> None:
    made = generator(model, max_length=8)
    answer(made)
    assert made.is_done()
    assert made.token_count() == 8
    with pytest.raises(StateError, match=r"already at max_length \(8\)"):
        made.generate_next_token()
    with pytest.raises(CapacityError, match="max_length = 8"):
        made.append_tokens([5])
    assert made.token_count() == 8


def test_stop_ends_it_and_appending_goes_on(model: og.Model) -> None:
    made = generator(model)
    answer(made, 3)
    made.stop()
    assert made.is_done()
    made.append_tokens([9])
    assert len(answer(made, 3)) == 3


@pytest.mark.parametrize(
    ("tokens", "error", "words"),
    [
        ([], ArgumentError, "empty"),
        ([1.5], ArgumentTypeError, "float64"),
        (["a"], ArgumentTypeError, "Text is encoded first"),
        ([-1], ArgumentError, "token id -1"),
        ([10**6], ArgumentError, "token id 1000000"),
        ([[1, 2], [3, 4]], ArgumentError, r"shape \[2, 2\]"),
        (np.zeros((1, 1, 2), int), ArgumentError, "shape"),
    ],
)
def test_bad_tokens_change_nothing(model: og.Model, tokens: object, error: type[Exception], words: str) -> None:
    made = generator(model)
    with pytest.raises(error, match=words):
        made.append_tokens(tokens)  # type: ignore[arg-type]
    assert made.get_sequence(0).tolist() == PROMPT
    assert answer(made) == answer(generator(model))


def test_calls_in_the_wrong_order_are_told_what_to_do(model: og.Model) -> None:
    empty = generator(model, [])
    for call in (empty.generate_next_token, empty.get_logits):
        with pytest.raises(StateError, match="append_tokens"):
            call()
    with pytest.raises(ArgumentError, match="allowed is 0 to 0"):
        empty.rewind_to(1)
    with pytest.raises(ArgumentTypeError, match="str"):
        empty.rewind_to("1")  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="index 0"):
        empty.get_sequence(1)
    with pytest.raises(ArgumentTypeError, match="Model and GeneratorParams"):
        og.Generator(model, {})  # type: ignore[arg-type]


def test_closed_things_say_so(model: og.Model, tiny_folder: Path) -> None:
    with generator(model) as made:
        answer(made, 2)
    for call in (made.generate_next_token, made.get_logits, lambda: made.append_tokens([1]), lambda: made.rewind_to(0)):
        with pytest.raises(StateError, match="closed"):
            call()
    made.close()
    with og.Model(tiny_folder) as own:
        orphan = generator(own)
    with pytest.raises(StateError, match="Model is closed"):
        answer(orphan)


def test_the_price_of_max_length_is_known_before_it_is_paid(model: og.Model) -> None:
    made = params(model, max_length=100)
    assert made.kv_cache_bytes == 100 * model.kv_layout.bytes_per_token
    assert og.Generator(model, made).kv_cache_bytes == made.kv_cache_bytes


def test_more_than_the_machine_has_is_refused_by_number(model: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genai_lab.kvcache.contiguous.memory_limit_bytes", lambda: 1000)
    with pytest.raises(CapacityError, match=r"needs [\d,]+ bytes .* has 1,000"):
        generator(model)


def test_outputs_are_read_by_name(model: og.Model) -> None:
    made = generator(model)
    assert made.get_output("logits").shape[-1] == model.vocab_size
    keys = made.get_output("present.0.key")
    assert keys.shape == (1, model.kv_layout.num_kv_heads, len(PROMPT), model.kv_layout.head_dim)
    assert np.abs(keys).sum() > 0
    with pytest.raises(ArgumentError, match=r"present\.0\.key"):
        made.get_output("nothing")


def test_og_compat_is_argmax_where_we_sample(model: og.Model) -> None:
    options = {"do_sample": True, "top_k": 0, "top_p": 0.0, "temperature": 3.0, "random_seed": 1}
    with og.og_compat():
        compatible = generator(model, **options)
    assert answer(compatible) == answer(generator(model))
    assert "og_compat" in compatible.effective_mode.reason
    assert answer(generator(model, **options)) != answer(generator(model))
