"""The tokenizer that the metadata describes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.tiny import CHAT_TEMPLATE, SPECIAL_TOKENS, tiny_model_folder, tiny_tokens

LLAMA_CPP = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "llama_cpp_smollm_vocab.jsonl").read_text("utf-8").splitlines()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("tokenizer") / "model")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_ids_are_those_of_the_checkpoint(tokenizer: Tokenizer) -> None:
    assert [tokenizer.id_to_token(index) for index in range(len(tiny_tokens()))] == tiny_tokens()
    assert tokenizer.get_vocab_size() == len(tiny_tokens())


def test_merges_apply_inside_words_and_digits_stand_alone(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("Hello the 123", add_special_tokens=False).tokens == ["Hello", "Ġthe", "Ġ", "1", "2", "3"]


def test_special_tokens_are_cut_out_of_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>a<|im_end|>", add_special_tokens=False).ids
    assert (ids[0], ids[-1], len(ids)) == (1, 2, 3)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_any_text_comes_back_whole(tokenizer: Tokenizer, text: str) -> None:
    text = text.encode("utf-8", errors="replace").decode("utf-8")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_the_companions_agree(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    names = json.loads((folder / "special_tokens_map.json").read_text("utf-8"))
    assert names == {key: config[key] for key in names}
    assert (config["bos_token"], config["eos_token"], config["unk_token"]) == (*SPECIAL_TOKENS[1:], SPECIAL_TOKENS[0])
    assert config["chat_template"] == (folder / "chat_template.jinja").read_text("utf-8") == CHAT_TEMPLATE


def test_llama_cpps_ids(model_folder: Path) -> None:
    """All 46 lines of llama.cpp's own test of this tokenizer."""
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    assert len(LLAMA_CPP) == 46
    for line in LLAMA_CPP:
        assert tokenizer.encode(line["text"], add_special_tokens=False).ids == line["ids"], line["text"]
        assert tokenizer.decode(line["ids"], skip_special_tokens=False) == line["text"]
