"""Examples in docstrings run as they are written: in a folder where `path/to/model` is a tiny model's folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.doctest import DoctestItem


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny import tiny_model_folder

    folder = tmp_path_factory.mktemp("examples")
    (folder / "path" / "to").mkdir(parents=True)
    tiny_model_folder(folder / "path" / "to" / "model")
    return folder


@pytest.fixture(autouse=True)
def run_examples_in_their_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(request.node, DoctestItem):
        monkeypatch.chdir(request.getfixturevalue("example_folder"))
