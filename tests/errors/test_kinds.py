"""Every public call answers every kind of bad argument with an error of ours, and nothing is changed or left behind.

One table of calls, one of values. Whatever a call allows is named beside it; all else must be refused in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab as og
from genai_lab.builder import build_model
from genai_lab.errors import ArgumentError, ArgumentTypeError, GenaiLabError, OutputError
from genai_lab.kinds import flag, seconds, whole
from genai_lab.workbench.kept import KEPT
from genai_lab.workbench.worker import WORKER

BAD: dict[str, Any] = {
    "None": None,
    "text": "x",
    "empty": "",
    "nul": "a\0b",
    "bytes": b"x",
    "negative": -1,
    "huge": 10**30,
    "fraction": 1.5,
    "nan": math.nan,
    "flag": True,
    "list": [],
    "nested": [[1], [2, 3]],
    "dict": {},
    "array": np.array(["a"]),
    "object": object(),
    "long": "x" * 300,
}
TELLTALES = (".part", "has no attribute", "Errno", "positional argument", "Traceback", "unhashable", "not supported")


@dataclass(frozen=True)
class Place:
    """What the calls are made on."""

    model: og.Model
    trace: og.Trace
    tokenizer: og.Tokenizer
    engine: og.Engine
    folder: Path

    def generator(self) -> og.Generator:
        params = og.GeneratorParams(self.model)
        params.set_search_options(max_length=40)
        generator = og.Generator(self.model, params)
        generator.append_tokens([5, 6, 7])
        return generator

    def option(self, name: str, value: Any) -> None:
        og.GeneratorParams(self.model).set_search_options(**{name: value})

    def ask(self, **arguments: Any) -> None:
        og.ask(**({"model": self.model, "prompt": "Hi", "max_new_tokens": 1} | arguments))

    def turn(self, setter: str, value: Any) -> None:
        options = og.TurnOptions()
        getattr(options, setter)(value)
        options._settings(self.model.config.search_options())


@pytest.fixture(scope="module")
def place(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    model = og.Model(tiny_folder)
    trace = og.ask(model, "Hello", max_new_tokens=3).wait()
    engine = og.Engine(model)
    yield Place(model, trace, og.Tokenizer(model), engine, tmp_path_factory.mktemp("errors"))
    engine.close()
    WORKER.close()
    KEPT.clear()


Call = Callable[[Place, Any], object]
ANY_TEXT = {"text", "empty"}
CALLS: dict[str, tuple[Call, set[str]]] = {
    # a call with one argument to be wrong, and the values that it allows
    "load": (lambda p, v: og.load(v), set()),
    "model_folder": (lambda p, v: og.model_folder(v), set()),
    "Model": (lambda p, v: og.Model(v), set()),
    "Config": (lambda p, v: og.Config(v), set()),
    "Tokenizer": (lambda p, v: og.Tokenizer(v), set()),
    "TokenizerStream": (lambda p, v: og.TokenizerStream(v), set()),
    "Tensor": (lambda p, v: og.Tensor(v), set()),
    "GeneratorParams": (lambda p, v: og.GeneratorParams(v), set()),
    "Generator.model": (lambda p, v: og.Generator(v, og.GeneratorParams(p.model)), set()),
    "Generator.params": (lambda p, v: og.Generator(p.model, v), set()),
    "Engine": (lambda p, v: og.Engine(v), set()),
    "Engine.policy": (lambda p, v: og.Engine(p.model, policy=v).close(), {"None"}),
    "Engine.block_size": (lambda p, v: og.Engine(p.model, block_size=v).close(), {"None"}),
    "Engine.max_batch_size": (lambda p, v: og.Engine(p.model, max_batch_size=v).close(), {"None"}),
    "Engine.max_session_tokens": (lambda p, v: og.Engine(p.model, max_session_tokens=v).close(), {"None"}),
    "Engine.kv_backend": (lambda p, v: og.Engine(p.model, kv_backend=v).close(), {"None"}),
    "Engine.prefix_caching": (lambda p, v: og.Engine(p.model, prefix_caching=v).close(), {"flag", "None"}),
    "Images": (lambda p, v: og.Images.open(v), set()),
    "Audios": (lambda p, v: og.Audios.open(v), set()),
    "Adapters.load": (lambda p, v: og.Adapters(p.model).load(v, "a"), set()),
    "Adapters.load.name": (lambda p, v: og.Adapters(p.model).load("nothing", v), set()),
    "Adapters.get": (lambda p, v: og.Adapters(p.model).get(v), set()),
    "Adapters.unload": (lambda p, v: og.Adapters(p.model).unload(v), set()),
    "register": (lambda p, v: og.register_execution_provider_library("x", v), set()),
    "register.name": (lambda p, v: og.register_execution_provider_library(v, "nothing"), set()),
    "unregister": (lambda p, v: og.unregister_execution_provider_library(v), set()),
    "set_current_gpu_device_id": (lambda p, v: og.set_current_gpu_device_id(v), set()),
    "token_texts": (lambda p, v: p.model.token_texts(v), {"empty", "bytes", "list", "dict"}),
    "get_input": (lambda p, v: p.generator().get_input(v), set()),
    "runtime_option.key": (lambda p, v: p.generator().set_runtime_option(v, "x" * 8193), set()),
    "runtime_option": (lambda p, v: p.generator().set_runtime_option("terminate_session", v), set()),
    "Config.overlay": (lambda p, v: og.Config(p.model.config.folder).overlay(v), set()),
    "Trace": (lambda p, v: og.Trace(v), set()),
    "Trace.load": (lambda p, v: og.Trace.load(v), set()),
    "record": (lambda p, v: og.record(v).__enter__(), set()),
    "record.max_stages": (lambda p, v: og.record(max_stages=v).__enter__(), set()),
    "record.logits_mb": (lambda p, v: og.record(logits_mb=v).__enter__(), {"fraction", "None"}),
    "ask.model": (lambda p, v: p.ask(model=v), set()),
    "ask.prompt": (lambda p, v: p.ask(prompt=v), ANY_TEXT),
    "ask.prompt, chat=False": (lambda p, v: p.ask(prompt=v, chat=False), {"text"}),
    "ask.prompt, one message": (lambda p, v: p.ask(prompt=[v]), set()),
    "ask.prompt, one role": (lambda p, v: p.ask(prompt=[{"role": v, "content": "x"}]), ANY_TEXT),
    "ask.max_new_tokens": (lambda p, v: p.ask(max_new_tokens=v), {"huge"}),
    "ask.chat": (lambda p, v: p.ask(chat=v), {"flag"}),
    "ask.on_text": (lambda p, v: p.ask(on_text=v), {"None"}),
    "text": (lambda p, v: p.trace.text(v), set()),
    "candidates": (lambda p, v: p.trace.candidates(v), set()),
    "candidates.run": (lambda p, v: p.trace.candidates(0, run=v), set()),
    "wait": (lambda p, v: p.trace.wait(v), {"None", "fraction", "huge"}),
    "branch": (lambda p, v: p.trace.branch(v), set()),
    "branch.token": (lambda p, v: p.trace.branch(0, token=v), {"None"}),
    "branch.run": (lambda p, v: p.trace.branch(0, run=v), set()),
    "again": (lambda p, v: p.trace.again(v), set()),
    "show": (lambda p, v: p.trace.show(v), set()),
    "show.model": (lambda p, v: p.trace.show(model=v), {"None"}),
    "save": (lambda p, v: p.trace.save(v), {"text"}),
    "to_chrome": (lambda p, v: p.trace.to_chrome(v), {"text"}),
    "to_html": (lambda p, v: p.trace.to_html(v), {"text"}),
    "to_html.kind": (lambda p, v: p.trace.to_html("x", v), set()),
    "state_at": (lambda p, v: p.trace.state_at(v), set()),
    "blocks": (lambda p, v: p.trace.blocks(v), set()),
    "why": (lambda p, v: p.trace.why(0, v), set()),
    "build_model": (lambda p, v: build_model(v, "out"), set()),
    "build_model.output_dir": (lambda p, v: build_model("x.gguf", v), set()),
    "build_model.precision": (lambda p, v: build_model("x.gguf", "out", v), set()),
    "build_model.extra_options": (lambda p, v: build_model("x.gguf", "out", extra_options=v), set()),
    **{
        f"encoding.{name}": (lambda p, v, name=name: getattr(p.tokenizer, name)(v), allowed)
        for name, allowed in {
            "encode": {*ANY_TEXT, "long"},
            "encode_batch": set[str](),
            "decode": {"list", "dict"},
            "decode_batch": {"list", "nested"},
            "to_token_id": {"text"},
            "piece": set[str](),
            "is_special": set[str](),
            "apply_chat_template": {"list"},
        }.items()
    },
    "template_str": (
        lambda p, v: p.tokenizer.apply_chat_template([{"role": "user", "content": "x"}], template_str=v),
        {"None", *ANY_TEXT, "nul", "long"},
    ),
    **{
        f"generator.{name}": (lambda p, v, name=name: getattr(p.generator(), name)(v), allowed)
        for name, allowed in {
            "append_tokens": set[str](),
            "get_sequence": set[str](),
            "set_logits": set[str](),
            "rewind_to": set[str](),
            "get_output": set[str](),
            "fork": {"None"},
        }.items()
    },
    **{
        f"option.{name}": (lambda p, v, name=name: p.option(name, v), allowed)
        for name, allowed in {
            "do_sample": {"flag"},
            "top_k": set[str](),
            "top_p": set[str](),
            "temperature": {"fraction", "huge"},
            "max_length": set[str](),
            "random_seed": {"negative"},
            "early_stopping": {"flag"},
            "no_such_option": set[str](),
        }.items()
    },
    **{
        f"engine.{name}": (lambda p, v, name=name: getattr(p.engine, name)(v), allowed)
        for name, allowed in {
            "create_event_buffer": set[str](),
            "run": set[str](),
            "add_request": set[str](),
            "remove_request": set[str](),
            "generate_all": {"list", "dict", "nested", "array"},
            "submit": {"text"},
        }.items()
    },
    "create_request": (lambda p, v: p.engine.create_request(options=v), {"None"}),
    "Request": (lambda p, v: og.Request(v), set()),
    "begin_turn": (lambda p, v: p.engine.create_request().begin_turn(v), set()),
    "begin_turn.options": (lambda p, v: p.engine.create_request().begin_turn([5], v), {"None"}),
    "max_session_tokens": (lambda p, v: og.RequestOptions().set_max_session_tokens(v), set()),
    **{
        f"turn.{name}": (lambda p, v, name=name: p.turn(name, v), allowed)
        for name, allowed in {
            "set_do_sample": {"flag"},
            "set_no_repeat_ngram_size": set[str](),
            "set_repetition_penalty": {"fraction", "huge"},
            "set_max_generated_tokens": set(),
            "set_stop_strings": {"list"},
            "set_seed": set(),
        }.items()
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_argument_is_an_error_of_ours(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    call, allowed = CALLS[name]
    for kind, value in BAD.items():
        if kind in allowed:
            continue
        with pytest.raises(GenaiLabError) as caught:
            call(place, value)
            pytest.fail(f"{name}({kind}) was accepted")
        words = str(caught.value)
        assert 20 < len(words) < 1000, f"{name}({kind}): {words}"
        assert not any(telltale in words for telltale in TELLTALES), f"{name}({kind}): {words}"
    assert len(place.trace.runs()) == 1
    assert list(place.folder.iterdir()) == []


@pytest.mark.parametrize("name", sorted(name for name, (_, allowed) in CALLS.items() if allowed))
def test_what_is_allowed_is_allowed(
    name: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the table above cannot grow exceptions that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENAI_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("genai_lab.builder.build_model", lambda *_, **__: tiny_folder)
    monkeypatch.setattr("genai_lab.workbench.default_model.weights_file", lambda *_: tiny_folder)
    call, allowed = CALLS[name]
    model = og.Model(tiny_folder)
    trace = og.ask(model, "Hello", max_new_tokens=3).wait()
    with og.Engine(model) as engine:
        place = Place(model, trace, og.Tokenizer(model), engine, tmp_path)
        for kind in allowed:
            call(place, BAD[kind])
    WORKER.close()
    KEPT.clear()


@pytest.mark.parametrize("write", ["save", "to_html", "to_chrome"])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no/such/place", "path 'no/such/place' cannot be written: there is no folder 'no/such'. Make it first"),
        ("folder", "path 'folder' is a folder; the path of a file is needed. Give a file name inside it"),
        ("file/place", "file' is a file, not a folder. Give another place"),
        ("x" * 300, "the name is too long"),
    ],
)
def test_a_place_that_cannot_be_written_is_said(
    place: Place, write: str, path: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError) as caught:
        getattr(place.trace, write)(path)
    assert words in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert sorted(tmp_path.rglob("*")) == before
    assert Path("file").read_text() == "mine"


@pytest.mark.parametrize("write", ["save", "to_html", "to_chrome"])
@pytest.mark.parametrize(("number", "words"), [(13, "not permitted"), (30, "read-only"), (28, "disk is full")])
def test_a_failed_write_leaves_the_old_file(
    place: Place, write: str, number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "old"
    target.write_text("old")

    def fails(*_arguments: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OutputError, match=words):
        getattr(place.trace, write)(target)
    assert [entry.name for entry in tmp_path.iterdir()] == ["old"]
    assert target.read_text() == "old"


def test_a_write_goes_through_a_link_and_into_a_device(place: Place, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    place.trace.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert og.Trace.load(tmp_path / "real").text() == place.trace.text()
    place.trace.to_chrome("/dev/null")
    assert not Path("/dev/null").is_file()


def test_runs_that_are_not_there_say_which_are(place: Place) -> None:
    for call in (place.trace.text, place.trace.again, lambda run: place.trace.branch(0, run=run)):
        with pytest.raises(GenaiLabError, match=r"run 99 is not in the trace; it has one run, 0"):
            call(99)
    with og.record() as empty:
        pass
    with pytest.raises(GenaiLabError, match=r"run 0 is not in the trace; it has no runs: no answer was recorded"):
        empty.text()
    with pytest.raises(GenaiLabError, match="No answer is in this recording"):
        empty.branch(0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prompt": [{"content": "x"}]}, r"messages\[0\] is .*without 'role'.*Add its 'role'"),
        ({"prompt": [{"role": "user"}]}, r"messages\[0\] is .*without 'content'"),
        ({"prompt": [{"role": "user", "content": None}]}, r"messages\[0\] is .*without 'content'"),
        ({"prompt": [{"role": "user", "content": "a\0b"}]}, r"messages\[0\]\['content'\] has a NUL character at 1"),
        ({"prompt": "ab\0c"}, "prompt has a NUL character at 2"),
        ({"prompt": None}, r"prompt is None \(NoneType\); a question as a string, or a list of messages"),
        ({"prompt": {"role": "user", "content": "x"}}, r"prompt is one message; .*\[message\]"),
        ({"prompt": "", "chat": False}, "prompt is empty, so there is nothing to go on from"),
        ({"max_length": 5}, r"max_length, which counts them too, is 5: .*Give a max_length from \d+ to 256"),
        ({"prompt": "x" * 1000}, "the model's context holds 256: .*Shorten the prompt"),
        ({"min_length": 200}, r"min_length is 200, but this answer ends at \d+ tokens"),
        ({"num_beams": 4}, "ask: num_beams is 4; ask writes one answer"),
        ({"max_tokens": 4}, "write max_length, which counts the prompt as well"),
    ],
)
def test_a_question_that_cannot_be_asked(place: Place, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(GenaiLabError, match=words):
        place.ask(**arguments)


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data"])
@pytest.mark.parametrize("harm", ["cut", "emptied", "other bytes", "gone"])
def test_a_damaged_model_names_the_file_and_the_way_out(
    name: str, harm: str, tiny_folder: Path, tmp_path: Path
) -> None:
    for file in tiny_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes({"cut": whole[: len(whole) // 2], "other bytes": b"\xff" * 5000}.get(harm, b""))
    if harm == "gone":
        (tmp_path / name).unlink()
    with pytest.raises(GenaiLabError) as caught:
        og.Model(tmp_path)
    words = str(caught.value)
    assert f"{tmp_path / name}'" in words
    assert "ONNXRuntimeError" not in words
    assert (caught.value.__cause__ is None) is ((name, harm) == ("model.onnx", "gone"))
    if caught.value.__cause__ is not None:
        assert "Convert the checkpoint again" in words and "is made anew when it is deleted" in words


@pytest.mark.parametrize(
    ("given", "time"),
    [(None, None), (0, 0.0), (1.5, 1.5), (np.int64(3), 3.0), (np.float32(0.5), 0.5), (math.inf, None), (10**400, None)],
)
def test_a_time_to_wait_is_seconds_or_no_limit(place: Place, given: Any, time: float | None) -> None:
    assert seconds("timeout", given) == time
    assert place.trace.wait(given) is place.trace


def test_numbers_of_numpy_are_numbers(place: Place) -> None:
    trace = og.ask(place.model, "Hello", max_new_tokens=np.int64(3), chat=np.False_).wait(np.float64(60))  # type: ignore[arg-type]
    assert len(trace.tokens()) == 3
    assert (whole("n", np.uint64(2**64 - 1)), flag("f", np.True_)) == (2**64 - 1, True)


@pytest.mark.parametrize("name", ["max_tokens", "max_stages", "logits_mb"])
def test_a_limit_of_a_recording_is_a_number_up_to_its_bound(name: str) -> None:
    for wrong in ("8", True, [], 1j):
        with pytest.raises(ArgumentTypeError, match=rf"record: {name} is .*; allowed is a.* to "):
            og.record(**{name: wrong}).__enter__()
    for outside in (-1, 2**40):
        with pytest.raises(ArgumentError, match=rf"record: {name} is {outside}; allowed is a.* to "):
            og.record(**{name: outside}).__enter__()
    bounds = {"logits_mb": (0, 1e6, np.float32(0.5))}.get(name, (1, 2**31 - 1, np.int64(5)))
    for allowed in bounds:
        with og.record(**{name: allowed}):
            pass


def test_options_take_numpys_numbers_and_refuse_what_is_none(place: Place) -> None:
    params = og.GeneratorParams(place.model)
    params.set_speculative_options(ngram_size=np.int64(3), cooldown=np.True_)
    assert (params.speculative.ngram_size, params.speculative.cooldown) == (3, True)
    for wrong in (math.nan, math.inf, 10**400, 2.5):
        with pytest.raises(ArgumentError, match=r"speculative\.ngram_size is .* from 2 to 16"):
            params.set_speculative_options(ngram_size=wrong)
    params.add_logits_processor(lambda scores, ids: scores, at=np.int64(0))
    og.set_current_gpu_device_id(np.int64(0))
