"""The running log of a generation, and what the installation says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError, OutputError
from genai_lab.generation.log import LOG


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Every line while the test runs; everything is off afterwards."""
    found: list[str] = []
    og.set_log_callback(found.append)
    yield found
    og.set_log_callback(None)
    og.set_log_options(**{name: name == "warning" for name in LOG.flags}, filename="")


def generate(folder: Path, **options: object) -> og.Generator:
    model = og.Model(folder)
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 5} | options)
    made = og.Generator(model, params)
    made.append_tokens(np.array([[5, 6]] * int(options.get("batch_size", 1))))  # type: ignore[call-overload]
    while not made.is_done():
        made.generate_next_token()
    return made


def test_nothing_is_written_unless_asked(tiny_folder: Path, lines: list[str]) -> None:
    og.set_log_options(generate_next_token=True)  # but not enabled
    generate(tiny_folder)
    assert lines == []


def test_what_was_asked_for_is_written(tiny_folder: Path, lines: list[str]) -> None:
    og.set_log_options(enabled=True, append_next_tokens=True, generate_next_token=True, hit_max_length=True)
    made = generate(tiny_folder)
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["append_next_tokens", *["generate_next_token", "append_next_tokens"] * 3, "hit_max_length"]
    written = [line.split()[1:] for line in lines if line.split()[0] == "append_next_tokens"]
    assert [int(token) for tokens in written for token in tokens] == made.get_sequence(0).tolist()


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"num_beams": 2}])
def test_inputs_and_outputs_of_runs_are_written(tiny_folder: Path, lines: list[str], options: dict[str, int]) -> None:
    og.set_log_options(enabled=True, model_input_values=True, model_output_shapes=True, model_logits=True)
    generate(tiny_folder, **options)
    text = "".join(lines)
    assert "logits [" in text and "present.0.key [" in text
    assert ("input_ids [1, 2] int64: 5 6" in text) is (options == {})


def test_a_file_takes_the_lines(tiny_folder: Path, tmp_path: Path, lines: list[str]) -> None:
    og.set_log_callback(None)
    og.set_log_options(enabled=True, generate_next_token=True, filename=str(tmp_path / "run.log"))
    generate(tiny_folder)
    assert (tmp_path / "run.log").read_text().count("generate_next_token") == 3
    assert lines == []


def test_whoever_was_named_last_gets_the_lines(tiny_folder: Path, tmp_path: Path, lines: list[str]) -> None:
    file = tmp_path / "run.log"
    name = str(file)
    og.set_log_options(enabled=True, generate_next_token=True, filename=name)  # in place of the callback
    generate(tiny_folder)
    assert (len(lines), file.read_text().count("\n")) == (0, 3)
    og.set_log_callback(lines.append)  # in place of the file
    og.set_log_options(enabled=True)
    generate(tiny_folder)
    assert (len(lines), file.read_text().count("\n")) == (3, 3)
    og.set_log_options(filename="")
    generate(tiny_folder)
    assert (len(lines), file.read_text().count("\n")) == (6, 3)
    og.set_log_options(filename=name)
    og.set_log_callback(None)
    generate(tiny_folder)
    assert (len(lines), file.read_text().count("\n")) == (6, 6)


def test_a_step_is_written_with_the_tokens_before_it(tiny_folder: Path, lines: list[str]) -> None:
    og.set_log_options(enabled=True, generate_next_token=True)
    generate(tiny_folder)
    assert [line.split("sequence length: ")[1] for line in lines] == ["2\n", "3\n", "4\n"]


def test_wrong_options_change_nothing(lines: list[str], tmp_path: Path) -> None:
    before = dict(LOG.flags)
    with pytest.raises(ArgumentError, match=r"no option 'loud'.*enabled"):
        og.set_log_options(enabled=True, loud=True)
    with pytest.raises(ArgumentTypeError, match="enabled is 1"):
        og.set_log_options(enabled=1)
    with pytest.raises(OutputError, match="cannot be written"):
        og.set_log_options(enabled=True, filename=str(tmp_path / "nowhere" / "run.log"))
    with pytest.raises(ArgumentTypeError, match="a function or None"):
        og.set_log_callback(5)  # type: ignore[arg-type]
    assert LOG.flags == before


def test_the_installation_tells_the_truth(tmp_path: Path) -> None:
    import onnxruntime

    providers = onnxruntime.get_available_providers()
    assert og.is_cuda_available() == ("CUDAExecutionProvider" in providers)
    assert og.is_dml_available() == ("DmlExecutionProvider" in providers)
    assert og.is_openvino_available() == ("OpenVINOExecutionProvider" in providers)
    assert og.is_qnn_available() == ("QNNExecutionProvider" in providers)
    assert og.is_webgpu_available() == ("WebGpuExecutionProvider" in providers)
    og.set_current_gpu_device_id(og.get_current_gpu_device_id())
    with pytest.raises(ArgumentError, match="CPU"):
        og.set_current_gpu_device_id(1)
    og.enable_telemetry_events()
    og.disable_telemetry_events()
    with pytest.raises(ModelFolderError, match="does not exist"):
        og.register_execution_provider_library("a", str(tmp_path / "nothing.so"))
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ModelFolderError, match="cannot load"):
        og.register_execution_provider_library("a", str(tmp_path / "text.so"))
    with pytest.raises(ArgumentError, match="no library is registered"):
        og.unregister_execution_provider_library("a")
