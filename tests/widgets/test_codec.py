"""A chunk says what was recorded, in pieces or whole, and is small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import genai_lab
from genai_lab.tracing import Recorder, RunFacts
from genai_lab.tracing.texts import Names
from genai_lab.widgets.codec import ChunkEncoder, encode_recording, question_of
from genai_lab.widgets.compact import rounded_counts
from tests.widgets.chunks import Reader, decode
from tests.widgets.recorded import WORDS, ScriptedRun


def recorded(tokens: int = 6, penalty: float | None = 1.3, vocabulary: int = 500) -> Recorder:
    recorder = Recorder()
    ScriptedRun(recorder, vocabulary).write(tokens, penalty=penalty)
    recorder.close_run(0, "length")
    return recorder


def test_columns_are_what_was_recorded() -> None:
    recording = recorded().snapshot()
    header, columns = decode(encode_recording(recording))
    tokens = recording.tokens
    for name in ("run", "index", "position", "token", "prob", "rank", "entropy", "log_z", "tail_seen", "exact"):
        np.testing.assert_array_equal(columns[f"tokens.{name}"], tokens[name])
    np.testing.assert_array_equal(columns["tokens.top_ids"], tokens["top_ids"])
    np.testing.assert_array_equal(columns["tokens.top_logit"], tokens["top_logits"][:, 0])
    logits = columns["tokens.top_logit"][:, None] - columns["tokens.top_delta"] / 1024
    np.testing.assert_allclose(logits, tokens["top_logits"], atol=0.5001 / 1024)
    np.testing.assert_allclose(columns["tokens.start_ms"], tokens["start_ms"], atol=1e-4)
    assert header["stage_names"] == recording.stage_names
    np.testing.assert_allclose(columns["stages.dur_ms"], recording.stages["dur_ms"], atol=1e-4)
    assert {name: str(column.dtype) for name, column in columns.items() if name.startswith("tokens.")} == {
        f"tokens.{name}": dtype
        for name, dtype in {
            "run": "uint16",
            "index": "uint32",
            "position": "uint32",
            "token": "uint32",
            "prob": "float32",
            "rank": "uint32",
            "entropy": "float32",
            "final_prob": "float32",
            "top_logit": "float32",
            "start_ms": "float64",
            "end_ms": "float64",
            "top_ids": "uint32",
            "top_delta": "uint16",
            "log_z": "float32",
            "tail_lo": "float32",
            "tail_hi": "float32",
            "tail_count": "uint32",
            "tail_seen": "uint16",
            "exact": "uint8",
            "allowed": "uint32",
            "allowed_mass": "float32",
            "forced": "uint8",
            "origin": "uint8",
        }.items()
    }


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        (
            ["<s>", "system\nBe brief.", "<e>", "\n", "<s>", "user\nWhy is\nit?", "<e>", "\n", "<s>", "assistant\n"],
            "Why is\nit?",
        ),
        (["<s>", "user", "<h>", "\n\nWhy?", "<e>", "<s>", "assistant", "<h>", "\n\n"], "Why?"),
        (["<s>", "user\nWhy?", "<e>", "<s>", "model\n"], "Why?"),
        (["Once upon", " a time"], "Once upon a time"),
        (["<s>", "Hello\nWorld wide"], "Hello\nWorld wide"),
        (["Why", "?", "x" * 300], "…" + "x" * 159),
        ([], ""),
    ],
)
def test_the_question_is_found_in_a_prompt(prompt: list[str], question: str) -> None:
    texts = {number: (text, text.startswith("<")) for number, text in enumerate(prompt)}
    run = RunFacts(run=0, prompt=np.arange(len(prompt), dtype=np.int32), settings={}, start_ms=0.0)
    assert question_of(run, Names(texts, {})) == question
    run.question = "known"
    assert question_of(run, Names(texts, {})) == "known"


@given(arrays(np.uint32, (3, 128), elements=st.integers(0, 3000)))
def test_rounded_histograms_nearly_keep_their_sums(count: NDArray[np.uint32]) -> None:
    rounded = rounded_counts(count)
    small = (count < 16).all(axis=1)
    np.testing.assert_array_equal(rounded[small], count[small])
    np.testing.assert_array_equal(rounded[count == 0], 0)
    off = np.abs(np.cumsum(rounded, axis=1, dtype=np.int64) - np.cumsum(count, axis=1, dtype=np.int64))
    assert (off <= np.maximum.accumulate(count, axis=1) // 8).all()


def test_rounding_the_histogram_does_not_show_at_any_temperature() -> None:
    tokens = recorded(20, vocabulary=49_152).snapshot().tokens
    lo, hi = tokens["tail_lo"].astype(float)[:, None], tokens["tail_hi"].astype(float)[:, None]
    centre = lo + (np.arange(128) + 0.5) * (hi - lo) / 128
    top = tokens["top_logits"].astype(float)
    for temperature, bound in ((0.5, 1e-4), (1.0, 1e-4), (2.0, 5e-4)):
        weight = np.exp(-centre / temperature)
        exact, rounded = (
            (n * weight).sum(axis=1) for n in (tokens["tail_count"], rounded_counts(tokens["tail_count"]))
        )
        whole = exact + np.exp((top - top[:, :1]) / temperature).sum(axis=1)
        assert (np.abs(rounded - exact) / whole).max() < bound


def test_changes_are_deltas_from_the_highest_raw_logit_and_forbidden_is_infinite() -> None:
    recording = recorded(20, vocabulary=100).snapshot()
    _, columns = decode(encode_recording(recording))
    changed = recording.tables["changed"]
    highest = recording.tokens["top_logits"][changed["row"], 0]
    forbidden = changed["logit"] < -1e37
    assert 0 < forbidden.sum() < forbidden.size
    assert np.isposinf(columns["changed.delta"][forbidden]).all()
    expected = highest[~forbidden] - changed["logit"][~forbidden]
    np.testing.assert_array_equal(columns["changed.delta"][~forbidden], expected)


def test_header_describes_runs_and_texts() -> None:
    recorder = recorded()
    recorder.question("why?")
    ScriptedRun(recorder, parent=0, fork=2, forced=7, cached_tokens=4).write(2)
    header, columns = decode(encode_recording(recorder.snapshot(), running=[1]))
    first, branch = header["runs"]
    assert (first["status"], first["finish"], first["prompt_tokens"]) == ("done", "length", 3)
    assert first["settings"]["mode"] == "greedy"
    assert first["settings"]["random_seed"] is None
    assert first["prompt_text"] == "".join(WORDS[1:4])
    assert first["question"] == first["prompt_text"].strip()  # no message known: the prompt's end
    assert (branch["parent"], branch["fork"], branch["forced"], branch["cached_tokens"]) == (0, 2, 7, 4)
    assert (branch["status"], branch["question"]) == ("running", "why?")
    assert header["origin"]["machine"] == "2 CPU threads"
    texts = {token: text for token, text, _ in header["texts"]}
    assert set(texts) >= set(columns["tokens.top_ids"][:, :20].flatten().tolist())
    assert texts[5] == WORDS[5]  # as it is: whoever shows it makes text of it


def test_a_run_that_nobody_writes_any_more_is_not_running() -> None:
    recorder = Recorder()
    ScriptedRun(recorder).write(2)
    header, _ = decode(encode_recording(recorder.snapshot()))
    assert header["runs"][0]["status"] == "done"


@pytest.mark.slow
@given(st.lists(st.sampled_from(["token", "tokens", "stage", "run", "close", "send"]), max_size=25), st.booleans())
@settings(max_examples=40)
def test_news_put_together_are_everything(script: list[str], with_penalty: bool) -> None:
    recorder, encoder, reader = Recorder(), ChunkEncoder(), Reader()
    runs = [ScriptedRun(recorder)]
    penalty = 1.2 if with_penalty else None
    for number, action in enumerate([*script, "send"]):
        if action.startswith("token"):
            runs[number % len(runs)].write(3 if action == "tokens" else 1, penalty=penalty)
        elif action == "stage":
            recorder.stage(0, 0, f"stage {number}", number, number + 5)
        elif action == "run":
            runs.append(ScriptedRun(recorder, seed=number, parent=0, fork=0))
        elif action == "close":
            recorder.close_run(len(runs) - 1, "eos")
        else:
            fresh = recorder.snapshot(encoder.next.tokens, encoder.next.stages, owned_only=True)
            reader.take(encoder.news(fresh))
    whole = Reader().take(encode_recording(recorder.snapshot(owned_only=True)))
    assert reader.gaps == 0
    assert reader.columns.keys() == whole.columns.keys()
    for name, column in whole.columns.items():
        if name == "stages.stage":
            assert stage_names(reader) == stage_names(whole)
        else:
            np.testing.assert_array_equal(reader.columns[name], column, name)
    assert reader.runs == whole.runs
    assert reader.texts == whole.texts


def stage_names(reader: Reader) -> list[str]:
    return [reader.header["stage_names"][number] for number in reader.columns["stages.stage"]]


def test_what_was_sent_is_not_sent_again_until_somebody_asks() -> None:
    recorder, encoder = recorded(), ChunkEncoder()
    assert len(decode(encoder.everything(recorder.snapshot()))[1]) > 20
    quiet = recorder.snapshot(encoder.next.tokens, encoder.next.stages, owned_only=True)
    header, columns = decode(encoder.news(quiet))
    assert (header["texts"], header["runs"], columns) == ([], [], {})
    assert header["seq"] == 1
    header, columns = decode(encoder.everything(recorder.snapshot()))
    assert set(header["first"].values()) == {0}
    assert header["texts"] and header["runs"]


def test_rows_count_from_zero_after_the_recorder_dropped_some() -> None:
    recorder = Recorder(max_tokens=4)
    ScriptedRun(recorder).write(10, penalty=1.5)
    recording = recorder.snapshot()
    header, columns = decode(encode_recording(recording))
    assert header["origin"]["dropped"] == {"tokens": 6, "stages": 0, "steps": 0}
    assert columns["tokens.index"].tolist() == [6, 7, 8, 9]
    assert set(columns["changed.row"].tolist()) <= {0, 1, 2, 3}
    assert set(columns["seen.row"].tolist()) <= {0, 1, 2, 3}


def test_stages_of_no_run_are_left_out() -> None:
    recorder = recorded()
    recorder.stage(-1, -1, "chat_template", 0, 10)
    header, columns = decode(encode_recording(recorder.snapshot()))
    assert len(columns["stages.run"]) == len(recorder.snapshot(owned_only=True).stages["run"])
    assert "run_decode" in header["stage_names"]


def test_a_small_vocabulary_fills_up_with_impossible_candidates() -> None:
    _, columns = decode(encode_recording(recorded(vocabulary=20).snapshot()))
    assert (columns["tokens.top_delta"][:, 20:] == 65535).all()


@pytest.mark.parametrize("hostile", [float("nan"), float("inf"), ["list"], {"a": 1}])
def test_a_damaged_setting_does_not_reach_the_browser(hostile: object) -> None:
    recorder = recorded()
    recorder.runs[0].settings["temperature"] = hostile
    header, _ = decode(encode_recording(recorder.snapshot()))
    assert header["runs"][0]["settings"]["temperature"] is None


def test_a_hundred_tokens_are_well_under_60_kilobytes() -> None:
    recorder = Recorder()
    run = ScriptedRun(recorder, vocabulary=49_152)
    run.write(100, penalty=1.1)
    size = len(encode_recording(recorder.snapshot()))
    assert size < 60_000, size


def test_what_a_grammar_did_reaches_the_page(tiny_folder: Path) -> None:
    model = genai_lab.Model(tiny_folder)
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=40)
    params.set_guidance("regex", "a: Hello the [0-9]", True)
    params.add_logits_processor(lambda tokens, logits: None, "mine", at=0)
    params.set_sampler(lambda logits, rng: int(logits.argmax()), "best")
    with genai_lab.record() as trace:
        generator = genai_lab.Generator(model, params)
        generator.append_tokens([1, 20, 30])
        while not generator.is_done():
            generator.generate_next_token()
    header, columns = decode(encode_recording(trace.recording))
    forced = columns["tokens.forced"] == 1
    assert 0 < forced.sum() < forced.size
    assert (columns["tokens.prob"][forced] == 1).all() and (columns["tokens.entropy"][forced] == 0).all()
    assert set(columns["tokens.allowed"][~forced].tolist()) == {1, 10}
    assert (columns["tokens.allowed_mass"][~forced] <= 1).all()
    settings = header["runs"][0]["settings"]
    assert settings["sampler"] == "best"
    assert settings["processors"][:2] == ["mine", "guidance"]
    digits = {int(model.tokenizer.encode(str(i))[0]) for i in range(10)}
    assert digits <= {entry[0] for entry in header["texts"]}
