"""The command line: og's flags, wrong ones as clear errors."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from genai_lab.builder import build_model
from genai_lab.builder.cli import main, parse_extra_options
from genai_lab.builder.options import BuildOptions, Precision, parse_options
from genai_lab.errors import ArgumentError, ArgumentTypeError
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
    ("source", "target", "words"),
    [
        ("nowhere.gguf", "new/out", "nowhere.gguf: no such file. Give the path"),
        (".", "new/out", "a folder. Give the path of a .gguf file, such as tiny.gguf"),
        ("tiny.gguf", "tiny.gguf/out", "tiny.gguf' is a file, not a folder. Give another place"),
        ("tiny.gguf", "new/" + "x" * 300, "error: -o 'new/xxx"),
        ("cut.gguf", "new/out", "cut or broken: fetch it again"),
    ],
)
def test_what_cannot_be_done_is_said_and_leaves_nothing(
    tmp_path: Path,
    checkpoint: str,
    source: str,
    target: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cut.gguf").write_bytes(Path(checkpoint).read_bytes()[:3000])
    before = sorted(tmp_path.rglob("*"))
    Path("cut.gguf").touch()
    assert main(["-i", source, "-o", target, "-p", "int4"]) == 1
    assert words in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("error", [PermissionError(13, "no"), OSError(28, "full"), OSError(5, "Input/output error")])
@pytest.mark.parametrize("where", ["tempfile.mkdtemp", "genai_lab.builder.build.write_tokenizer", "os.rename"])
def test_a_place_that_cannot_be_written_keeps_what_was_there(
    tmp_path: Path,
    checkpoint: str,
    where: str,
    error: OSError,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = tmp_path / "old"
    assert main(["-i", checkpoint, "-o", str(old), "-p", "int4"]) == 0
    before = {path: path.read_bytes() for path in old.iterdir()}

    def fails(*_arguments: object, **_more: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(where, fails)
        for place in (old, tmp_path / "new" / "out"):
            assert main(["-i", checkpoint, "-o", str(place), "-p", "int4"]) == 1
            words = capsys.readouterr().err
            assert f"error: -o {str(place)!r} cannot be written: " in words
            assert words.count("\n") == 1
    assert {path: path.read_bytes() for path in old.iterdir()} == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["old", "tiny.gguf"]


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_the_folder_one_is_in_is_not_replaced(
    tmp_path: Path, checkpoint: str, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["-i", checkpoint, "-o", place, "-p", "int4"]) == 2
    assert f"error: -o {place!r} is the folder you are in" in capsys.readouterr().err


SLOW = """
import sys, types
slow = types.ModuleType("genai_lab.builder.build")
def build_model(*_):
    print("building", flush=True)
    sys.stdin.read()
slow.build_model = build_model
sys.modules["genai_lab.builder.build"] = slow
sys.argv = ["builder", "-i", "x.gguf", "-o", "out", "-p", "int4"]
import genai_lab.builder.__main__
"""


def test_ctrl_c_in_a_terminal_ends_without_a_traceback() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SLOW], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        process.send_signal(signal.SIGINT)
        _, wrong = process.communicate()
    assert (process.returncode, wrong) == (130, "\ninterrupted: nothing was written\n")


def test_an_interrupt_leaves_nothing(
    tmp_path: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("genai_lab.builder.build.write_tokenizer", interrupted)
    assert main(["-i", checkpoint, "-o", str(tmp_path / "new" / "out"), "-p", "int4"]) == 130
    assert capsys.readouterr().err == "\ninterrupted: nothing was written\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ((None, "out"), ArgumentTypeError, "input_path is None"),
        ((b"x.gguf", "out"), ArgumentTypeError, r"input_path is b'x.gguf' \(bytes\); the path of a .gguf file"),
        (("", "out"), ArgumentError, "input_path is empty"),
        (("x.gguf", 5), ArgumentTypeError, r"output_dir is 5 \(int\); the path of the folder to make"),
        (("x.gguf", "a\0b"), ArgumentError, "output_dir has a NUL character"),
        (("x.gguf", "out", None), ArgumentError, "precision=None: allowed are fp32"),
        (("x.gguf", "out", ["int4"]), ArgumentError, r"precision=\['int4'\]: allowed are fp32"),
        (("x.gguf", "out", "int4", None), ArgumentError, "execution_provider=None: allowed is cpu"),
        (("x.gguf", "out", "int4", "cpu", "prune"), ArgumentTypeError, r"extra_options is 'prune' \(str\); a dict"),
        (("x.gguf", "out", "int4", "cpu", {5: 1}), ArgumentError, "extra_options: unknown 5"),
        (("x.gguf", "out", "int4", "cpu", {"filename": "a\0.onnx"}), ArgumentError, "a plain name"),
    ],
)
def test_wrong_arguments_from_python(arguments: tuple[object, ...], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        build_model(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-o", "out", "-p", "int4"], "one of the arguments -i/--input -m/--model_name is required"),
        (["-i", "x.gguf", "-p", "int4"], "required: -o/--output"),
        (["-i", "x.gguf", "-o", "out"], "required: -p/--precision"),
        (["-i", "x.gguf", "-o", "out", "-p", "fp16"], "invalid choice: 'fp16' (choose from 'fp32', 'int8', 'int4')"),
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
