"""Text of tokens that are only part of a character, and of whole answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import genai_lab as og
from genai_lab.tracing import Recorder, load_recording
from genai_lab.tracing.texts import Names, answer_text, spans
from genai_lab.workbench.trace import Trace

TEXTS = ["plain", "Hi 😀!", "שלום עולם", "日本語 é", "👨‍👩‍👧", "a\n\tb", "नमस्ते 🇫🇷", "العربية"]
RAW = {1: b"\xf0\x9f", 2: b"\x98", 3: b"\x80", 4: b" \xf0", 5: b"\x80\xc3", 6: b"\xa9"}
NAMES = Names({i: (f"<{i}>", False) for i in RAW} | {7: ("ab", False), 8: ("<end>", True)}, RAW)


@pytest.fixture(scope="module")
def tiny(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def told_to_say(model: og.Model, ids: list[int]) -> og.Generator:
    """A generator whose answer is `ids`, whatever the model would have said."""
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=200)
    generator = og.Generator(model, params)
    generator.append_tokens([20, 30, 40])
    for token in ids:
        logits = np.full_like(generator.get_logits(), -50)
        logits[0, 0, token] = 50
        generator.set_logits(logits)
        generator.generate_next_token()
    return generator


def through_a_file(trace: Trace, tmp_path: Path) -> Trace:
    return Trace.load(trace.save(tmp_path / "trace.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("cut", [0, 1, 2], ids=lambda cut: f"without the last {cut}")
def test_the_text_of_an_answer_is_what_its_tokenizer_makes_of_it(
    tiny: og.Model, tmp_path: Path, text: str, cut: int
) -> None:
    tokenizer = og.Tokenizer(tiny)
    ids = tokenizer.encode(text).tolist()[: -cut or None]
    with og.record() as trace:
        told_to_say(tiny, ids)
    for seen in (trace, through_a_file(trace, tmp_path)):
        assert seen.text() == tokenizer.decode(ids)
        assert "<0x" not in "".join(seen.tokens()["text"])
        assert all("<0x" not in t for t in seen.candidates(0)["text"])


@pytest.mark.parametrize("fork", range(1, 6))
def test_a_branch_says_what_stood_before_it_too(tiny: og.Model, tmp_path: Path, fork: int) -> None:
    tokenizer = og.Tokenizer(tiny)
    ids = tokenizer.encode("a😀😁").tolist()
    with og.record() as trace:
        generator = told_to_say(tiny, ids)
        branch = generator.fork(3 + fork)
        branch.append_tokens([ids[5]])
        branch.generate_next_token()
    own = trace.tokens()[trace.tokens()["run"] == 1]["token"].tolist()
    for seen in (trace, through_a_file(trace, tmp_path)):
        assert seen.text(1) == tokenizer.decode(ids[:fork] + own)


def test_a_part_says_of_which_character_it_is() -> None:
    assert NAMES.in_a_row([7, 4, 1, 2, 3, 7]) == [
        "ab",
        " ⟨part of no character⟩",
        "⟨part 1 of 3 of 😀⟩",
        "⟨part 2 of 3 of 😀⟩",
        "⟨part 3 of 3 of 😀⟩",
        "ab",
    ]
    assert NAMES.in_a_row([1, 2, 5, 6]) == [
        "⟨part 1 of 3 of 😀⟩",
        "⟨part 2 of 3 of 😀⟩",
        "⟨part 3 of 3 of 😀⟩⟨part 1 of 2 of é⟩",
        "⟨part 2 of 2 of é⟩",
    ]
    assert NAMES.in_a_row([7, 1, 2]) == ["ab", *(f"⟨part {n} of a character that was not finished⟩" for n in (1, 2))]


@pytest.mark.parametrize(
    ("before", "token", "name"),
    [
        ([], 1, "⟨begins a character: F0 9F⟩"),
        ([], 2, "⟨part of a character: 98⟩"),
        ([7, 1], 2, "⟨goes on with a character: 98⟩"),
        ([1, 2], 3, "⟨last part of 😀⟩"),
        ([1, 2], 5, "⟨last part of 😀⟩⟨begins a character: C3⟩"),
        ([1, 2], 7, "ab"),
        ([1, 2, 3], 1, "⟨begins a character: F0 9F⟩"),
    ],
)
def test_a_candidate_is_named_after_what_it_would_go_on_with(before: list[int], token: int, name: str) -> None:
    assert NAMES.alone(token, NAMES.pending(before)) == name


def test_joined_text_is_decoded_text() -> None:
    assert NAMES.joined([7, 1, 2, 3, 8, 7]) == "ab😀ab"
    assert NAMES.joined([7, 8], special=True) == "ab<end>"
    assert NAMES.joined([1, 2]) == "�"


@pytest.mark.parametrize("text", TEXTS)
def test_every_byte_is_in_one_span(text: str) -> None:
    data = text.encode()
    for start in range(len(data)):
        for stop in range(start, len(data) + 1):
            found = list(spans(data[start:stop]))
            assert [s.start for s in found] == [0, *(s.stop for s in found)][: len(found)]
            assert (found[-1].stop if found else 0) == stop - start


def test_without_a_decoder_pieces_are_put_together(scripted: Callable[..., Recorder]) -> None:
    recording = scripted(5).snapshot()
    ids = recording.tokens["token"].tolist()
    assert recording.runs[0].text is None
    assert answer_text(recording, 0) == "".join(recording.texts[i][0] for i in ids if not recording.texts[i][1])


@pytest.fixture
def scripted() -> Callable[..., Recorder]:
    from tests.widgets.recorded import ScriptedRun

    def made(tokens: int, **options: int) -> Recorder:
        recorder = Recorder(**options)
        ScriptedRun(recorder).write(tokens)
        return recorder

    return made


@pytest.mark.parametrize("saved", [False, True])
def test_a_recording_that_lost_tokens_keeps_their_places(
    scripted: Callable[..., Recorder], tmp_path: Path, saved: bool
) -> None:
    trace = Trace(scripted(9, max_tokens=4, max_stages=10))
    if saved:
        trace = through_a_file(trace, tmp_path)
        resumed = Recorder.resumed(load_recording(tmp_path / "trace.npz"))
        assert resumed.dropped["tokens"] == 5
        again = resumed.snapshot()
        assert again.tokens["index"].tolist() == [5, 6, 7, 8]
        assert again.runs[0].status == "done"
        trace = Trace(resumed)
    assert trace.tokens()["index"].tolist() == [5, 6, 7, 8]
    row = trace.runs().iloc[0]
    assert row["new_tokens"] == 9
    assert row["ttft_ms"] is None or np.isnan(row["ttft_ms"])
    assert row["ms_per_token"] == pytest.approx(1.0)
    assert "dropped: 5 tokens, 35 stages" in repr(trace)
