"""docs/COMPATIBILITY.md says of every member of onnxruntime-genai's Python module what it is here; each claim is tried
on both libraries, on one tiny model."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.errors import GenaiLabError
from tests.tiny import tiny_model_folder
from tools import compat, compat_reasons
from tools.compat_calls import CALLS
from tools.compat_reasons import ROWS, Row, Status
from tools.compat_stage import Seen, Stage, agree, is_error, outcome, plain, refused
from tools.compat_surface import Member, Parameter, differences, find, members

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stage, Stage]:
    """Theirs and ours, on a graph that gives the logits of every position, which their Engine needs."""
    folder = tiny_model_folder(tmp_path_factory.mktemp("surface") / "model", extra_options={"prune_lm_head": False})
    og.disable_telemetry_events()
    return Stage(og, folder), Stage(genai_lab, folder)


def test_the_table_is_complete_and_up_to_date() -> None:
    assert compat.problems() == []


@pytest.mark.parametrize("name", ROWS)
def test_what_a_row_claims_is_so(name: str, stages: tuple[Stage, Stage]) -> None:
    theirs, ours = stages
    calls, status = CALLS[name], ROWS[name].status
    tried = 0
    if calls.same is not None:
        there, here = outcome(calls.same, theirs), outcome(calls.same, ours)
        assert agree(there, here), f"there {there}, here {here}"
        tried += status in (Status.SAME, Status.MORE)
    if calls.more is not None:
        there, here = outcome(calls.more, theirs), outcome(calls.more, ours)
        assert not is_error(here), here
        assert not agree(there, here), f"both {here}: the row should say that it is the same"
    if calls.differs is not None:
        there, here = outcome(calls.differs, theirs), outcome(calls.differs, ours)
        assert not agree(there, here), f"both {here}: the row should say that it is the same"
        tried += status is Status.DIFFERS
    if calls.absent is not None:
        with pytest.raises(GenaiLabError, match="text"):
            calls.absent(ours)
        tried += status is Status.ABSENT
    if calls.here is not None:
        assert calls.why_not_there
        assert not is_error(outcome(calls.here, ours))
        tried += 1
    assert tried >= 1, "no call tries what the row claims"
    assert (calls.more is not None) == (status is Status.MORE)


def test_a_name_that_is_missing_or_called_otherwise_is_found() -> None:
    """The check of signatures can fail."""

    ours = ModuleType("ours")

    class Thing:
        def __init__(self, model: object) -> None: ...
        def narrow(self, text: str) -> None: ...
        def wide(self, text: str, *, options: object = None) -> None: ...

    ours.Thing = Thing  # type: ignore[attr-defined]
    by_place, named, option = Parameter(None, True), Parameter("tokens", True), Parameter("options", False, True)
    assert differences(ours, Member("Thing", "gone", "method")) == ["Thing.gone does not exist"]
    assert differences(ours, Member("Nothing", "()", "constructor")) == ["Nothing() does not exist"]
    assert not differences(ours, Member("Thing", "wide", "method", ((by_place, option),)))
    assert differences(ours, Member("Thing", "narrow", "method", ((by_place, option),)))[0].startswith(
        "Thing.narrow(_, options=)"
    )
    assert any("tokens=" in words for words in differences(ours, Member("Thing", "narrow", "method", ((named,),))))
    assert differences(ours, Member("Thing", "narrow", "property")) == ["Thing.narrow is a function, not a property"]
    assert find(ours, Member("Thing", "()", "constructor")) is Thing


def test_a_member_without_a_row_and_a_row_without_a_member_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ROWS, "Model()")
    monkeypatch.setitem(ROWS, "Model.fly", Row(Status.MORE))
    words = "\n".join(compat.problems())
    assert "Model() has no row" in words
    assert "there is no Model.fly to have a row" in words
    assert "Model.fly is tried by no call" in words
    assert "Model.fly is said to be 'same, more' without a reason" in words


def test_a_document_that_is_out_of_date_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "Model()", Row(Status.MORE, "another reason"))
    assert compat.problems() == ["docs/COMPATIBILITY.md is not what would be written now; run python -m tools.compat"]


def test_two_rows_of_one_member_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compat_reasons.MORE, "Model.type", "twice")
    with pytest.raises(ValueError, match=r"Model\.type has two rows"):
        compat_reasons._rows()


def test_every_class_and_function_of_theirs_is_ours(stages: tuple[Stage, Stage]) -> None:
    names = {member.owner or member.name for member in members(compat.oracle() or og)}
    assert len(names) > 35
    assert names <= set(genai_lab.__all__)


# ---- rules that no single member shows


def test_any_thread_may_call_here(stages: tuple[Stage, Stage]) -> None:
    found = []
    for stage in stages:
        engine = stage.engine()
        made: list[object] = []
        thread = threading.Thread(target=lambda e=engine, m=made: m.append(refused(e.get_capabilities)))  # type: ignore[misc]
        thread.start()
        thread.join()
        found.append(made[0])
    assert found[0] is RuntimeError
    assert not is_error(found[1])


def test_a_generator_may_be_used_from_any_thread(stages: tuple[Stage, Stage]) -> None:
    def elsewhere(call: Callable[[], object]) -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    found = []
    for stage in stages:
        generator = stage.empty()
        tokens = np.array([5, 9], np.int32)
        elsewhere(lambda g=generator, t=tokens: g.append_tokens(t))  # type: ignore[misc]
        elsewhere(generator.generate_next_token)
        generator.generate_next_token()
        found.append(generator.get_sequence(0).tolist())
    assert len(found[0]) == 4
    assert found[1] == found[0]


def test_a_request_keeps_its_engine_here(stages: tuple[Stage, Stage]) -> None:
    found = [refused(lambda s=stage: s.engine().create_request().begin_turn([5])) for stage in stages]  # type: ignore[misc]
    assert found == [RuntimeError, 1]


def test_enums_are_numbers_here(stages: tuple[Stage, Stage]) -> None:
    for stage, equal, true in zip(stages, (False, True), (True, False), strict=True):
        flags, reason = stage.lib.EngineEventFlags, stage.lib.FinishReason
        assert (reason.EOS == 1) is equal
        assert bool(flags.NONE) is true
        assert f"{reason.EOS} {flags.TOKEN}" == "FinishReason.EOS EngineEventFlags.TOKEN"
        assert int(flags.TOKEN | flags.TURN_FINISHED) == 3
        assert {flags.TOKEN: 1}[flags(1)] == 1
    assert f"{genai_lab.EngineEventFlags(3)} {genai_lab.FinishReason.EOS:d} {genai_lab.EngineEventFlags(0):>22}" == (
        "EngineEventFlags.TOKEN|TURN_FINISHED 1  EngineEventFlags.NONE"
    )


WORDS: dict[str, tuple[Callable[[Stage], object], str]] = {
    "no tokens yet": (lambda s: s.empty().generate_next_token(), "no prior state"),
    "an unknown input": (lambda s: s.generator().get_input("x"), "input 'x' was not found"),
    "an unknown output": (lambda s: s.generator().get_output("x"), "output 'x' was not found"),
    "at the end": (lambda s: s.generator(9).generate_next_token(), "already at max_length (12)"),
    "told to stop": (lambda s: _stopped(s.generator()), "Session in Terminated state"),
    "an unknown adapter": (lambda s: s.lib.Adapters(s.model).unload("x"), "Adapter not found: x"),
    "an unknown tensor": (lambda s: s.named()["b"], "Tensor with name: b not found"),
    "another engine's buffer": (lambda s: _other_buffer(s), "buffer must be used with the Engine that created it"),
    "two dimensions": (lambda s: _in_turn(s, np.array([[5]])), "must be a one-dimensional array"),
    "a turn under way": (lambda s: _twice(s), "only valid for a new request or after the current turn is complete"),
    "a closed request": (lambda s: _after_close(s), "closed request"),
    "options that contradict": (lambda s: _contradicting(s), "contradict it: top_k"),
    "a model of text": (
        lambda s: s.model.create_multimodal_processor(),
        "MultiModalProcessor cannot be created. llama is not a registered multi-modal model type.",
    ),
    "no speech": (lambda s: s.model.create_streaming_processor(), "unsupported model type 'llama'"),
    "no images": (lambda s: s.lib.Images.open(), "No images provided"),
    "no such image": (lambda s: s.lib.Images.open("/no.png"), "Image path does not exist: /no.png"),
    "an empty sound": (lambda s: s.lib.Audios.open_bytes(b""), "Audio buffer 0 is empty."),
    "no mark": (lambda s: s.tokenizer.bot_token_id, "bot_token_id is not defined for this model"),
    "an unknown option": (lambda s: s.params(nope=1), 'Unknown value "nope"'),
    "more than fits": (
        lambda s: s.empty().append_tokens(np.full(13, 5, np.int32)),
        "input_ids size (13) + current sequence length (0) exceeds max length (12)",
    ),
    "no tokens given": (lambda s: s.empty().append_tokens(np.zeros(0, np.int32)), "input_ids is empty"),
    "a rewind too far": (
        lambda s: s.generator().rewind_to(99),
        "Cannot rewind to a length greater than the current sequence length",
    ),
    "no length": (lambda s: s.empty(max_length=0), "search max_length is 0"),
    "beyond the context": (
        lambda s: s.empty(max_length=10**6),
        "max_length (1000000) cannot be greater than model context_length (256)",
    ),
    "more answers than beams": (
        lambda s: s.empty(num_return_sequences=3),
        "num_return_sequences (3) must be in [1, 1]",
    ),
    "an unknown kind of grammar": (lambda s: _guided(s, "nope"), "Unsupported guidance type: nope"),
    "an option of a tokenizer": (
        lambda s: s.tokenizer.update_options(nope="1"),
        "Invalid tokenizer option key: nope",
    ),
    "a tensor of text": (lambda s: s.lib.Tensor(np.array(["a"])), "Unsupported numpy type"),
}


def _guided(s: Stage, kind: str) -> object:
    params = s.params()
    params.set_guidance(kind, "x")
    return s.lib.Generator(s.model, params)


def _stopped(generator: Any) -> None:
    generator.set_runtime_option("terminate_session", "1")
    generator.generate_next_token()
    generator.generate_next_token()


def _other_buffer(s: Stage) -> None:
    first, second = s.engine(), s.engine()
    second.run(first.create_event_buffer(1))


def _in_turn(s: Stage, tokens: object) -> None:
    engine = s.engine()
    engine.create_request().begin_turn(tokens)


def _twice(s: Stage) -> None:
    engine = s.engine()
    request = engine.create_request()
    request.begin_turn([5])
    request.begin_turn([5])


def _after_close(s: Stage) -> None:
    engine = s.engine()
    request = engine.create_request()
    request.close()
    request.begin_turn([5])


def _contradicting(s: Stage) -> None:
    engine = s.engine()
    request = engine.create_request()
    options = s.options(request, do_sample=False, top_k=40)
    request.begin_turn([5], options)


@pytest.mark.parametrize("what", WORDS)
def test_words_that_their_tests_look_for_are_in_ours(what: str, stages: tuple[Stage, Stage]) -> None:
    call, words = WORDS[what]
    for stage in stages:
        with pytest.raises(Exception) as caught:  # the classes are compared by the rows
            call(stage)
        assert words in str(caught.value)


def test_a_default_that_the_caller_does_not_see_does_not_undo_sampling(stages: tuple[Stage, Stage]) -> None:
    for stage in stages:
        for overlay, words in (
            ('{"top_k": 1}', "search.top_k = 1"),
            ('{"temperature": 0.0}', "search.temperature = 0"),
        ):
            config = stage.config()
            config.overlay(f'{{"search": {overlay}}}')
            engine = stage.lib.Engine(stage.lib.Model(config))
            request = engine.create_request()
            options = stage.options(request, do_sample=True)
            with pytest.raises(RuntimeError, match=words):
                request.begin_turn([5, 9], options)
            options.set_top_k(4)
            options.set_temperature(0.8)
            assert request.begin_turn([5, 9], options) == 1


def test_an_event_is_kept_after_its_buffer(stages: tuple[Stage, Stage]) -> None:
    ours = stages[1]
    engine = ours.engine()
    requests = {engine.create_request(): n for n in range(2)}
    for request in requests:
        request.begin_turn([5, 9], ours.options(request))
    buffer = engine.create_event_buffer(1)
    first = engine.run(buffer)[0]
    engine.run(buffer)
    del buffer
    assert first.request in requests
    assert [Seen(first, first.request).is_requests, plain(first.flags)] == [True, 1]


def test_a_package_gives_the_variant_of_a_provider(tmp_path: Path, stages: tuple[Stage, Stage]) -> None:
    folder = stages[1].folder

    def package(name: str, manifest: str) -> Path:
        place = tmp_path / name
        place.mkdir()
        (place / "manifest.json").write_text(manifest)
        (place / "cpu-1").symlink_to(folder)
        return place

    one = package("one", '{"components": {"model": {"variants": {"cpu-1": {"ep": "CPUExecutionProvider"}}}}}')
    assert genai_lab.Model(one).type == genai_lab.Model(genai_lab.Config.from_package_ep(one, "cpu")).type == "llama"
    two = package(
        "two",
        '{"components": {"model": {"variants": {"cpu-1": {"ep": "CPUExecutionProvider"}, "gpu": {"ep": "CUDA"}}}}}',
    )
    assert genai_lab.Config.from_package_ep(two, "CPU").folder == two / "cpu-1"
    outside = '{"components": {"m": {"variants": {"a": {"ep": "cpu", "variant_directory": "../one"}}}}}'
    for place, provider, words in (
        (two, "", "the variants declare CPU, [Cc][Uu][Dd][Aa]; say which provider you want"),
        (two, "qnn", "0 variants are for"),
        (folder, "cpu", "is not a model package"),
        (package("none", '{"components": {}}'), "", "components is an object; an object with exactly one component"),
        (package("bad", outside), "cpu", "is no path inside the package"),
    ):
        with pytest.raises(genai_lab.GenaiLabError, match=words):
            genai_lab.Config.from_package_ep(place, provider)


def test_a_packages_shared_tokenizer(tmp_path: Path, stages: tuple[Stage, Stage]) -> None:
    source = stages[1].folder
    variant, asset = tmp_path / "cpu-1", tmp_path / "shared_assets" / "sha256-abc" / "text"
    shutil.copytree(source, variant)
    asset.mkdir(parents=True)
    for file in variant.glob("tokenizer*"):
        shutil.move(file, asset / file.name)
    config = json.loads((variant / "genai_config.json").read_text())
    config["model"]["tokenizer_dir"] = "sha256:abc/text"
    (variant / "genai_config.json").write_text(json.dumps(config))
    (tmp_path / "manifest.json").write_text(
        '{"components": {"m": {"variants": {"cpu-1": {"ep": "CPUExecutionProvider"}}}}}'
    )
    assert genai_lab.Tokenizer(genai_lab.Config(tmp_path)).encode("Hello").size > 0
    with pytest.raises(genai_lab.GenaiLabError, match="sha256:abc"):
        genai_lab.Tokenizer(genai_lab.Config(variant))
