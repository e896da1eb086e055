"""The same folder, the same answers as onnxruntime-genai; where it differs, the difference is stated here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_lab.tokenizer import Tokenizer
from tests.tokenizer.kinds import TEXTS, byte_level, save_folder

og: Any = pytest.importorskip("onnxruntime_genai")
pytestmark = pytest.mark.og

MORE_TEXTS = ["", " ", "\n\n a", "<s>Hello</s> <think> NOT SPECIAL", "🧑🏽‍🚀 विश्व Đặng 龙马", "x" * 300]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    folder = save_folder(byte_level(), tmp_path_factory.mktemp("og") / "model")
    return Tokenizer(folder), og.Tokenizer(str(folder))


def check_text(ours: Tokenizer, theirs: Any, text: str) -> None:
    ids = ours.encode(text)
    assert ids.tolist() == theirs.encode(text).tolist()
    assert ids.dtype == np.int32
    assert ours.decode(ids) == theirs.decode(ids)
    our_stream, their_stream = ours.create_stream(), theirs.create_stream()
    assert [our_stream.decode(token_id) for token_id in ids] == [their_stream.decode(token_id) for token_id in ids]


@pytest.mark.parametrize("text", [*TEXTS, *MORE_TEXTS])
def test_text_ids_and_stream(both: tuple[Tokenizer, Any], text: str) -> None:
    check_text(*both, text)


def test_batches(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    texts = ["Hello world, this", "a", "don't"]
    our_batch, their_batch = ours.encode_batch(texts), theirs.encode_batch(texts)
    assert our_batch.shape() == their_batch.shape()
    assert our_batch.as_numpy().tolist() == their_batch.as_numpy().tolist()
    assert ours.decode_batch(our_batch) == theirs.decode_batch(their_batch)


def test_marks_and_options(both: tuple[Tokenizer, Any], tmp_path: Path) -> None:
    ours, theirs = both
    assert (ours.bos_token_id, ours.pad_token_id) == (theirs.bos_token_id, theirs.pad_token_id)
    assert ours.eos_token_ids.tolist() == theirs.eos_token_ids.tolist()
    assert ours.to_token_id("<s>") == theirs.to_token_id("<s>")
    folder = save_folder(byte_level(), tmp_path / "model")
    ours, theirs = Tokenizer(folder), og.Tokenizer(str(folder))
    for tokenizer in (ours, theirs):
        tokenizer.update_options(skip_special_tokens="false")
    assert ours.decode([1, 70, 2]) == theirs.decode([1, 70, 2])


def test_chat_template(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    messages = json.dumps([{"role": "system", "content": "Be é"}, {"role": "user", "content": '"Hi"\n\tthere'}])
    for options in ({}, {"add_generation_prompt": False}, {"template_str": "{{ messages|tojson }}{{ eos_token }}"}):
        assert ours.apply_chat_template(messages, **options) == theirs.apply_chat_template(messages, **options)


def test_where_we_differ(both: tuple[Tokenizer, Any]) -> None:
    """Quiet there, an error here: unknown ids and tokens, floats for ids, NUL. And special tokens alone are no text."""
    ours, theirs = both
    wrong: list[Any] = [[10**6], [-1], [1.5], [[70], [71]]]
    for ids in wrong:
        assert isinstance(theirs.decode(ids), str)
        with pytest.raises((ValueError, TypeError)):
            ours.decode(ids)
    assert theirs.decode([1]) == "\ufffd"
    assert ours.decode([1]) == ""
    assert theirs.to_token_id("no such token") == -1
    assert theirs.encode("a\0b").tolist() == theirs.encode("a").tolist()


def test_the_default_model(model_folder: Path) -> None:
    ours, theirs = Tokenizer(model_folder), og.Tokenizer(str(model_folder))
    for text in [*TEXTS, *MORE_TEXTS, "1234567 tokens, 3.14"]:
        check_text(ours, theirs, text)
    messages = json.dumps([{"role": "user", "content": "What is the capital of France?"}])
    assert ours.apply_chat_template(messages) == theirs.apply_chat_template(messages)
