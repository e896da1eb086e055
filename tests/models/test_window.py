"""Prompts read window by window: what every run is given, and what the sliding cache holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.errors import StateError
from tests.graphs_windowed import CONTEXT, WINDOW, windowed

PROMPT = [5, 6, 7, 8, 9, 10, 11, 12, 13]  # two windows and one token


def generator(folder: Path, prompt: list[int], **options: Any) -> genai_lab.Generator:
    params = genai_lab.GeneratorParams(genai_lab.Model(folder))
    params.set_search_options(max_length=24, **options)
    made = genai_lab.Generator(params.model, params)
    made.append_tokens(prompt)
    return made


@pytest.mark.parametrize(("alignment", "filled"), [("right", [0, 0, 0, *PROMPT]), ("left", [*PROMPT, 0, 0, 0])])
def test_the_cache_slides(tmp_path: Path, alignment: str, filled: list[int]) -> None:
    made = generator(windowed(tmp_path / "model", sliding_cache=True, alignment=alignment, pad_value=7), PROMPT)
    assert made.get_sequence(0).tolist() == filled
    read = filled[:-WINDOW]  # before the last window
    for new in (WINDOW, 1, 1, 1):
        if new == 1:
            read = made.get_sequence(0).tolist()
            made.generate_next_token()
            made.get_logits()
        expected = [7] * (CONTEXT - new - len(read)) + read
        keys, values = made.get_input("past_key_values.0.key"), made.get_input("past_key_values.0.value")
        assert keys.shape == (2, 1, 4, CONTEXT - new)
        assert keys[0, 0, 0].tolist() == expected
        assert values[1, 0, :, 0].tolist() == expected


def test_chunks_are_the_whole(tmp_path: Path) -> None:
    folder = windowed(tmp_path / "model", shared=True, lengths=True)
    whole, parts = generator(folder, PROMPT), generator(folder, PROMPT, chunk_size=5)
    np.testing.assert_array_equal(parts.get_logits(), whole.get_logits())


def test_a_fork_goes_its_own_way(tmp_path: Path) -> None:
    made = generator(windowed(tmp_path / "model", shared=True, lengths=True), PROMPT)
    twin = made.fork()
    for each in (twin, made):
        each.generate_next_token()
        each.get_logits()
    np.testing.assert_array_equal(twin.get_logits(), made.get_logits())
    with pytest.raises(StateError, match="fork"):
        made.fork(2)


def test_only_nothing_can_be_gone_back_to(tmp_path: Path) -> None:
    made = generator(windowed(tmp_path / "model", shared=True, lengths=True), PROMPT)
    first = made.get_logits()
    made.generate_next_token()
    with pytest.raises(StateError, match=r"WindowedPositionInputs does not support RewindTo\(4\)"):
        made.rewind_to(4)
    with pytest.raises(StateError, match="window by window, once"):
        made.append_tokens([5])
    made.rewind_to(0)
    made.append_tokens(PROMPT)
    np.testing.assert_array_equal(made.get_logits(), first)


def test_several_rows_are_refused(tmp_path: Path) -> None:
    params = genai_lab.GeneratorParams(genai_lab.Model(windowed(tmp_path / "model")))
    params.set_search_options(batch_size=2)
    with pytest.raises(StateError, match="Batch beam size must be 1 for sliding a window over input_ids"):
        genai_lab.Generator(params.model, params)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ({"window_size": 20}, "context_length .32. must be greater than or equal to 2"),
        ({"window_size": 0}, "window_size"),
    ],
)
def test_a_window_that_does_not_fit_is_refused(tmp_path: Path, window: dict[str, int], words: str) -> None:
    params = genai_lab.GeneratorParams(genai_lab.Model(windowed(tmp_path / "m", sliding_cache=True, window=window)))
    with pytest.raises(StateError, match=words):
        genai_lab.Generator(params.model, params)


def test_a_window_of_the_attention_alone_changes_nothing(tmp_path: Path, tiny_folder: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny_folder.iterdir():
        if file.name != "genai_config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((tiny_folder / "genai_config.json").read_text())
    window = {"window_size": 4, "slide_inputs": False, "slide_key_value_cache": False, "layers": [0]}
    config["model"]["decoder"]["sliding_window"] = window
    (folder / "genai_config.json").write_text(json.dumps(config))
    prompt = [1, 5, 9, 11, 7, 3]
    np.testing.assert_array_equal(generator(folder, prompt).get_logits(), generator(tiny_folder, prompt).get_logits())
