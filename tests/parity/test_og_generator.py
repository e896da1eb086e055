"""The same folder, run by onnxruntime-genai and by us: the same tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab

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
]


@pytest.mark.parametrize("options", TINY_WAYS)
def test_every_option_gives_ogs_tokens_on_a_tiny_model(tiny_folder: Path, options: dict[str, object]) -> None:
    rng = np.random.default_rng(4)
    prompts = [rng.integers(3, 250, size=size).astype(np.int32) for size in (2, 5, 17, 40)]
    assert run(genai_lab, tiny_folder, prompts, 30, **options) == run(og, tiny_folder, prompts, 30, **options)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_leave_both_in_the_same_state(tiny_folder: Path, seed: int) -> None:
    """append, generate, rewind in random order. A rewind is followed by an append or a generate, as scripts do."""
    rng = np.random.default_rng(seed)
    pair = []
    for library in (og, genai_lab):
        model = library.Model(str(tiny_folder))
        params = library.GeneratorParams(model)
        params.set_search_options(max_length=200, min_length=200)  # no end token: ends are compared elsewhere
        pair.append(library.Generator(model, params))
    for _ in range(25):
        length = pair[1].token_count()
        action = rng.choice(["append", "generate", "generate", "rewind"]) if length else "append"
        if length > 180:
            action = "rewind"
        tokens = rng.integers(3, 250, size=int(rng.integers(2, 9))).astype(np.int32)
        target = int(rng.integers(1, length)) if length > 1 else 0
        for generator in pair:
            if action == "append":
                generator.append_tokens(tokens)
            elif action == "generate":
                generator.generate_next_token()
            else:
                generator.rewind_to(target)
        assert pair[0].token_count() == pair[1].token_count(), action
        assert pair[0].get_sequence(0).tolist() == pair[1].get_sequence(0).tolist(), action
