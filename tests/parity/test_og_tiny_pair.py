"""The shipped pair, run by onnxruntime-genai and by us: the same tokens, the same text."""

from __future__ import annotations

import numpy as np
import pytest

import genai_lab
from genai_lab.workbench.default_model import model_folder
from tests.parity.test_og_generator import run
from tools.tiny.text import read_book

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og


@pytest.fixture(params=["tiny", "tiny-draft", "tiny-speculative"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_greedy_tokens_are_ogs(name: str) -> None:
    folder = model_folder(name)
    tokens = genai_lab.Tokenizer(str(folder)).encode(read_book().by_heart)
    prompts = [tokens[start : start + 20] for start in np.linspace(0, tokens.size - 20, 8).astype(int)]
    assert run(genai_lab, folder, prompts, 40) == run(og, folder, prompts, 40)


def test_text_is_cut_into_ogs_tokens(name: str) -> None:
    folder = str(model_folder(name))
    ours, theirs = genai_lab.Tokenizer(folder), og.Tokenizer(og.Model(folder))
    for text in (read_book().by_heart[:3000], "  two  spaces\n\nand 1234 'tis\n", "Ünseen 猫 -- letters"):
        tokens = ours.encode(text)
        assert tokens.tolist() == theirs.encode(text).tolist()
        assert ours.decode(tokens) == theirs.decode(tokens) == text
