"""The recorder keeps what it is told, within its bounds, and says what it dropped."""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_lab.errors import OutputError, TraceFileError
from genai_lab.tracing import (
    NULL,
    Change,
    Recorder,
    Recording,
    TokenFact,
    current_tracer,
    load_recording,
    save_recording,
    to_chrome_json,
    use_tracer,
)
from genai_lab.tracing.digest import Digest, Digester
from genai_lab.tracing.recorder import NO_RUN
from genai_lab.tracing.recording import TABLES

VOCABULARY = 300


def describe(ids: Sequence[int]) -> list[tuple[str, bool]]:
    return [(f"<{i}>", i == 2) for i in ids]


def open_run(recorder: Recorder, prompt: Sequence[int] = (1, 5), **facts: object) -> int:
    return recorder.open_run(
        prompt=np.array(prompt, np.int32),
        settings={"mode": "greedy", "temperature": 1.0},
        model={"name": "made up", "vocab_size": VOCABULARY},
        describe=describe,
        **facts,  # type: ignore[arg-type]
    )


def add_token(recorder: Recorder, run: int, index: int, seed: int = 0, changes: tuple[Change, ...] = ()) -> np.ndarray:
    logits = np.random.default_rng(seed * 1000 + index).standard_normal(VOCABULARY).astype(np.float32)
    fact = TokenFact(
        run, index, index + 2, int(logits.argmax()), 1000 * index, 1000 * index + 700, 1.0, (1, 1, 1), changes,
        np.array([1, 5], np.int32),
    )  # fmt: skip
    recorder.token(fact, logits)
    return logits


def recorded(tokens: int = 5) -> Recorder:
    recorder = Recorder()
    recorder.question("why?")
    recorder.stage(NO_RUN, NO_RUN, "tokenize", 0, 100, 2)
    run = open_run(recorder)
    recorder.stage(run, 0, "run_prefill", 100, 900, 2)
    for index in range(tokens):
        change = Change("repetition_penalty", np.array([1, 5], np.int32), np.array([-3.0, -4.0], np.float32))
        add_token(recorder, run, index, changes=(change,))
        recorder.stage(NO_RUN, NO_RUN, "detokenize", 0, 10)
    recorder.close_run(run, "eos")
    return recorder


def test_a_snapshot_holds_what_was_told() -> None:
    recording = recorded().snapshot()
    assert recording.tokens["index"].tolist() == [0, 1, 2, 3, 4]
    assert recording.tokens["rank"].tolist() == [1] * 5
    assert recording.runs[0].question == "why?"
    assert recording.runs[0].finish == "eos"
    stages = [recording.stage_names[i] for i in recording.stages["stage"]]
    assert stages[:2] == ["tokenize", "run_prefill"]
    assert stages.count("recorder") == 5
    assert set(recording.stages["run"].tolist()) == {0}
    owned = [int(t) for t, s in zip(recording.stages["token"], stages, strict=True) if s == "detokenize"]
    assert owned == [0, 1, 2, 3, 4]  # each belongs to the token before it
    assert all(text == f"<{i}>" for i, (text, _) in recording.texts.items())


def test_changes_are_kept_for_the_shown_candidates() -> None:
    recording = recorded(3).snapshot()
    changed = recording.tables["changed"]
    shown = [set(ids.tolist()) for ids in recording.tokens["top_ids"]]
    for row, token in zip(changed["row"], changed["id"], strict=True):
        assert int(token) in shown[int(row)]
    assert recording.processor_names == ["repetition_penalty"]


@pytest.mark.slow
@given(st.integers(1, 12), st.integers(0, 30))
def test_the_ring_drops_the_oldest_and_counts(capacity: int, tokens: int) -> None:
    recorder = Recorder(max_tokens=capacity, logits_bytes=0)
    run = open_run(recorder)
    for index in range(tokens):
        add_token(recorder, run, index)
    recording = recorder.snapshot()
    assert recording.tokens["index"].tolist() == list(range(tokens))[-capacity:]
    assert recording.dropped["tokens"] == max(0, tokens - capacity)


@pytest.mark.parametrize("logits_bytes", [0, VOCABULARY * 4 * 3, 1 << 30])
def test_when_a_row_is_digested_changes_nothing(logits_bytes: int) -> None:
    recorder, reference = Recorder(logits_bytes=logits_bytes), Recorder()
    for one in (recorder, reference):
        run = open_run(one)
        for index in range(10):
            add_token(one, run, index)
    for name, column in recorder.snapshot().tokens.items():
        if not name.endswith("_ms"):  # each recorder has its own clock
            np.testing.assert_array_equal(column, reference.snapshot().tokens[name])


