from __future__ import annotations

from pathlib import Path

import pytest

from genai_lab.tokenizer import Tokenizer
from tests.tokenizer.kinds import KINDS, byte_level, save_folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for every kind of tokenizer."""
    root = tmp_path_factory.mktemp("tokenizers")
    return {name: save_folder(make(), root / name) for name, make in KINDS.items()}


@pytest.fixture(scope="session")
def tokenizers(folders: dict[str, Path]) -> dict[str, Tokenizer]:
    return {name: Tokenizer(folder) for name, folder in folders.items()}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    """A byte-level tokenizer that a test may change; its model has 10 ids more than it."""
    made = byte_level()
    return Tokenizer(save_folder(made, tmp_path / "model", model_vocab_size=made.get_vocab_size() + 10))
