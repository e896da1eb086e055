"""The same grammar in onnxruntime-genai and here: the same tokens, errors at the same moment, and where we differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = """start: "<call>" name "(" args? ")" "</call>"
name: "weather" | "time"
args: ARG ("," ARG)*
ARG: /[a-z]{1,8}=[0-9]{1,3}/
"""
GRAMMARS = [
    ("regex", "[0-9]{4}"),
    ("regex", r"(The|A) [a-z]{2,8} (is|was) [a-z ]{5,30}\."),
    ("regex", "hello world and all the rest"),
    ("json_schema", json.dumps(PERSON)),
    ("json_schema", '{"enum": ["red", "green", "blue"]}'),
    ("lark_grammar", TOOL),
]
PROMPTS = ["Describe a person: ", "A:", "The answer is "]


@pytest.fixture(scope="module")
def folders(tiny_folder: Path, model_folder: Path) -> list[Path]:
    return [tiny_folder, model_folder]


class Side:
    """One library on one folder."""

    def __init__(self, api: Any, folder: Path) -> None:
        self.api, self.model = api, api.Model(str(folder))
        self.tokenizer = api.Tokenizer(self.model)

    def generator(self, kind: str, grammar: str, prompt: str, ff: bool = False, **options: object) -> Any:
        params = self.api.GeneratorParams(self.model)
        params.set_search_options(**({"max_length": 90} | options))
        params.set_guidance(kind, grammar, ff)
        generator = self.api.Generator(self.model, params)
        generator.append_tokens(self.tokenizer.encode(prompt))
        return generator


def run(generator: Any, tokens: int = 60) -> tuple[list[int], list[int], list[int]]:
    """Chosen tokens, the length after each, and the whole sequence."""
    chosen: list[int] = []
    lengths: list[int] = []
    while not generator.is_done() and len(chosen) < tokens:
        generator.generate_next_token()
        chosen.append(int(generator.get_next_tokens()[0]))
        lengths.append(int(generator.token_count()))
    return chosen, lengths, generator.get_sequence(0).tolist()


@pytest.fixture(scope="module")
def sides(folders: list[Path]) -> list[tuple[Side, Side]]:
    return [(Side(og, folder), Side(genai_lab, folder)) for folder in folders]


OPTIONS: list[dict[str, object]] = [
    {},
    {"repetition_penalty": 1.2},
    {"do_sample": True, "random_seed": 7, "top_k": 20, "temperature": 1.3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["greedy", "penalty", "seeded"])
@pytest.mark.parametrize("ff", [False, True], ids=["plain", "ff"])
@pytest.mark.parametrize(("kind", "grammar"), GRAMMARS, ids=[text[:14] for _, text in GRAMMARS])
def test_the_same_tokens(
    sides: list[tuple[Side, Side]], kind: str, grammar: str, ff: bool, options: dict[str, object]
) -> None:
    for theirs, ours in sides:
        for prompt in PROMPTS:
            expected = run(theirs.generator(kind, grammar, prompt, ff, **options))
            assert run(ours.generator(kind, grammar, prompt, ff, **options)) == expected


def test_a_batch_has_the_same_tokens(sides: list[tuple[Side, Side]]) -> None:
    found = []
    for side in sides[1]:
        params = side.api.GeneratorParams(side.model)
        params.set_search_options(max_length=40, batch_size=2)
        params.set_guidance("regex", "[0-9]{4}")
        generator = side.api.Generator(side.model, params)
        generator.append_tokens(side.tokenizer.encode_batch(["A:", "Hi, B:"]))
        while not generator.is_done():
            generator.generate_next_token()
        rows = [np.asarray(generator.get_sequence(row)) for row in range(2)]
        found.append([np.trim_zeros(np.where(row == 2, 0, row), "b").tolist() for row in rows])  # without end tokens
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("kind", "grammar", "words"),
    [
        ("regex", "(", "unclosed group"),
        ("lark_grammar", "start: foo", 'unknown name: "foo"'),
        ("json_schema", '{"type":', "line 1"),
        ("json_schema", '{"type": "foo"}', "Invalid type: foo"),
        ("yaml", "a", "json_schema, regex, "),
        ("regex", "", ""),
    ],
)
def test_errors_come_when_the_generator_is_made(
    sides: list[tuple[Side, Side]], kind: str, grammar: str, words: str
) -> None:
    for side in sides[0]:
        params = side.api.GeneratorParams(side.model)
        params.set_guidance(kind, grammar)
        with pytest.raises(RuntimeError) as caught:
            side.api.Generator(side.model, params)
        assert words in str(caught.value)


def test_wrong_types_are_errors_at_once(sides: list[tuple[Side, Side]]) -> None:
    for side in sides[0]:
        params = side.api.GeneratorParams(side.model)
        for bad in (("json_schema", 3), (1, "a"), ("regex",)):
            with pytest.raises(TypeError):
                params.set_guidance(*bad)
        params.set_guidance("", "")
        side.api.Generator(side.model, params)


def test_after_an_end_the_next_answer_begins_anew(sides: list[tuple[Side, Side]]) -> None:
    for theirs, ours in sides:
        found = []
        for side in (theirs, ours):
            generator = side.generator("regex", "[0-9]{4}", "A:")
            first = run(generator)
            generator.append_tokens(side.tokenizer.encode(" B:"))
            found.append((first, run(generator)))
        assert found[0] == found[1]


def test_after_a_rewind_there_the_grammar_begins_anew_and_here_it_is_at_the_place(
    sides: list[tuple[Side, Side]],
) -> None:
    lengths = []
    for side in sides[0]:
        generator = side.generator("regex", "[0-9]{4}", "A:")
        run(generator, 3)
        generator.rewind_to(generator.token_count() - 1)
        prompt = len(side.tokenizer.encode("A:"))
        lengths.append(len(run(generator)[2]) - prompt)
    assert lengths[0] > 4 and lengths[1] == 4


def test_beams_fail_there_and_follow_the_grammar_here(sides: list[tuple[Side, Side]]) -> None:
    theirs, ours = (side.generator("regex", "[0-9]{4}", "A:", num_beams=2) for side in sides[1])
    with pytest.raises(RuntimeError, match="after stop"):
        run(theirs)
    run(ours)
    assert sides[1][1].tokenizer.decode(ours.get_sequence(0)).removeprefix("A:").isdigit()
