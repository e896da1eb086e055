"""The folder: whole or not at all, from any checkpoint either a model or a clear error."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genai_lab.builder import FORMAT_VERSION, build_model
from genai_lab.builder.folder import STALE_AFTER, whole_folder
from genai_lab.builder.options import Precision
from genai_lab.errors import ArgumentError, GenaiLabError, ModelFolderError
from tests.builder.run import logits_of
from tests.tiny import tiny_model_folder, tiny_tokens, write_tiny_gguf

FILES = {
    "chat_template.jinja",
    "genai_config.json",
    "model.onnx",
    "model.onnx.data",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_a_folder_holds_these_files(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "deep" / "model")
    assert names_in(folder) == FILES
    assert names_in(folder.parent) == {"model", "model.gguf"}


def test_genai_config_is_what_onnxruntime_genai_expects(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model")
    config = json.loads((folder / "genai_config.json").read_text())
    model, decoder = config["model"], config["model"]["decoder"]
    assert model["type"] == "llama"
    assert (model["bos_token_id"], model["eos_token_id"], model["pad_token_id"]) == (1, 2, 2)
    assert (model["vocab_size"], model["context_length"]) == (len(tiny_tokens()), 256)
    assert (decoder["num_hidden_layers"], decoder["num_attention_heads"], decoder["num_key_value_heads"]) == (2, 2, 1)
    assert (decoder["hidden_size"], decoder["head_size"], decoder["filename"]) == (64, 32, "model.onnx")
    assert decoder["inputs"]["past_key_names"] == "past_key_values.%d.key"
    assert config["search"]["max_length"] == 256
    assert config["search"]["past_present_share_buffer"] is True


def test_the_same_checkpoint_gives_the_same_bytes(tmp_path: Path) -> None:
    checkpoint = write_tiny_gguf(tmp_path / "tiny.gguf", weight_type="Q4_1")
    first, second = (build_model(checkpoint, tmp_path / name) for name in ("first", "second"))
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_another_name_of_the_onnx_file(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model", extra_options={"filename": "decoder.onnx"})
    assert {"decoder.onnx", "decoder.onnx.data"} <= names_in(folder)
    assert json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]["filename"] == "decoder.onnx"


def test_a_model_folder_is_replaced(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model", seed=0)
    before = logits_of(folder, [5, 6])
    tiny_model_folder(tmp_path / "model", seed=1)
    assert not np.array_equal(before, logits_of(folder, [5, 6]))
    assert names_in(tmp_path) == {"model", "model.gguf"}


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    (place / "thesis.txt").write_text("precious")
    with pytest.raises(ArgumentError, match=r"holds thesis.txt, which a build would remove"):
        tiny_model_folder(place)
    assert (place / "thesis.txt").read_text() == "precious"


def test_a_file_in_the_place_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.write_text("precious")
    with pytest.raises(ArgumentError, match="is a file"):
        tiny_model_folder(place)
    assert place.read_text() == "precious"


def test_a_failing_build_leaves_nothing(tmp_path: Path) -> None:
    checkpoint = write_tiny_gguf(tmp_path / "tiny.gguf")
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"blk.1.ffn_down.weight", b"blk.1.ffn_drown.weigh"))
    with pytest.raises(ModelFolderError, match=r"tensor 'blk.1.ffn_down.weight' is missing"):
        build_model(checkpoint, tmp_path / "model")
    assert names_in(tmp_path) == {"tiny.gguf"}


def test_a_failing_build_keeps_the_folder_that_was_there(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model")
    before = {name: (folder / name).read_bytes() for name in FILES}
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelFolderError):
        build_model(tmp_path / "bad.gguf", folder)
    assert {name: (folder / name).read_bytes() for name in FILES} == before


STOP_IN_THE_MIDDLE = """
import sys
from pathlib import Path
from genai_lab.builder import onnx_file
from genai_lab.builder.build import build_model

write = onnx_file.OnnxWriter.weight
def stop(self, name, values):
    if name.startswith("layers.1/"):
        print("half", flush=True)
        sys.stdin.read()
    return write(self, name, values)
onnx_file.OnnxWriter.weight = stop
build_model(sys.argv[1], sys.argv[2])
"""


def test_a_killed_build_leaves_no_folder_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    checkpoint, place = write_tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "model"
    command = [sys.executable, "-c", STOP_IN_THE_MIDDLE, str(checkpoint), str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=os.getcwd()) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"half\n"
        child.send_signal(signal.SIGKILL)
    assert not place.exists()
    (left,) = tmp_path.glob(".model.*.partial")
    build_model(checkpoint, place)
    assert left.exists()  # it could be another process's
    long_ago = time.time() - STALE_AFTER - 1
    for entry in (*left.rglob("*"), left):
        os.utime(entry, (long_ago, long_ago))
    build_model(checkpoint, place)
    assert names_in(tmp_path) == {"tiny.gguf", "model"}


RACE = """
import sys
from genai_lab.builder.build import build_model

