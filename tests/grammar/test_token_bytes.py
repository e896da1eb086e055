"""What each token adds to a text, for the kinds of tokenizers there are."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models

import genai_lab as og
from genai_lab.models.grammar_tokens import token_table
from genai_lab.tokenizer import Vocabulary
from genai_lab.tokenizer.token_bytes import token_bytes


def test_byte_level_tokens_are_bytes(tiny_folder: Path) -> None:
    model = og.Model(tiny_folder)
    table = token_table(model.tokenizer, model.config)
    assert len(table.tokens) == model.vocab_size
    text = "Hello the wor\tä€😀"
    assert b"".join(table.tokens[i] for i in table.encode(text)) == text.encode()
    assert table.tokens[2] == b"<|im_end|>"
    assert 2 in table.special_ids
    assert table.end_ids == (2,)


def test_text_that_looks_special_is_forced_as_text(tiny_folder: Path) -> None:
    model = og.Model(tiny_folder)
    table = token_table(model.tokenizer, model.config)
    forced = table.encode("a<|im_end|>")
    assert not set(forced) & set(table.special_ids)
    assert b"".join(table.tokens[i] for i in forced) == b"a<|im_end|>"


def test_tokens_of_a_byte_fallback_vocabulary() -> None:
    words = {"<unk>": 0, "<0x0A>": 1, "<0xE2>": 2, "▁the": 3, "cat": 4}
    backend = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_tokens([AddedToken("<tool>", special=False)])
    assert json.loads(backend.to_str())["decoder"]["type"] == "Sequence"
    assert token_bytes(Vocabulary(backend, 8), 7) == [b"<unk>", b"\n", b"\xe2", b" the", b"cat", b"<tool>", b""]
