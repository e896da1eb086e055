"""Tokens that are only part of a character, as the pictures get and show them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from genai_lab.tracing import Recorder, TokenText
from genai_lab.widgets.codec import encode_recording
from genai_lab.widgets.still import still_picture
from tests.widgets.chunks import decode
from tests.widgets.recorded import ScriptedRun

RAW = {1: b"\xf0\x9f", 2: b"\x98", 3: b"\x80"}


def describe(ids: Sequence[int]) -> list[TokenText]:
    return [TokenText("".join(f"<0x{b:02X}>" for b in RAW.get(i, b"")) or f"w{i}", False, RAW.get(i)) for i in ids]


def recorded(*answer: int) -> Recorder:
    recorder = Recorder()
    run = ScriptedRun(recorder, describe=describe, prompt=np.array([1, 2, 3, 9], np.int32))
    for token in answer:
        logits = np.full(500, -9, np.float32)
        logits[token] = 9
        run._put(logits, None)
    return recorder


def test_the_page_gets_the_bytes_of_parts_and_whole_prompts() -> None:
    header, _ = decode(encode_recording(recorded(7, 1, 2, 3).snapshot()))
    texts = {text[0]: text[1:] for text in header["texts"]}
    assert texts[1] == ["<0xF0><0x9F>", 0, "f09f"]
    assert texts[7] == ["w7", 0]
    assert header["runs"][0]["prompt_text"] == header["runs"][0]["question"] == "😀w9"


def test_the_still_picture_shows_a_character_once_and_says_which_part_is_which() -> None:
    html = still_picture(recorded(7, 1, 2, 3, 8).snapshot(), "ribbon")
    assert "😀<small>1/3</small></u>" in html
    assert "<small>3/3</small></u>" in html
    assert "<0x" not in html
    assert "&lt;0x" not in html