print("ready", flush=True)
sys.stdin.readline()
for _ in range(5):
    build_model(sys.argv[1], sys.argv[2], keep_existing=sys.argv[3] == "keep")
"""


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["keep", "replace"])
def test_racing_processes_all_end_with_a_good_folder(tmp_path: Path, rule: str) -> None:
    checkpoint, place = write_tiny_gguf(tmp_path / "tiny.gguf", weight_type="Q4_1"), tmp_path / "model"
    expected = logits_of(build_model(checkpoint, tmp_path / "alone"), [4, 5, 6])
    command = [sys.executable, "-c", RACE, str(checkpoint), str(place), rule]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    for racer in racers:
        assert racer.stdout is not None
        racer.stdout.readline()
    for racer in racers:
        racer.communicate(b"go\n")
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert names_in(place) == FILES
    np.testing.assert_array_equal(logits_of(place, [4, 5, 6]), expected)
    assert names_in(tmp_path) == {"tiny.gguf", "alone", "model"}


def test_a_folder_that_appears_meanwhile_is_kept_or_replaced(tmp_path: Path) -> None:
    for keep, expected in ((True, "theirs"), (False, "ours")):
        place = tmp_path / str(keep)
        with whole_folder(place, keep_existing=keep) as folder:
            (folder / "whose").write_text("ours")
            place.mkdir()
            (place / "whose").write_text("theirs")
        assert (place / "whose").read_text() == expected
    assert names_in(tmp_path) == {"True", "False"}


def test_an_interrupted_block_puts_nothing_in_place(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "place") as folder:
        (folder / "half").write_text("")
        raise KeyboardInterrupt
    assert not names_in(tmp_path)


def edited(tmp_path: Path, **changes: object) -> Path:
    """The tiny checkpoint with metadata of another value (None leaves it out)."""
    reader = gguf.GGUFReader(write_tiny_gguf(tmp_path / "tiny.gguf"))
    path = tmp_path / "edited.gguf"
    writer = gguf.GGUFWriter(path, str(changes.pop("architecture", "llama")))
    for field in reader.fields.values():
        key = field.name.removeprefix("llama.").removeprefix("tokenizer.")
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = changes.pop(key.replace(".", "_"), field.contents())
        if isinstance(value, str | list | float | int) and not isinstance(value, bool):
            add = {str: writer.add_string, list: writer.add_array, float: writer.add_float32, int: writer.add_int32}
            add[type(value)](field.name, value)
        elif value is not None:
            raise TypeError(f"{field.name}: {value!r}")
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    if "rope_scaling_type" in changes:
        writer.add_string("llama.rope.scaling.type", str(changes.pop("rope_scaling_type")))
    if "rope_dimension_count" in changes:
        writer.add_rope_dimension_count(int(str(changes.pop("rope_dimension_count"))))
    assert not changes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "mamba"}, "architecture 'mamba' is not supported; supported are llama"),
        ({"block_count": 3}, "tensor 'blk.2.attn_norm.weight' is missing"),
        ({"block_count": 1}, "9 tensors are not understood, such as blk.1.attn_k.weight"),
        ({"block_count": 1 << 30}, "llama.block_count is 1073741824; a whole number from 1 to 20"),
        ({"block_count": "two"}, "llama.block_count is 'two'"),
        ({"block_count": None}, "llama.block_count is missing"),
        (
            {"embedding_length": 128},
            r"'token_embd.weight' has the shape \(288, 64\); the metadata asks for \(288, 128\)",
        ),
        ({"context_length": 1 << 30}, "llama.context_length is 1073741824; a whole number from 1 to 262144"),
        ({"attention_head_count_kv": 3}, "2 heads cannot share 3 key-value heads evenly"),
        ({"attention_head_count": 0}, "llama.attention.head_count is 0; a whole number from 1"),
        ({"attention_key_length": 24}, "head size 24: onnxruntime's attention needs a multiple of 16"),
        ({"rope_freq_base": -1.0}, "llama.rope.freq_base is -1.0; a positive number is needed"),
        ({"rope_freq_base": float("nan")}, "llama.rope.freq_base is nan"),
        ({"rope_scaling_type": "yarn"}, "llama.rope.scaling.type is 'yarn'; only 'none' is supported"),
        ({"rope_dimension_count": 16}, "rotary embedding of 16 dimensions of a head of 32 is not supported"),
        ({"attention_layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon is missing"),
        ({"ggml_model": "llama"}, "tokenizer.ggml.model is 'llama'; only byte-level BPE, 'gpt2', is supported"),
        ({"ggml_pre": "qwen2"}, "tokenizer.ggml.pre is 'qwen2'; supported are gpt-2, smollm"),
        ({"ggml_tokens": ["a", "b"]}, "metadata holds 2 tokens"),
        ({"ggml_tokens": ["a"] * 288}, r"288 tokens \(1 different\)"),
        ({"ggml_tokens": "all"}, "tokenizer.ggml.tokens is missing or not a list of strings"),
        ({"ggml_tokens": [1, 2]}, "tokenizer.ggml.tokens is missing or not a list of strings"),
        ({"ggml_token_type": ["a"]}, "tokenizer.ggml.token_type is missing or not an array of whole numbers"),
        ({"attention_key_length": 1 << 20}, "llama.attention.key_length is 1048576; a whole number from 1 to 256"),
        ({"ggml_merges": ["ab"]}, "tokenizer.ggml.merges holds 'ab'; two tokens and a space are needed"),
        ({"ggml_merges": ["no such"]}, "tokenizer.ggml.merges do not fit tokenizer.ggml.tokens"),
        ({"ggml_eos_token_id": 288}, "tokenizer.ggml.eos_token_id is 288; there are 288 tokens"),
        ({"ggml_eos_token_id": None}, "tokenizer.ggml.eos_token_id is missing: generation could not end"),
        ({"chat_template": 7}, "tokenizer.chat_template is a int; text is needed"),
    ],
)
def test_metadata_that_cannot_be_used_is_named(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    checkpoint = edited(tmp_path, **changes)
    with pytest.raises(ModelFolderError, match=words):
        build_model(checkpoint, tmp_path / "model", "fp32")
    assert not (tmp_path / "model").exists()


def test_without_a_chat_template_none_is_written(tmp_path: Path) -> None:
    folder = build_model(edited(tmp_path, chat_template=None), tmp_path / "model", "fp32")
    assert names_in(folder) == FILES - {"chat_template.jinja"}
    assert "chat_template" not in json.loads((folder / "tokenizer_config.json").read_text())


def test_pad_and_bos_default_to_eos(tmp_path: Path) -> None:
    folder = build_model(
        edited(tmp_path, ggml_bos_token_id=None, ggml_padding_token_id=None), tmp_path / "model", "fp32"
    )
    model = json.loads((folder / "genai_config.json").read_text())["model"]
    assert (model["bos_token_id"], model["eos_token_id"], model["pad_token_id"]) == (2, 2, 2)


@pytest.mark.slow
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_give_a_model_or_a_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(write_tiny_gguf(tmp_path / "tiny.gguf", weight_type="Q4_1").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 9))
        patch = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff" * 8)))
        content[at : at + len(patch)] = patch
    (tmp_path / "changed.gguf").write_bytes(content)
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    try:
        build_model(tmp_path / "changed.gguf", tmp_path / "model")
    except GenaiLabError:
        assert not (tmp_path / "model").exists()
    else:
        assert names_in(tmp_path / "model") | {"chat_template.jinja"} == FILES


def fingerprint(folder: Path) -> str:
    """What a folder is made of, without what may differ between platforms or versions: weights and tokenizer.json."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    graph = model.graph
    parts: list[object] = [(node.op_type, node.domain, list(node.input), list(node.output)) for node in graph.node]
    parts += [sorted((a.name, str(onnx.helper.get_attribute_value(a))) for a in node.attribute) for node in graph.node]
    parts += [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in graph.initializer]
    parts += [(item.key, item.value) for item in model.metadata_props]
    parts += [(folder / name).read_text() for name in sorted(FILES) if not name.startswith(("model", "tokenizer.json"))]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def test_the_format_version_goes_up_with_the_files(tmp_path: Path) -> None:
    """Files changed on purpose? Raise FORMAT_VERSION, lest caches serve the old ones, and record both here."""
    made = {precision: fingerprint(tiny_model_folder(tmp_path / precision, precision)) for precision in Precision}
    assert (FORMAT_VERSION, made) == (
        3,
        {"fp32": "592ce5db3deb40fb", "int8": "8c3c8090d68e1d60", "int4": "7266eddb79843b31"},
    )
