"""Known models with an 8-bit KV cache: scales measured once, the folder kept, wrong wishes refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import genai_lab
from genai_lab.builder.kv_cache import parse_kv_cache
from genai_lab.errors import ArgumentError, StateError
from genai_lab.workbench import default_model, kv_calibration, weights
from genai_lab.workbench.kv_calibration import HEADROOM, measure_scales
from tests.tiny import TinySizes, tiny_model_folder


@pytest.fixture(autouse=True)
def no_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise AssertionError("nothing should be fetched")

    monkeypatch.setattr(weights, "_fetch_wheel", refuse)


def test_a_known_model_is_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GENAI_LAB_CACHE", str(tmp_path))
    small = genai_lab.load("tiny-draft", kv_cache="int8")
    plain = genai_lab.load("tiny-draft")
    assert small.kv_layout.dtype == "int8"
    assert small.kv_layout.bytes_per_token * 4 == plain.kv_layout.bytes_per_token
    logits = small.config.model.decoder.outputs.logits
    assert small.session.outputs[logits].shape == plain.session.outputs[logits].shape
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        [small.config.folder.name, plain.config.folder.name]
    ), "nothing half-made is left"

    def again(*_: object) -> None:
        raise AssertionError("it is there already")

    monkeypatch.setattr(kv_calibration, "measure_scales", again)
    assert default_model.model_folder("tiny-draft", kv_cache="int8_per_channel") == small.config.folder


@pytest.mark.slow
def test_the_shipped_model_says_nearly_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GENAI_LAB_CACHE", str(tmp_path))
    plain, small = genai_lab.load("tiny"), genai_lab.load("tiny", kv_cache="int8")
    tokens = plain.tokenizer.encode("The rabbit-hole went straight on like a tunnel for some way,")
    found = []
    for model in (plain, small):
        params = genai_lab.GeneratorParams(model)
        params.set_search_options(max_length=len(tokens) + 24)
        generator = genai_lab.Generator(model, params)
        generator.append_tokens(tokens)
        while not generator.is_done():
            generator.generate_next_token()
        found.append(model.tokenizer.decode(generator.get_sequence(0)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "kv_cache", "words"),
    [
        ("tiny", "int4", "kv_cache='int4': allowed are 'int8', 'int8_per_tensor', 'int8_per_channel', or None"),
        ("tiny", 8, "kv_cache=8: allowed are"),
        ("tiny-speculative", "int8", "'tiny-speculative' has two models"),
    ],
)
def test_what_cannot_be(name: str, kv_cache: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        genai_lab.load(name, kv_cache=kv_cache)


def test_a_folder_is_what_it_was_built_as(tiny_folder: Path) -> None:
    with pytest.raises(ArgumentError, match="kv_cache is 'int8' and the model a folder"):
        genai_lab.load(tiny_folder, kv_cache="int8")


@pytest.mark.parametrize("kind", HEADROOM)
def test_scales_hold_what_was_read_at_every_position(tmp_path: Path, kind: str) -> None:
    """The same tokens later in a longer text have keys rotated further: they still fit."""
    from genai_lab.models.decoder import DecoderState

    model = genai_lab.Model(tiny_model_folder(tmp_path / "model", sizes=TinySizes(num_key_value_heads=2, num_layers=1)))
    text = "the world in all the words"
    scales = measure_scales(model, kind, [text])
    ids = np.tile(model.tokenizer.encode(text), 12)[:250]
    state = DecoderState(model, ids.size)
    state.prepare(ids, 0)
    state.run()
    for half, kept in enumerate((scales.keys[0], scales.values[0])):
        limit = (127 * kept).reshape(2, 1, -1) if kept.size > 1 else 127 * kept
        assert np.all(np.abs(state.cache.slab[0, half, 0]) <= limit * 1.0001)
    used = np.abs(state.cache.keys(0)[0]).max() / (127 * scales.keys[0].max())
    assert 0.4 < used <= 1.0


def test_what_cannot_be_measured(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = genai_lab.Model(tiny_folder)
    with pytest.raises(ArgumentError, match="kind is 'none'; allowed are int8_per_tensor"):
        measure_scales(model, "none")
    with pytest.raises(ArgumentError, match="at least one text that is not empty"):
        measure_scales(model, texts=["", ""])
    monkeypatch.setenv("GENAI_LAB_CACHE", str(tmp_path))
    with pytest.raises(StateError, match=r"has a cache of int8, .* scales are measured on the float32 model"):
        measure_scales(genai_lab.load("tiny-draft", kv_cache="int8"))


def test_the_command_line(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, text = tmp_path / "scales.json", tmp_path / "text.txt"
    text.write_text("one piece\n\nanother piece", encoding="utf-8")
    command = [str(tiny_folder), "-o", str(out), "-t", "int8_per_tensor", "--text", str(text)]
    assert kv_calibration.main(command) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert set(json.loads(out.read_text())) == {"scales"}
    scales = parse_kv_cache("int8_per_tensor", str(out))
    assert scales is not None and scales.keys.shape == (2, 1)
    assert kv_calibration.main([str(tiny_folder), "-o", str(tmp_path / "gone" / "x.json")]) == 1
    assert "error: -o" in capsys.readouterr().err
    assert kv_calibration.main([str(tiny_folder), "-o", str(out), "--text", str(tmp_path / "no.txt")]) == 1
    assert "cannot be read as UTF-8 text" in capsys.readouterr().err
