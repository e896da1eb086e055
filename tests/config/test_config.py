from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from genai_lab.config import Config, check_providers, normalize_provider
from genai_lab.config.providers import DeviceFilter
from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError
from tests.config.samples import (
    DECODER_PARTS,
    MODEL,
    OTHER_PARTS,
    OTHER_SECTIONS,
    SPEECH_NUMBERS,
    config_json,
    write_folder,
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(write_folder(tmp_path / "model", config_json()))


def changed(path: str, value: object) -> dict[str, Any]:
    """The sample with one value changed, or added."""
    content = copy.deepcopy(config_json())
    *parents, last = path.split(".")
    at = content
    for name in parents:
        at = at.setdefault(name, {})
    at[last] = value
    return content


# ---- what is read


def test_a_folder_as_builders_write_it(config: Config) -> None:
    model, decoder = config.model, config.model.decoder
    assert (model.type, model.vocab_size, model.context_length) == ("llama", 49152, 8192)
    assert (model.bos_token_id, model.eos_token_ids, model.pad_token_id) == (1, (2, 7), 2)
    assert (decoder.filename, decoder.head_size, decoder.hidden_size) == ("model.onnx", 64, 576)
    assert (decoder.num_attention_heads, decoder.num_key_value_heads, decoder.num_hidden_layers) == (9, 3, 30)
    assert decoder.inputs.past_key_names % 3 == "past_key_values.3.key"
    assert decoder.session_options.intra_op_num_threads == 2
    assert decoder.session_options.graph_optimization_level == "ORT_ENABLE_ALL"
    assert dict(decoder.session_options.config_entries) == {"session.intra_op.allow_spinning": "0"}
    assert dict(decoder.run_options) == {"gpu_graph_id": "-1"}
    assert config.search_options().temperature == 0.7
    assert config.providers == ()


def test_defaults_are_ogs(tmp_path: Path) -> None:
    config = Config(write_folder(tmp_path, {"model": {"context_length": 16, "pad_token_id": 3}}))
    decoder = config.model.decoder
    assert config.model.eos_token_ids == (3,)
    config.overlay('{"model": {"eos_token_id": []}}')
    assert config.model.eos_token_ids == (3,)
    assert (decoder.inputs.past_value_names, decoder.outputs.logits) == ("past_key_values.%d.value", "logits")
    assert decoder.session_options.intra_op_num_threads is None
    assert (config.search_options().max_length, config.search_options().top_k) == (16, 50)
    assert config.speculative.max_draft_tokens == 4
    assert config.engine.dynamic_batching is None


@pytest.mark.parametrize("name", OTHER_PARTS)
def test_parts_that_are_not_used_yet_are_kept(name: str, tmp_path: Path) -> None:
    config = Config(write_folder(tmp_path, config_json(model={**MODEL, name: OTHER_PARTS[name]})))
    part = getattr(config.model, name)
    assert part is not None
    with pytest.raises((TypeError, AttributeError)):
        part["x"] = 1
    wrong = write_folder(tmp_path, config_json(model={**MODEL, name: {**OTHER_PARTS[name], "nonsense": 1}}))
    with pytest.raises(ModelFolderError, match=f"unknown key 'model.{name}.nonsense'"):
        Config(wrong)


def test_parts_of_the_decoder(tmp_path: Path) -> None:
    decoder = {**MODEL["decoder"], **DECODER_PARTS}
    config = Config(write_folder(tmp_path, config_json(model={**MODEL, **SPEECH_NUMBERS, "decoder": decoder})))
    window, pipeline = config.model.decoder.sliding_window, config.model.decoder.pipeline
    assert window is not None
    assert window["window_size"] == 128
    assert [stage["model_id"] for stage in pipeline] == ["embeddings", "head"]
    assert config.model.speech_numbers["tdt_durations"] == (0, 1, 2)
    as_object = {**decoder, "pipeline": {"embeddings": {"filename": "e.onnx"}, "head": {"filename": "h.onnx"}}}
    config = Config(write_folder(tmp_path, config_json(model={**MODEL, "decoder": as_object})))
    assert [stage["model_id"] for stage in config.model.decoder.pipeline] == ["embeddings", "head"]


def test_other_sections(tmp_path: Path) -> None:
    profiles = [{"id": "small", "eligibility": {"minimum_total_device_memory_bytes": 1}, "overlay": {}}]
    config = Config(write_folder(tmp_path, config_json(**OTHER_SECTIONS, runtime_profiles=profiles)))
    assert config.speculative.ngram_size == 3
    assert config.engine.dynamic_batching is not None
    assert (config.engine.dynamic_batching.block_size, config.engine.dynamic_batching.num_blocks) == (16, 100)
    assert config.runtime_profiles[0]["id"] == "small"


def test_tool_and_reasoning_marks_of_older_folders(tmp_path: Path) -> None:
    config = Config(write_folder(tmp_path, {"model": {"type": "qwen3", "context_length": 8, "eor_token_id": 9}}))
    assert (config.model.bot_token_id, config.model.bor_token_id, config.model.eor_token_id) == (151657, 151667, 9)
    assert Config(write_folder(tmp_path, {"model": {"context_length": 8}})).model.bot_token_id is None


# ---- errors


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("model.decoder.head_size", "64", r"model.decoder.head_size is '64' \(str\); an integer from 0"),
        ("model.decoder.head_size", 1.5, r"model.decoder.head_size is 1.5 \(float\); an integer"),
        ("model.decoder.head_size", True, r"model.decoder.head_size is True \(bool\); an integer"),
        ("model.decoder.head_size", -1, "model.decoder.head_size is -1"),
        ("model.decoder.head_size", 2**31, "model.decoder.head_size is 2147483648"),
        ("model.decoder.head_size", None, "model.decoder.head_size is null"),
        ("model.decoder.head_sise", 1, "unknown key 'model.decoder.head_sise'; did you mean 'head_size'?"),
        ("model.decoder.inputs.input_id", "x", "'model.decoder.inputs.input_id'; did you mean 'input_ids'?"),
        ("model.decoder.inputs.past_key_names", "past", "past_key_names is 'past' .* one '%d'"),
        ("model.decoder.inputs.past_key_names", "%d%s", "past_key_names is '%d%s'"),
        ("model.decoder.outputs.present_key_names", "%9999999d", "present_key_names is '%9999999d'"),
        ("model.decoder.outputs.logits", 5, r"model.decoder.outputs.logits is 5 \(int\); a string"),
        ("model.decoder.filename", "../model.onnx", "relative path inside the model folder"),
        ("model.decoder.filename", "a/../../model.onnx", "relative path inside the model folder"),
        ("model.decoder.filename", "/etc/passwd", "relative path inside the model folder"),
        ("model.decoder.filename", "C:\\model.onnx", "relative path inside the model folder"),
        ("model.decoder.filename", "\\\\server\\model.onnx", "relative path inside the model folder"),
        ("model.decoder.filename", "mod\0el", "string without NUL"),
        ("model.decoder.session_options.intra_op_num_threads", "2", "intra_op_num_threads is '2'"),
        ("model.decoder.session_options.enable_mem_pattern", 1, "enable_mem_pattern is 1 .* true or false"),
        ("model.decoder.session_options.graph_optimization_level", "ALL", "one of ORT_DISABLE_ALL, "),
        ("model.decoder.session_options.some.entry", True, r"session_options.some.* is an object; a string"),
        ("model.decoder.session_options.provider_options", {}, "provider_options is an object; an array"),
        ("model.decoder.session_options.provider_options", [{"cuda": {"a": 1}}], r"provider_options\[0\].cuda.a is 1"),
        ("model.decoder.session_options.provider_options", ["cuda"], r"provider_options\[0\] is 'cuda'"),
        ("model.decoder.sliding_window.window_size", "x", "model.decoder.sliding_window.window_size is 'x'"),
        ("model.decoder.pipeline", [{"a": {"filename": 1}}], "model.decoder.pipeline.a.filename is 1"),
        ("model.vision.inputs.pixels", "x", "unknown key 'model.vision.inputs.pixels'"),
        ("model.eos_token_id", [1, "2"], r"model.eos_token_id\[1\] is '2'"),
        ("model.context_length", 0, "model.context_length is 0"),
        ("model.typ", "llama", "unknown key 'model.typ'; did you mean 'type'?"),
        ("search.top_p", 1.5, "search.top_p is 1.5 .* a finite number from 0 to 1"),
        ("search.top_k", True, r"search.top_k is True \(bool\)"),
        ("search.temprature", 1, "unknown key 'search.temprature'; did you mean 'temperature'?"),
        ("search", [], "search is an array; an object"),
        ("model", 5, r"model is 5 \(int\); an object"),
        ("engine.dynamic_batching.block_size", 0, "engine.dynamic_batching.block_size is 0"),
        ("speculative.max_draft_tokens", 17, "speculative.max_draft_tokens is 17 .* from 1 to 16"),
        ("modell", {}, "unknown key 'modell'; did you mean 'model'?"),
        ("max_length", 5, "'max_length' stands at the top level, where it has no effect; put it under 'search'"),
        ("vocab_size", 5, "put it under 'model'"),
    ],
)
def test_errors_name_the_key(path: str, value: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=words):
        Config(write_folder(tmp_path, changed(path, value)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "the top level is an array; one JSON object"),
        ('{"model": {"context_length": NaN}}', "contains NaN"),
        ('{"model": {"context_length": 1e999}}', "context_length is inf"),
        ('{"model": ' + "[" * 40 + "]" * 40 + "}", "nested more than 32 levels deep"),
        ('{"model": ' + "[" * 200_000, "nested more than 32 levels deep|not valid JSON"),
        ('{"model": {"vocab_size": ' + "9" * 5000 + "}}", "not valid JSON|vocab_size"),
        ('{"model": {}}', "model.context_length is null; an integer of at least 1"),
    ],
)
def test_files_that_are_no_config(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=words):
        Config(write_folder(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ModelFolderError, match=r"nowhere' does not exist; a model folder.* is needed. Correct the path"
    ):
        Config(tmp_path / "nowhere")
    (tmp_path / "folder" / "genai_config.json").mkdir(parents=True)
    with pytest.raises(ModelFolderError, match=r"genai_config.json: cannot be read \(Is a directory"):
        Config(tmp_path / "folder")
    (tmp_path / "genai_config.json").write_bytes(b'{"model": "\xff"}')
    with pytest.raises(ModelFolderError, match="not UTF-8 text at byte 11"):
        Config(tmp_path)
    monkeypatch.setattr("genai_lab.config.config.MAX_CONFIG_BYTES", 10)
    with pytest.raises(ModelFolderError, match="larger than 10 bytes"):
        Config(tmp_path)
    with pytest.raises(ArgumentTypeError, match=r"path is 5 \(int\)"):
        Config(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "files", "words"),
    [
        ("smollm2", (), r"'smollm2' does not exist; .* genai_lab\.load\('smollm2'\)"),
        ("x/smollm2", (), r"'x/smollm2' does not exist; .* Correct the path\.$"),
        ("a" * 5000, (), r"'a{200}\.\.\.' does not exist"),
        ("x.gguf", (), r"'x\.gguf' does not exist, and would be a checkpoint; .*builder -i x\.gguf -o x -p int4"),
        ("x.gguf", ("x.gguf",), r"'x\.gguf' is a checkpoint; .*builder -i x\.gguf -o x -p int4"),
        ("m/model.onnx", ("m/model.onnx", "m/genai_config.json"), r"is a file; .* Give the folder: 'm'$"),
        ("notes.txt", ("notes.txt",), r"'notes.txt' is a file; .* Give the folder\.$"),
        ("m", ("m/inner/genai_config.json",), r"'m' holds no genai_config.json; .* inside it: 'm/inner'"),
        ("m", ("m/w.gguf",), r"It holds the checkpoint w\.gguf\. .*builder -i m/w\.gguf"),
        ("m", ("m/model.safetensors", "m/config.json"), r"looks like a Hugging Face checkpoint"),
        ("m", ("m/notes.txt",), r"or make one: python -m genai_lab\.builder"),
    ],
)
def test_what_is_no_model_folder_is_said_with_the_way_to_one(
    path: str, files: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("")
    with pytest.raises(ModelFolderError, match=words):
        Config(path)


@pytest.mark.parametrize("value", [None, 5, 1.5, True, b"folder", [], {}, object()])
def test_only_paths_are_paths(value: object) -> None:
    with pytest.raises(ArgumentTypeError, match=r"path is .*the path of a model folder is allowed"):
        Config(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["", "a\0b"])
def test_some_strings_are_no_paths(value: str) -> None:
    with pytest.raises(ArgumentError, match=r"path (is empty|has a NUL character); the path of a model folder"):
        Config(value)


@pytest.mark.parametrize("value", [None, 1.5, True, b"cpu", [], object()])
def test_settings_of_a_provider_are_checked_even_where_they_do_nothing(config: Config, value: object) -> None:
    for name in ("device_type", "device_id", "vendor_id"):
        with pytest.raises(ArgumentTypeError):
            getattr(config, f"set_decoder_provider_options_hardware_{name}")("nonsense", value)
        for change in ("set", "clear"):
            with pytest.raises(ArgumentTypeError, match="provider is"):
                arguments = (value, "cpu")[: 2 if change == "set" else 1]
                getattr(config, f"{change}_decoder_provider_options_hardware_{name}")(*arguments)
    with pytest.raises(ArgumentTypeError, match="filename is"):
        config.remove_model_data(value)  # type: ignore[arg-type]


# ---- changes


def test_an_overlay_is_laid_over_the_folder(config: Config) -> None:
    config.overlay(
        '{"search": {"top_k": 3}, "model": {"eos_token_id": 9, "decoder": {"session_options": {"log_id": "x"}}}}'
    )
    assert (config.search_options().top_k, config.search_options().temperature) == (3, 0.7)
    assert config.model.eos_token_ids == (9,)
    assert config.model.decoder.session_options.log_id == "x"
    assert config.model.decoder.session_options.intra_op_num_threads == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "x", '{"model": {"nope": 1}}', '{"search": {"top_p": 5}, "model": {"type": "x"}}']
)
def test_a_wrong_overlay_changes_nothing(text: str, config: Config) -> None:
    before = (config.model, config.search_options())
    with pytest.raises(ModelFolderError, match="overlay"):
        config.overlay(text)
    assert (config.model, config.search_options()) == before