@pytest.mark.parametrize("rows", [0, 1, 5, 8])
def test_a_row_that_drops_out_unread_is_not_digested(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight places, as many as there is memory for go round without."""
    digested, digest = [], Digester.digest

    def counting(self: Digester, logits: np.ndarray, *rest: object) -> Digest:
        digested.append(logits)
        return digest(self, logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Digester, "digest", counting)
    recorder = Recorder(8, logits_bytes=VOCABULARY * 4 * rows)
    run = open_run(recorder)
    for index in range(40):
        add_token(recorder, run, index)
    assert len(digested) == 5 * (8 - rows)
    recorder.settle()
    assert len(digested) == 5 * (8 - rows) + rows


@pytest.mark.parametrize("rows", [0, 1, 5, 8])
def test_what_is_kept_does_not_depend_on_how_many_rows_may_wait(rows: int) -> None:
    recorder, whole = Recorder(8, logits_bytes=VOCABULARY * 4 * rows), Recorder()
    open_run(recorder), open_run(whole)
    for index in range(40):
        add_token(recorder, 0, index)
        add_token(whole, 0, index)
        if index in (3, 11, 12, 39):  # a reader looks now and then
            kept, dropped = recorder.snapshot(), max(0, index - 7)
            rest = whole.snapshot(first_token=dropped)
            assert kept.dropped["tokens"] == dropped
            for table in ("tokens", "changed", "seen"):
                for name, column in kept.tables[table].items():
                    if not name.endswith("_ms"):  # each recorder has its own clock
                        np.testing.assert_array_equal(column, rest.tables[table][name])


def test_the_recorder_copies_the_row_at_once() -> None:
    recorder = Recorder()
    run = open_run(recorder)
    logits = add_token(recorder, run, 0)
    before = float(logits.max())
    logits[:] = 0  # the next model run overwrites it
    assert float(recorder.snapshot().tokens["top_logits"][0, 0]) == before


def test_increments_add_up_to_the_whole() -> None:
    recorder = recorded(4)
    first = recorder.snapshot(owned_only=True)
    run = open_run(recorder, parent=0, fork=2, forced=9)
    for index in range(3):
        add_token(recorder, run, index, seed=1)
    rest = recorder.snapshot(first_token=4, first_stage=len(first.stages["run"]))
    whole = recorder.snapshot()
    for table in ("tokens", "changed", "seen"):
        for name in whole.tables[table]:
            joined = np.concatenate([first.tables[table][name], rest.tables[table][name]])
            np.testing.assert_array_equal(joined, whole.tables[table][name])
    assert whole.runs[1].question == "why?"  # a branch answers its parent's question


@pytest.mark.slow
def test_a_reader_may_look_while_another_thread_records() -> None:
    recorder = Recorder(logits_bytes=VOCABULARY * 4 * 2)
    run = open_run(recorder)
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for index in range(300):
                add_token(recorder, run, index)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while writer.is_alive():
        count = len(recorder.snapshot().tokens["run"])
        assert count >= seen
        seen = count
    writer.join()
    assert not failures
    assert recorder.snapshot().tokens["index"].tolist() == list(range(300))


def test_the_current_tracer_is_the_null_tracer_outside() -> None:
    recorder = Recorder()
    assert current_tracer() is NULL
    with use_tracer(recorder):
        assert current_tracer() is recorder
    assert current_tracer() is NULL
    assert not NULL.enabled


def same(a: Recording, b: Recording) -> None:
    for table, columns in a.tables.items():
        for name, column in columns.items():
            np.testing.assert_array_equal(column, b.tables[table][name])
    assert a.texts == b.texts
    for left, right in zip(a.runs, b.runs, strict=True):
        np.testing.assert_array_equal(left.prompt, right.prompt)
        assert (left.question, left.settings, left.finish, left.parent) == (
            right.question, right.settings, right.finish, right.parent,
        )  # fmt: skip
    assert (a.stage_names, a.processor_names, a.model) == (b.stage_names, b.processor_names, b.model)


def test_a_saved_trace_comes_back_whole(tmp_path: Path) -> None:
    recording = recorded().snapshot()
    path = save_recording(recording, tmp_path / "trace.npz")
    same(recording, load_recording(path))
    assert [p.name for p in tmp_path.iterdir()] == ["trace.npz"]


@pytest.mark.parametrize("cut", [0, 10, 200, -30])
def test_a_broken_file_is_a_clear_error(tmp_path: Path, cut: int) -> None:
    path = save_recording(recorded().snapshot(), tmp_path / "trace.npz")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TraceFileError, match="trace"):
        load_recording(path)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [True, False])
def test_a_flipped_byte_anywhere_is_a_clear_error_or_none(tmp_path: Path, packed: bool) -> None:
    path = save_recording(recorded().snapshot(), tmp_path / "t.npz")
    if not packed:
        with np.load(path) as file:
            np.savez(path, **{name: file[name] for name in file.files})
    whole = path.read_bytes()
    outcomes = set()
    for at in damaged_places(whole):
        for flip in (1 << at % 8, 0xFF):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            try:
                load_recording(path)  # bytes that nobody reads, such as a time, change nothing
                outcomes.add("loaded")
            except TraceFileError:
                outcomes.add("refused")
    assert outcomes == {"loaded", "refused"}


def damaged_places(whole: bytes) -> list[int]:
    """Every byte of the first column with its headers, of the zip directory's first and last entry and its end; and
    every 1499th between them, where one column is like another."""
    directory = whole.index(b"PK\x01\x02")
    after = whole.index(b"PK\x01\x02", directory + 4)
    last = whole.rindex(b"PK\x01\x02")
    first = range(min(160, whole.index(b"PK\x03\x04", 4)))
    return sorted({*first, *range(directory, after), *range(last, len(whole)), *range(0, len(whole), 1499)})


def test_headers_that_numpy_reads_as_python_are_refused(tmp_path: Path) -> None:
    """A header with its checksum made right again: the damage is in what Python is asked to parse."""
    path = save_recording(recorded().snapshot(), tmp_path / "t.npz")
    for header in (
        b"{'descr': '<f4', 'shape': (3,\n",
        b'{"descr": """<f4\n',
        b"  x\n y\n",
        b"(" * 200,
        b"\x00",
        b"{1L:\n",
    ):
        with zipfile.ZipFile(path, "w") as archive:
            text = header.ljust(118) + b"\n"
            archive.writestr("header.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
        with pytest.raises(TraceFileError, match="not a whole genai_lab trace"):
            load_recording(path)


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize(
    "column", [f"{table}.{name}" for table, names in TABLES.items() for name in names if name.endswith("_ms")]
)
def test_a_time_that_is_none_is_refused_at_the_door(tmp_path: Path, column: str, value: float) -> None:
    path = tmp_path / "t.npz"
    recording = recorded().snapshot()
    table, name = column.split(".")
    rows = {name: np.zeros((1, *shape), dtype) for name, (dtype, shape) in TABLES[table].items()}
    if len(recording.tables[table][name]) == 0:
        recording.tables[table], recording.words = rows, ["word"]
    recording.tables[table][name][0] = value
    save_recording(recording, path)
    if table == "turns" and np.isnan(value):
        assert np.isnan(load_recording(path).tables[table][name][0]), "it has not come yet"
        return
    with pytest.raises(TraceFileError, match=f"{column} is "):
        load_recording(path)


@pytest.mark.parametrize("column", ["prob", "entropy", "final_prob", "allowed_mass"])
def test_a_probability_may_be_unknown_and_not_infinite(tmp_path: Path, column: str) -> None:
    recording, path = recorded().snapshot(), tmp_path / "t.npz"
    recording.tokens[column][0] = np.nan
    assert np.isnan(load_recording(save_recording(recording, path)).tokens[column][0])
    recording.tokens[column][0] = np.inf
    with pytest.raises(TraceFileError, match=f"tokens.{column} is infinite"):
        load_recording(save_recording(recording, path))


def test_a_run_that_began_at_no_time_is_refused(tmp_path: Path) -> None:
    recording = recorded().snapshot()
    recording.runs[0].start_ms = float("inf")
    with pytest.raises(TraceFileError, match=r"runs\.start_ms is inf"):
        load_recording(save_recording(recording, tmp_path / "t.npz"))


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="does not exist"):
        load_recording(tmp_path / ("a" * 300))
    with pytest.raises(OutputError, match="the name is too long"):
        save_recording(recorded().snapshot(), tmp_path / ("a" * 300))


def test_other_files_are_refused_with_words(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="does not exist"):
        load_recording(tmp_path / "nothing.npz")
    other = tmp_path / "other.npz"
    np.savez(other, a=np.zeros(3))
    with pytest.raises(TraceFileError, match="not a whole genai_lab trace"):
        load_recording(other)
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, header=np.array([{"x": 1}], dtype=object))
    with pytest.raises(TraceFileError):
        load_recording(pickled)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 99}, "trace format 99"),
        ({"format": "x"}, "not a genai_lab trace"),
        ({"stage_names": []}, "damaged"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    path = save_recording(recorded().snapshot(), tmp_path / "trace.npz")
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(arrays["header"].tobytes()) | change
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(TraceFileError, match=words):
        load_recording(path)


def test_chrome_json_has_every_stage_and_token() -> None:
    recording = recorded().snapshot()
    events = json.loads(to_chrome_json(recording))["traceEvents"]
    assert sum(e.get("cat") == "token" for e in events) == 5
    assert sum(e.get("cat") == "stage" for e in events) == len(recording.stages["run"])
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")
