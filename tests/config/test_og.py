"""onnxruntime-genai reads the same folders, refuses the same slips and knows the same options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_lab
from genai_lab.config import Config
from tests.config.samples import (
    DECODER_PARTS,
    MODEL,
    OTHER_PARTS,
    OTHER_SECTIONS,
    SPEECH_NUMBERS,
    config_json,
    write_folder,
)

og: Any = pytest.importorskip("onnxruntime_genai")
pytestmark = pytest.mark.og


def refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except (RuntimeError, ValueError, TypeError):
        return True
    return False


SOUND: dict[str, dict[str, Any]] = {
    "plain": config_json(),
    "smallest": {"model": {"context_length": 1}},
    "decoder": config_json(model={**MODEL, **SPEECH_NUMBERS, "decoder": {**MODEL["decoder"], **DECODER_PARTS}}),
    "sections": config_json(**OTHER_SECTIONS),
    "static": config_json(engine={"static_batching": {"max_batch_size": 2}}),
    "whole numbers": {"model": {"context_length": 8.0, "vocab_size": 1e3}},
    "a lone value": {"$schema": "x", "model": {"context_length": 1}},
    **{name: config_json(model={**MODEL, name: part}) for name, part in OTHER_PARTS.items()},
    "dspark": config_json(model={**MODEL, "dspark": OTHER_PARTS["dflash2"]}),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_folders_load_in_both(name: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, SOUND[name])
    og.Config(str(folder))
    Config(folder)


@pytest.mark.parametrize(
    "content",
    [
        {"model": {}},
        {"model": {"context_length": "8"}},
        {"model": {"context_length": 8, "vocab_size": 1.5}},
        {"model": {"context_length": 8, "vocab_size": True}},
        {"model": {"context_length": 8, "vocab_size": None}},
        {"model": {"context_length": 8, "eos_token_id": ["a"]}},
        {"model": {"context_length": 8, "nonsense": 1}},
        {"model": {"context_length": 8, "decoder": {"filename": "../x"}}},
        {"model": {"context_length": 8, "decoder": {"filename": "/x"}}},
        {"model": {"context_length": 8, "decoder": {"session_options": {"provider_options": {}}}}},
        {"model": {"context_length": 8, "decoder": {"session_options": {"use_env_allocators": True}}}},
        {"model": {"context_length": 8, "decoder": {"session_options": {"graph_optimization_level": "x"}}}},
        {"model": {"context_length": 8}, "search": {"max_length": 5.5}},
        {"model": {"context_length": 8}, "search": {"do_sample": 1}},
        {"model": {"context_length": 8}, "speculative": {"max_draft_tokens": 17}},
        {"model": {"context_length": 8}, "engine": {"dynamic_batching": {"block_size": 0}}},
        {"model": {"context_length": 8}, "nonsense": {}},
        "{",
        "[]",
    ],
)
def test_slips_are_refused_by_both(content: object, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, content)
    assert refuses(lambda: og.Config(str(folder)))
    assert refuses(lambda: Config(folder))


OPTIONS: list[dict[str, Any]] = [
    {"do_sample": True, "temperature": 0.7, "top_k": 40, "top_p": 0.9},
    {"top_k": 50.0, "temperature": 1, "repetition_penalty": 1.1},
    {"max_length": 17, "min_length": 3, "no_repeat_ngram_size": 2, "random_seed": 16_777_217},
    {"num_beams": 4, "num_return_sequences": 2, "length_penalty": -0.3, "early_stopping": False},
    {"chunk_size": 16, "batch_size": 2, "past_present_share_buffer": True, "diversity_penalty": 0.1},
    {"chunk_size": 0, "blank_penalty": 0.5},
]
WRONG_OPTIONS: list[dict[str, Any]] = [
    {"top_k": True},
    {"top_k": 1.5},
    {"top_k": "5"},
    {"top_k": None},
    {"top_k": 2**31},
    {"do_sample": 1},
    {"early_stopping": 0},
    {"nonsense": 1},
    {"context_length": 1},
]


@pytest.fixture(scope="module")
def params(tiny_folder: Path) -> tuple[Config, Callable[[], Any]]:
    model = og.Model(str(tiny_folder))
    return Config(tiny_folder), lambda: og.GeneratorParams(model)


@pytest.mark.parametrize("options", [{}, *OPTIONS])
def test_options_read_back_alike(options: dict[str, Any], params: tuple[Config, Callable[[], Any]]) -> None:
    config, make = params
    theirs = make()
    theirs.set_search_options(**options)
    assert config.search_options().with_options(**options).as_og_dict() == theirs.get_search_options()


@pytest.mark.parametrize("options", WRONG_OPTIONS)
def test_wrong_options_are_refused_by_both(options: dict[str, Any], params: tuple[Config, Callable[[], Any]]) -> None:
    config, make = params
    assert refuses(lambda: make().set_search_options(**options))
    assert refuses(lambda: config.search_options().with_options(**options))


def test_where_we_differ(params: tuple[Config, Callable[[], Any]], tmp_path: Path) -> None:
    """Accepted there and refused here: values without a meaning. An overlay replaces a list; there it adds to it."""
    config, make = params
    for options in ({"temperature": -1.0}, {"repetition_penalty": 0}, {"top_p": float("nan")}, {"min_length": -1}):
        assert not refuses(lambda options=options: make().set_search_options(**options))  # type: ignore[misc]
        assert refuses(lambda options=options: config.search_options().with_options(**options))  # type: ignore[misc]
    folder = write_folder(tmp_path, {"model": {"context_length": 8}, "search": {"top_p": 9, "num_beams": 0}})
    assert not refuses(lambda: og.Config(str(folder)))
    assert refuses(lambda: Config(folder))


def test_a_min_length_above_max_length_is_taken_and_the_answer_ends_at_max_length(tiny_folder: Path) -> None:
    lengths = []
    for library in (og, genai_lab):
        model = library.Model(str(tiny_folder))
        params = library.GeneratorParams(model)
        params.set_search_options(min_length=50, max_length=20)
        generator = library.Generator(model, params)
        generator.append_tokens(library.Tokenizer(model).encode("Hello"))
        while not generator.is_done():
            generator.generate_next_token()
        lengths.append(generator.token_count())
    assert lengths == [20, 20]