def test_an_overlay_may_ask_for_providers(config: Config) -> None:
    options = {"provider_options": [{"cuda": {"a": "1"}}]}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    assert config.providers == ("cuda",)
    config.clear_providers()
    config.overlay('{"search": {"top_k": 3}}')
    assert not config.providers


def test_providers(config: Config) -> None:
    config.append_provider("CUDAExecutionProvider")
    config.append_provider("cpu")
    config.append_provider("CPU")
    assert config.providers == ("cuda", "CPU")
    config.set_provider_option("cuda", "a", "1")
    config.set_provider_option("CUDA", "b", "2")
    config.set_provider_option("cuda", "a", "3")
    config.set_provider_option("dml", "", "")
    (cuda, dml) = config.model.decoder.session_options.provider_options
    assert (cuda.name, dict(cuda.options)) == ("cuda", {"a": "3", "b": "2"})
    assert (dml.name, dict(dml.options)) == ("DML", {})
    config.clear_providers()
    assert not config.providers


def test_providers_of_a_folder(tmp_path: Path) -> None:
    options = [{"cuda": {"a": "1", "device_filtering_options": {"hardware_device_type": "GPU"}}}, {"CPU": {}}]
    config = Config(write_folder(tmp_path, changed("model.decoder.session_options.provider_options", options)))
    assert config.providers == ("cuda", "CPU")
    config.set_decoder_provider_options_hardware_device_id("cuda", 3)
    config.set_decoder_provider_options_hardware_vendor_id("nonsense", 3)
    device = config.model.decoder.session_options.provider_options[0].device_filter
    assert (device.hardware_device_type, device.hardware_device_id, device.hardware_vendor_id) == ("gpu", 3, None)
    with pytest.raises(ModelFolderError, match=r"hardware_device_type is 'tpu' .* one of cpu, gpu, npu"):
        config.set_decoder_provider_options_hardware_device_type("cuda", "tpu")
    config.clear_decoder_provider_options_hardware_device_type("CUDA")
    config.clear_decoder_provider_options_hardware_device_id("cuda")
    config.clear_decoder_provider_options_hardware_vendor_id("nonsense")
    assert config.model.decoder.session_options.provider_options[0].device_filter == DeviceFilter()


