"""Examples in docstrings run as they are written: in a folder where `path/to/model` is a tiny model's folder, and with
what an example takes as given: `genai_lab`, `model`, `tokenizer`, `params`, and `generator`, which has read a prompt.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestItem


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny import tiny_model_folder

    folder = tmp_path_factory.mktemp("examples")
    (folder / "path" / "to").mkdir(parents=True)
    tiny_model_folder(folder / "path" / "to" / "model")
    return folder


def given(folder: Path) -> dict[str, Any]:
    """What examples may use without making it, fresh for each."""
    import genai_lab

    model = genai_lab.Model(str(folder))
    tokenizer = genai_lab.Tokenizer(model)
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=40)
    generator = genai_lab.Generator(model, params)
    generator.append_tokens(tokenizer.encode("Hello"))
    return {
        "genai_lab": genai_lab,
        "model": model,
        "tokenizer": tokenizer,
        "params": params,
        "generator": generator,
    }


@pytest.fixture(autouse=True)
def run_examples_where_they_can(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, doctest_namespace: dict[str, Any]
) -> None:
    if isinstance(request.node, DoctestItem):
        folder = request.getfixturevalue("example_folder")
        monkeypatch.chdir(folder)
        doctest_namespace.update(given(folder / "path" / "to" / "model"))
