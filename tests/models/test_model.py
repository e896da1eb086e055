"""Model folders that cannot be used say which part is wrong."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import genai_lab
from genai_lab.errors import ArgumentTypeError, GenaiLabError, ModelFolderError, StateError
from genai_lab.models import DecoderState
from tests.tiny import tiny_model_folder


def copy_with(folder: Path, target: Path, **decoder: object) -> Path:
    """A copy of a model folder with some keys of model.decoder replaced."""
    shutil.copytree(folder, target)
    config = json.loads((target / "genai_config.json").read_text())
    for name, value in decoder.items():
        here = config["model"]["decoder"]
        if isinstance(value, dict):
            here[name].update(value)
        else:
            here[name] = value
    (target / "genai_config.json").write_text(json.dumps(config))
    return target


def test_a_model_says_what_it_is(tiny_folder: Path) -> None:
    with genai_lab.Model(tiny_folder) as model:
        assert (model.type, model.device_type) == ("llama", "CPU")
        assert model.describe()["kv_bytes_per_token"] == model.kv_layout.bytes_per_token
        assert "llama" in repr(model)
    with pytest.raises(StateError, match="closed"):
        _ = model.session
    model.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"filename": "nothing.onnx"}, "nothing.onnx"),
        ({"inputs": {"input_ids": "tokens"}}, "input_ids"),
        ({"outputs": {"logits": "scores"}}, "scores"),
        ({"num_hidden_layers": 1}, r"past_key_values\.1"),
        ({"head_size": 0}, r"model\.decoder\.head_size is 0"),
    ],
)
def test_a_wrong_part_is_named(tiny_folder: Path, tmp_path: Path, change: dict[str, object], words: str) -> None:
    folder = copy_with(tiny_folder, tmp_path / "copy", **change)
    with pytest.raises(ModelFolderError, match=words):
        genai_lab.Model(folder)


def test_a_broken_graph_is_named(tiny_folder: Path, tmp_path: Path) -> None:
    folder = copy_with(tiny_folder, tmp_path / "copy")
    (folder / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ModelFolderError, match=r"model\.onnx"):
        genai_lab.Model(folder)


def test_no_folder_and_no_path(tmp_path: Path) -> None:
    with pytest.raises(GenaiLabError, match="nothing-here"):
        genai_lab.Model(tmp_path / "nothing-here")
    with pytest.raises(ArgumentTypeError, match="int"):
        genai_lab.Model(3)  # type: ignore[arg-type]


def test_other_providers_are_refused_with_what_there_is(tiny_folder: Path) -> None:
    config = genai_lab.Config(tiny_folder)
    config.append_provider("cuda")
    with pytest.raises(GenaiLabError, match=r"cuda.*CPU"):
        genai_lab.Model(config)
    config.clear_providers()
    assert genai_lab.Model(config).device_type == "CPU"


def test_chunks_with_past_equal_the_whole(tiny_folder: Path) -> None:
    model = genai_lab.Model(tiny_folder)
    tokens = np.random.default_rng(0).integers(3, 250, 24).astype(np.int32)
    whole, parts = DecoderState(model, 40), DecoderState(model, 40)
    whole.prepare(tokens, 0)
    whole.run()
    cached = 0
    for size in (7, 2, 15):
        parts.prepare(tokens[cached : cached + size], cached)
        parts.run()
        cached += size
    np.testing.assert_array_equal(parts.read_logits(), whole.read_logits())


def test_a_run_can_be_told_to_stop(tiny_folder: Path) -> None:
    model = genai_lab.Model(tiny_folder)
    state = DecoderState(model, 40)
    state.prepare(np.array([1, 5, 9], np.int32), 0)
    state.terminated = True
    with pytest.raises(Exception, match="terminate"):
        state.run()
    state.terminated = False
    state.run()


def test_more_tokens_than_the_cache_holds_are_refused(tiny_folder: Path) -> None:
    state = DecoderState(genai_lab.Model(tiny_folder), 4)
    with pytest.raises(StateError, match="cache of 4"):
        state.prepare(np.arange(5, dtype=np.int32), 0)


def test_a_graph_from_memory_finds_its_weights_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model_folder(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert (folder / "model.onnx.data").is_file()
    for wrapped in (bytes, bytearray, memoryview):
        config = genai_lab.Config(folder)
        config.add_model_data("model.onnx", wrapped((folder / "model.onnx").read_bytes()))
        model = genai_lab.Model(config)
        config.remove_model_data("model.onnx")
        generator = genai_lab.Generator(model, genai_lab.GeneratorParams(model))
        generator.append_tokens([5, 6])
        generator.generate_next_token()
        assert generator.token_count() == 3


@pytest.mark.slow
def test_a_profile_that_the_config_asks_for_is_written_when_the_model_is_closed(
    tmp_path: Path, tiny_folder: Path
) -> None:
    options = {"enable_profiling": str(tmp_path / "profile"), "log_id": "mine", "log_verbosity_level": 0}
    with genai_lab.Model(copy_with(tiny_folder, tmp_path / "model", session_options=options)) as model:
        state = DecoderState(model, 4)
        state.prepare(np.array([5, 6], np.int32), 0)
        state.run()
        del state
        gc.collect()
    gc.collect()
    (profile,) = tmp_path.glob("profile*.json")
    kinds = {event.get("args", {}).get("op_name") for event in json.loads(profile.read_text())}
    assert "GroupQueryAttention" in kinds
