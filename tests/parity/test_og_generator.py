"""The same folder, run by onnxruntime-genai and by us: the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.errors import ArgumentError
from tests.tables import random_table, table_model

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og

QUESTIONS = [
    "What is the capital of France?",
    "Name three colours.",
    "Write one sentence about the sea.",
    "What is 7 times 8?",
    "Who wrote Hamlet?",
    "Explain gravity to a child.",
    "Translate 'good morning' into French.",
    "List the days of the week.",
    "Why is the sky blue?",
    "Give me a recipe for tea.",
    "What do bees make?",
    "Write a haiku about rain.",
    "Is water wet?",
    "What is a prime number?",
    "Tell me a joke.",
    "Complete: once upon a time",
    "How many legs has a spider?",
    "What is the opposite of hot?",
    "Describe a cat in five words.",
    "def fibonacci(n):",
]


def run(
    library: object, folder: Path, prompts: list[np.ndarray], new_tokens: int, **options: object
) -> list[list[int]]:
    """Answers of `library` (og or genai_lab, one API) to each prompt."""
    model = library.Model(str(folder))  # type: ignore[attr-defined]
    answers = []
    for prompt in prompts:
        params = library.GeneratorParams(model)  # type: ignore[attr-defined]
        params.set_search_options(max_length=len(prompt) + new_tokens, **options)
        generator = library.Generator(model, params)  # type: ignore[attr-defined]
        generator.append_tokens(prompt)
        answer = []
        while not generator.is_done():
            generator.generate_next_token()
            answer.append(int(generator.get_next_tokens()[0]))
        answers.append(answer)
    return answers


def chat_prompts(folder: Path, count: int) -> list[np.ndarray]:
    tokenizer = genai_lab.Tokenizer(str(folder))
    return [
        tokenizer.encode(tokenizer.apply_chat_template([{"role": "user", "content": question}]))
        for question in QUESTIONS[:count]
    ]


def test_greedy_answers_of_the_default_model_are_ogs(model_folder: Path) -> None:
    prompts = chat_prompts(model_folder, 20)
    assert run(genai_lab, model_folder, prompts, 24) == run(og, model_folder, prompts, 24)


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 50, "temperature": 1.0},
        {"top_k": 12, "temperature": 0.6},
        {"top_k": 40, "top_p": 0.9, "temperature": 1.2},
        {"top_k": 30, "repetition_penalty": 1.3},
    ],
)
def test_seeded_answers_of_the_default_model_are_ogs(model_folder: Path, options: dict[str, object]) -> None:
    prompts = chat_prompts(model_folder, 3)
    settings = {"do_sample": True, "random_seed": 1234} | options
    assert run(genai_lab, model_folder, prompts, 24, **settings) == run(og, model_folder, prompts, 24, **settings)


TINY_WAYS = [
    {},
    {"repetition_penalty": 1.5},
    {"repetition_penalty": 0.7},
    {"min_length": 40},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3, "repetition_penalty": 1.2, "min_length": 12},
    {"do_sample": True, "random_seed": 3, "top_k": 20, "temperature": 2.0},
    {"do_sample": True, "random_seed": 3, "top_k": 100, "top_p": 0.6, "temperature": 2.0},
    {"do_sample": True, "random_seed": 0, "top_k": 1},
    {"do_sample": True, "random_seed": 0, "temperature": 0.0},
    *({"do_sample": True, "random_seed": 3, "top_k": 20, "temperature": end} for end in (1e-30, 1e-3, 1e3, 1e30)),
    *({"repetition_penalty": end} for end in (1e-30, 1e-3, 1e3, 1e30)),
]


@pytest.mark.parametrize("options", TINY_WAYS)
def test_every_option_gives_ogs_tokens_on_a_tiny_model(tiny_folder: Path, options: dict[str, object]) -> None:
    rng = np.random.default_rng(4)
    prompts = [rng.integers(3, 250, size=size).astype(np.int32) for size in (2, 5, 17, 40)]
    assert run(genai_lab, tiny_folder, prompts, 30, **options) == run(og, tiny_folder, prompts, 30, **options)


@pytest.mark.parametrize("name", ["temperature", "repetition_penalty"])
@pytest.mark.parametrize("value", [1e-320, 1e308])
def test_what_float32_cannot_count_with_is_refused_and_not_there(tiny_folder: Path, name: str, value: float) -> None:
    ogs, ours = (library.GeneratorParams(library.Model(str(tiny_folder))) for library in (og, genai_lab))
    ogs.set_search_options(**{name: value})
    with pytest.raises(ArgumentError, match=f"{name} is .*from 1e-30 to 1e.30 is allowed"):
        ours.set_search_options(**{name: value})


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_leave_both_in_the_same_state(tiny_folder: Path, seed: int) -> None:
    """append, generate, rewind-then-append in random order, but for the two orders of the tests below."""
    rng = np.random.default_rng(seed)
    ogs, ours = (endless_generator(library, tiny_folder) for library in (og, genai_lab))
    generated = False
    for _ in range(25):
        length = ours.token_count()
        action = (
            rng.choice(["generate", "rewind"] if generated else ["append", "generate", "rewind"])
            if length
            else "append"
        )
        if length > 180:
            action = "rewind"
        tokens = rng.integers(3, 250, size=int(rng.integers(2, 9))).astype(np.int32)
        target = int(rng.integers(0, length)) if length else 0
        for generator in (ogs, ours):
            if action == "generate":
                generator.generate_next_token()
                continue
            if action == "rewind":
                generator.rewind_to(target)
            generator.append_tokens(tokens)
        generated = action == "generate"
        assert ogs.token_count() == ours.token_count(), action
        assert ogs.get_sequence(0).tolist() == ours.get_sequence(0).tolist(), action


def test_appending_after_a_generated_token_reads_that_token(tiny_folder: Path) -> None:
    """onnxruntime-genai 0.18 leaves a hole in its cache there: the last generated token is never read. Ours is as a
    fresh generator would be on the same tokens. (After an end token, as in a chat, there is no such token, and both
    agree.)"""
    ogs, ours, fresh = (endless_generator(library, tiny_folder) for library in (og, genai_lab, genai_lab))
    for generator in (ogs, ours):
        generator.append_tokens(np.array([10, 20, 30, 40, 50], np.int32))
        for _ in range(2):
            generator.generate_next_token()
        generator.append_tokens(np.array([7, 8], np.int32))
    fresh.append_tokens(ours.get_sequence(0))
    np.testing.assert_allclose(ours.get_logits(), fresh.get_logits(), atol=1e-4)
    assert np.abs(ogs.get_output("present.0.key")[0, 0, 6]).sum() == 0  # the hole
    assert np.abs(ours.get_output("present.0.key")[0, 0, 6]).sum() > 0


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 7])
def test_generating_right_after_a_rewind_ends_in_the_same_text(tiny_folder: Path, cut: int) -> None:
    """onnxruntime-genai then puts back the token that was cut off before it adds one: a call makes two tokens. Ours
    makes one, chosen anew. Where the cut token had been generated, both end in the same text."""
    ogs, ours = (endless_generator(library, tiny_folder) for library in (og, genai_lab))
    for generator in (ogs, ours):
        generator.append_tokens(np.array([10, 20, 30][: min(cut, 3)], np.int32))
        while generator.token_count() < 9:
            generator.generate_next_token()
        generator.rewind_to(cut)
    ogs.generate_next_token()
    assert ogs.token_count() == cut + 2
    ours.generate_next_token()
    assert ours.token_count() == cut + 1
    for generator in (ogs, ours):
        while generator.token_count() < 20:
            generator.generate_next_token()
    assert ogs.get_sequence(0).tolist() == ours.get_sequence(0).tolist()


def endless_generator(library: object, folder: Path) -> object:
    """A greedy generator that meets no end token before 200 tokens."""
    model = library.Model(str(folder))  # type: ignore[attr-defined]
    params = library.GeneratorParams(model)  # type: ignore[attr-defined]
    params.set_search_options(max_length=200, min_length=200)
    return library.Generator(model, params)  # type: ignore[attr-defined]


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 8])
def test_og_compat_puts_back_what_a_rewind_cut_off(tiny_folder: Path, cut: int) -> None:
    options = {"max_length": 30, "min_length": 30, "do_sample": True, "top_k": 20, "random_seed": 11}
    with genai_lab.og_compat():
        ours = rewinding(genai_lab, tiny_folder, options, cut)
    assert ours == rewinding(og, tiny_folder, options, cut)


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "top_k": 5, "random_seed": 3, "temperature": 4.0}])
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("cut", [2, 4, 6])
def test_og_compat_puts_it_back_while_speculating(
    tmp_path: Path, cut: int, width: int, options: dict[str, object]
) -> None:
    folder, speculative = table_model(tmp_path / "model", random_table(3, 9)), {"ngram_size": 3}
    options, speculative = {"max_length": 30} | options, speculative | {"max_draft_tokens": width}
    with genai_lab.og_compat():
        ours = rewinding(genai_lab, folder, options, cut, speculative)
    assert ours == rewinding(og, folder, options, cut, speculative)


def rewinding(
    library: Any, folder: Path, options: dict[str, object], cut: int, speculative: dict[str, int] | None = None
) -> list[object]:
    """What there is to see when a text is rewound to `cut` again and again, and goes on."""
    model = library.Model(str(folder))
    params = library.GeneratorParams(model)
    params.set_search_options(**options)
    params.set_speculative_options(**speculative or {})
    made = library.Generator(model, params)
    made.append_tokens(np.array([1, 2, 1, 2], np.int32))
    seen: list[object] = []
    for look in (False, True):
        while made.token_count() < 12:
            made.generate_next_token()
        made.rewind_to(cut)
        seen += [made.token_count(), made.get_next_tokens().tolist()]
        if look:
            seen += [made.get_logits().shape, made.get_sequence(0).tolist()]
        made.generate_next_token()
        seen.append(made.get_sequence(0).tolist())
    made.rewind_to(cut)
    made.append_tokens(np.array([3], np.int32))  # then nothing is put back
    made.generate_next_token()
    return [*seen, made.get_sequence(0).tolist()]