def test_providers_that_are_not_there() -> None:
    check_providers([], ["CPUExecutionProvider"])
    check_providers(["cpu", "CPUExecutionProvider"], ["AzureExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(ModelFolderError, match=r"'cuda' is asked for, but genai_lab runs on CPU .*clear_providers\(\)"):
        check_providers(["cuda"], ["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert normalize_provider("QNNExecutionProvider") == "QNN"
    assert normalize_provider("Other") == "Other"


def test_model_data(config: Config) -> None:
    data = b"abc"
    config.add_model_data("model.onnx", data)
    config.add_model_data("model.onnx.data", memoryview(bytearray(b"xyz")))
    assert config.model_data["model.onnx"] is data
    assert dict(config.model_data) == {"model.onnx": b"abc", "model.onnx.data": b"xyz"}
    with pytest.raises(ArgumentError, match=r"'model.onnx' was added before; call remove_model_data"):
        config.add_model_data("model.onnx", b"x")
    config.remove_model_data("model.onnx")
    with pytest.raises(ArgumentError, match=r"'model.onnx' was not added; 'model.onnx.data' was"):
        config.remove_model_data("model.onnx")
    with pytest.raises(ArgumentError, match="data is empty"):
        config.add_model_data("a", b"")
    with pytest.raises(ArgumentTypeError, match="data is str"):
        config.add_model_data("a", "text")  # type: ignore[arg-type]
