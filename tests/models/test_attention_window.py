"""How far back a model sees: believed of a config when trying it agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

import genai_lab
from genai_lab.models.attention_window import attention_window
from tests.local_window import local_folder


@pytest.mark.parametrize("window", [2, 24])
def test_a_window_that_is_there(tmp_path: Path, window: int) -> None:
    assert attention_window(genai_lab.Model(local_folder(tmp_path / "model", window))) == window


@pytest.mark.parametrize(
    "wrong", [{"layers": [0]}, {"layers": []}, {"stated": 23}], ids=["one layer of two", "no layer", "one too few"]
)
def test_a_config_that_says_too_little_is_not_believed(tmp_path: Path, wrong: dict[str, object]) -> None:
    assert attention_window(genai_lab.Model(local_folder(tmp_path / "model", 24, **wrong))) is None  # type: ignore[arg-type]


def test_a_config_that_says_too_much_keeps_more_than_needed(tmp_path: Path) -> None:
    assert attention_window(genai_lab.Model(local_folder(tmp_path / "model", 24, stated=30))) == 30


def test_a_window_of_the_token_itself_keeps_nothing_and_is_not_one(tmp_path: Path) -> None:
    assert attention_window(genai_lab.Model(local_folder(tmp_path / "model", 1))) is None


def test_no_window(tiny_folder: Path) -> None:
    assert attention_window(genai_lab.Model(tiny_folder)) is None
