"""Several sequences in one generator: each row is that row alone; a failure leaves nothing half done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab as og
from genai_lab.errors import ArgumentError, CapacityError, StateError
from genai_lab.models.batch import BatchState

PROMPTS = [[10, 20, 30, 40], [11, 21], [50, 60, 70]]
PAD = 2


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def generator(model: og.Model, **options: object) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**options)
    return og.Generator(model, params)


def padded(prompts: list[list[int]], side: str) -> NDArray[np.int32]:
    width = max(map(len, prompts))
    rows = [([PAD] * (width - len(p)) + p) if side == "left" else (p + [PAD] * (width - len(p))) for p in prompts]
    return np.array(rows, np.int32)


def alone(model: og.Model, prompt: list[int], count: int, **options: object) -> list[int]:
    """What the prompt is answered on its own, as long as it goes on."""
    made = generator(model, max_length=len(prompt) + count, **options)
    made.append_tokens(prompt)
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(0).tolist()[len(prompt) :]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.4}, {"no_repeat_ngram_size": 2}])
def test_each_row_is_that_row_alone(model: og.Model, side: str, options: dict[str, float]) -> None:
    together = generator(model, batch_size=3, max_length=24, **options)
    together.append_tokens(padded(PROMPTS, side))
    while not together.is_done():
        together.generate_next_token()
    for row, prompt in enumerate(PROMPTS):
        shown = together.get_sequence(row).tolist()
        assert shown[:4] == padded(PROMPTS, side)[row].tolist()
        own = alone(model, prompt, 20, **options)
        assert shown[4 : 4 + len(own)] == own
        assert set(shown[4 + len(own) :]) <= {PAD}  # the end token, and the padding after it


def test_rows_end_at_different_times_and_the_last_one_ends_the_batch(model: og.Model) -> None:
    made = generator(model, batch_size=2, max_length=20)
    made.append_tokens([[10, 20], [30, 40]])
    logits = made.get_logits()
    logits[0, 0, PAD] = 1e4  # the first row ends at once: 2 is the end token as well
    made.set_logits(logits)
    made.generate_next_token()
    assert not made.is_done()
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == [10, 20, PAD, PAD]
    logits = made.get_logits()
    logits[1, 0, PAD] = 1e4
    made.set_logits(logits)
    made.generate_next_token()
    assert made.is_done() and made.finish_reason is og.FinishReason.EOS
    assert made.get_next_tokens().tolist() == [PAD, PAD]


def test_a_batch_is_recorded_as_one_run_a_row(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model, batch_size=3, max_length=10)
        made.append_tokens(padded(PROMPTS, "right"))
        while not made.is_done():
            made.generate_next_token()
    frame = trace.tokens()
    assert sorted(frame["run"].unique()) == [0, 1, 2]
    for row, prompt in enumerate(PROMPTS):
        tokens = frame[frame["run"] == row]["token"].tolist()
        assert made.get_sequence(row).tolist()[4 : 4 + len(tokens)] == tokens
        assert trace.recording.runs[row].prompt.tolist() == prompt


def test_recorded_equals_plain(model: og.Model) -> None:
    def tokens() -> list[list[int]]:
        made = generator(model, batch_size=2, max_length=20, do_sample=True, random_seed=5, temperature=3.0)
        made.append_tokens([[10, 20], [30, 40]])
        while not made.is_done():
            made.generate_next_token()
        return [made.get_sequence(row).tolist() for row in range(2)]

    with og.record():
        recorded = tokens()
    assert recorded == tokens()


def test_encode_batch_goes_straight_in(model: og.Model) -> None:
    tokenizer = og.Tokenizer(model)
    made = generator(model, batch_size=2, max_length=16)
    made.append_tokens(tokenizer.encode_batch(["hello world", "the"]))
    made.generate_next_token()
    assert made.token_count() == 7


def test_what_a_batch_cannot_do_is_said_and_changes_nothing(model: og.Model) -> None:
    made = generator(model, batch_size=2, max_length=12)
    with pytest.raises(ArgumentError, match=r"batch_size is 2"):
        made.append_tokens([1, 2, 3])
    with pytest.raises(ArgumentError, match=r"\[3, 2\].*\[2, n\]"):
        made.append_tokens(np.ones((3, 2), np.int32))
    with pytest.raises(CapacityError, match="max_length = 12"):
        made.append_tokens(np.ones((2, 12), np.int32))
    assert made.token_count() == 0
    made.append_tokens([[10, 20], [30, 40]])
    made.generate_next_token()
    first = made.get_sequence(0).tolist()
    with pytest.raises(StateError, match="rewind_to\\(0\\)"):
        made.append_tokens([[10, 20], [30, 40]])
    with pytest.raises(StateError, match="only rewind_to\\(0\\)"):
        made.rewind_to(2)
    with pytest.raises(StateError, match="cannot be forked"):
        made.fork()
    with pytest.raises(IndexError, match="index 0 to 1"):
        made.get_sequence(2)
    assert made.get_sequence(0).tolist() == first
    made.rewind_to(0)
    made.append_tokens([[10, 20], [30, 40]])
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == first


def test_a_failing_run_leaves_the_batch_as_it_was(model: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    made = generator(model, batch_size=2, max_length=12, do_sample=True, random_seed=3)
    calls = []
    whole = BatchState._read

    def fails_on_the_second_row(self: BatchState, row: int, *rest: object) -> None:
        calls.append(row)
        if calls == [0, 1]:
            raise RuntimeError("the machine is on fire")
        whole(self, row, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(BatchState, "_read", fails_on_the_second_row)
    with pytest.raises(RuntimeError, match="on fire"):
        made.append_tokens([[10, 20], [30, 40]])
    assert made.token_count() == 0
    made.append_tokens([[10, 20], [30, 40]])
    made.generate_next_token()
    assert made.token_count() == 3


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
@pytest.mark.parametrize(("rows", "named"), [([[5, 6], [PAD, PAD]], 1), ([[PAD], [5]], 0), ([[PAD], [PAD]], 0)])
def test_a_row_of_padding_is_named_and_nothing_is_read(
    model: og.Model, rows: list[list[int]], named: int, options: dict[str, object]
) -> None:
    made = generator(model, batch_size=2, max_length=12, **options)
    with pytest.raises(ArgumentError, match=f"row {named} of 2 is nothing but padding .token {PAD}"):
        made.append_tokens(np.array(rows, np.int32))
    made.append_tokens(np.array([[5, 6], [7, PAD]], np.int32))
    made.generate_next_token()
    alone = generator(model, max_length=12)
    alone.append_tokens([PAD])
    alone.generate_next_token()  # one row has no padding
