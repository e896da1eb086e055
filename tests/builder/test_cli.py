"""The command line: og's flags, wrong ones as clear errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from genai_lab.builder.cli import main, parse_extra_options
from genai_lab.builder.options import BuildOptions, Precision, parse_options
from genai_lab.errors import ArgumentError
from tests.builder.run import Runner
from tests.tiny import write_tiny_gguf


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(write_tiny_gguf(tmp_path / "tiny.gguf", weight_type="Q4_1"))


def test_it_builds_as_a_module(tmp_path: Path, checkpoint: str) -> None:
    flags = ["-i", checkpoint, "-o", str(tmp_path / "out"), "-p", "int4", "-e", "cpu", "-c", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "genai_lab.builder", *flags, "--extra_options", "prune_lm_head=false"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path / 'out'}: built in")
    assert Runner(tmp_path / "out").session.get_outputs()[0].shape[1] == "sequence_length"
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("precision", list(Precision))
def test_long_flags(tmp_path: Path, checkpoint: str, precision: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["--input", checkpoint, "--output", out, "--precision", precision, "--execution_provider", "cpu"]) == 0
    assert "built in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-i", "nowhere.gguf"], "nowhere.gguf: no such file"),
        (["-m", "org/model"], "-m org/model: models are not fetched by name"),
        (["-i", "CHECKPOINT", "--extra_options", "prune_lm_head"], "'prune_lm_head': KEY=VALUE is needed"),
        (
            ["-i", "CHECKPOINT", "--extra_options", "speed=11"],
            "unknown speed; allowed are prune_lm_head, accuracy_level",
        ),
        (["-i", "CHECKPOINT", "--extra_options", "prune_lm_head=maybe"], "prune_lm_head='maybe': allowed are true and"),
        (["-i", "CHECKPOINT", "--extra_options", "accuracy_level=2"], "accuracy_level='2': allowed are 4"),
        (["-i", "CHECKPOINT", "--extra_options", "filename=../x.onnx"], "filename='../x.onnx': a plain name"),
        (["-i", "CHECKPOINT", "--extra_options", "filename=a.onnx", "filename=b.onnx"], "filename is given twice"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, checkpoint: str, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [checkpoint if flag == "CHECKPOINT" else flag for flag in flags]
    assert main([*flags, "-o", str(tmp_path / "out"), "-p", "int4"]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-o", "out", "-p", "int4"], "one of the arguments -i/--input -m/--model_name is required"),
        (["-i", "x.gguf", "-p", "int4"], "required: -o/--output"),
        (["-i", "x.gguf", "-o", "out"], "required: -p/--precision"),
        (["-i", "x.gguf", "-o", "out", "-p", "fp16"], "invalid choice: 'fp16'"),
        (["-i", "x.gguf", "-o", "out", "-p", "int4", "-e", "cuda"], "invalid choice: 'cuda'"),
    ],
)
def test_wrong_usage_is_an_exit(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(flags)
    assert words in capsys.readouterr().err


def test_help_lists_the_extra_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("prune_lm_head", "accuracy_level", "filename"))


def test_options_have_these_defaults() -> None:
    assert parse_options() == BuildOptions(Precision.INT4, True, 4, "model.onnx")


def test_options_take_python_values() -> None:
    options = parse_options("int4", "cpu", {"prune_lm_head": False, "accuracy_level": 1, "filename": "decoder.onnx"})
    assert options == BuildOptions(Precision.INT4, False, 1, "decoder.onnx")


@pytest.mark.parametrize(
    ("precision", "provider", "extra", "words"),
    [
        ("int3", "cpu", {}, "precision='int3': allowed are fp32, int8, int4"),
        ("int4", "cuda", {}, "execution_provider='cuda': allowed is cpu"),
        ("int8", "cpu", {"accuracy_level": 1}, "accuracy_level=1 goes with precision int4 only, not int8"),
        ("int4", "cpu", {"filename": "weights.bin"}, "a plain name that ends in .onnx"),
    ],
)
def test_wrong_options_name_what_is_allowed(
    precision: str, provider: str, extra: dict[str, object], words: str
) -> None:
    with pytest.raises(ArgumentError, match=words):
        parse_options(precision, provider, extra)  # type: ignore[arg-type]


def test_values_may_hold_equals_signs() -> None:
    assert parse_extra_options(["a=b=c"]) == {"a": "b=c"}
