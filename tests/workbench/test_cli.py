"""The command line: it answers, writes the page, says what is wrong, and ends cleanly when interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import genai_lab as og
from genai_lab._version import __version__
from genai_lab.workbench.cli import PROMPT, main
from tests.workbench.live_tools import PATIENCE, Held

pytestmark = pytest.mark.usefixtures("background")


def demo(folder: Path, out: Path, *more: str) -> int:
    return main(["demo", "Hello the world", "--model", str(folder), "--out", str(out), *more])


def test_it_prints_the_answer_and_its_times_and_writes_the_page(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.html"
    assert demo(tiny_folder, out, "--max-new-tokens", "12") == 0
    words, wrong = capsys.readouterr()
    assert wrong == ""
    answer = og.ask(og.Model(tiny_folder), "Hello the world", max_new_tokens=12).wait(PATIENCE)
    assert words.startswith(og.Tokenizer(og.Model(tiny_folder)).decode(answer.tokens()["token"].to_numpy())[:3])
    assert "12 tokens (as long as it may be)" in words
    assert "first token after" in words and "tokens/s)" in words
    assert f"wrote {out}" in words
    assert "genai-lab-widgets" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "mode", "setting"),
    [
        ((), "greedy", ("top_k", 50)),
        (("--temperature", "0.7", "--seed", "3"), "sample", ("temperature", 0.7)),
        (("--top-k", "5"), "sample", ("top_k", 5)),
        (("--top-p", "0.5"), "sample", ("top_p", 0.5)),
        (("--min-p", "0.1"), "sample", ("min_p", 0.1)),
        (("--repetition-penalty", "1.3"), "greedy", ("repetition_penalty", 1.3)),
        (("--raw",), "greedy", ("top_k", 50)),
    ],
)
def test_options_reach_the_run(
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    mode: str,
    setting: tuple[str, float],
) -> None:
    traces: list[og.Trace] = []
    monkeypatch.setattr(og.Trace, "to_html", lambda trace, path, kind="all": traces.append(trace) or path)
    assert demo(tiny_folder, tmp_path / "trace.html", "--max-new-tokens", "2", *options) == 0
    run = traces[0].recording.runs[0]
    assert run.settings["mode"] == mode
    assert run.settings[setting[0]] == setting[1]
    assert (run.question == "Hello the world") is ("--raw" not in options)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["demo", "--model", "smolm2"], 2, "error: --model is 'smolm2'; a known model (smollm2"),
        (["demo", "--model", "no/such"], 1, "error: 'no/such' does not exist; a model folder"),
        (["demo", "--model", "model.gguf"], 1, "would be a checkpoint; "),
        (
            ["demo", "--out", "no/such/trace.html"],
            1,
            "--out 'no/such/trace.html' cannot be written",
        ),
        (["demo", "--out", "."], 1, "error: --out '.' cannot be written: it is a folder. Give a file name inside it"),
    ],
)
def test_what_cannot_be_done_is_said_on_stderr(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == code
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GENAI_LAB_CACHE", str(tmp_path / "file"))
    assert main(["model-folder"]) == 1
    assert "is a file, not a folder" in (words := capsys.readouterr().err)
    assert "Set GENAI_LAB_CACHE to a folder that can be written, or unset it" in words


@pytest.mark.parametrize(
    ("prompt", "code", "words"),
    [(["--raw", ""], 2, "error: PROMPT is empty"), (["x " * 400], 1, "the model's context holds 256")],
)
def test_a_prompt_that_cannot_be_answered_is_said(
    prompt: list[str], code: int, words: str, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.html"
    assert main(["demo", "--model", str(tiny_folder), "--out", str(out), *prompt]) == code
    assert words in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--temperature", "-1", "'-1': 0 or a finite number from 1e-30 to 1e+30 is needed"),
        ("--temperature", "nan", "'nan': 0 or a finite number from 1e-30 to 1e+30 is needed"),
        ("--temperature", "hot", "'hot': 0 or a finite number from 1e-30 to 1e+30 is needed"),
        ("--top-k", "1.5", "'1.5': an integer from 0 to 2147483647 is needed"),
        ("--top-p", "3", "'3': a finite number from 0 to 1 is needed"),
        ("--min-p", "", "'': a finite number from 0 to 1 is needed"),
        ("--seed", "-5", "'-5': an integer from -1 to 2147483647 is needed"),
        ("--repetition-penalty", "0", "'0': a finite number from 1e-30 to 1e+30 is needed"),
        ("--max-new-tokens", "0", "'0': an integer of at least 1 is needed"),
        ("--max-new-tokens", "1e3", "'1e3': an integer of at least 1 is needed"),
    ],
)
def test_a_bad_value_is_said_in_the_flags_that_were_typed(
    flag: str, value: str, words: str, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        demo(tiny_folder, tmp_path / "trace.html", flag, value)
    assert ended.value.code == 2
    assert f"error: argument {flag}: {words}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model-folder", "gpt-5"], "argument name: invalid choice: 'gpt-5' (choose from 'smollm2'"),
        (["model-folder", "-p", "int2"], "invalid choice: 'int2' (choose from 'fp32', 'int8', 'int4')"),
        (["demo", "caf\udce9"], "argument prompt: not UTF-8 text at character 4"),
    ],
)
def test_a_wrong_command_line_says_what_may_be_there(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("where", ["genai_lab.workbench.load.load", "genai_lab.workbench.default_model.model_folder"])
def test_an_interrupt_before_the_answer_ends_cleanly(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    command = ["demo", "--out", str(tmp_path / "trace.html")] if where.endswith("load") else ["model-folder"]
    assert main(command) == 130
    assert capsys.readouterr().err == "\ngenai-lab: interrupted\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_question_that_nobody_asked_is_answered(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    makefile = (Path(__file__).resolve().parents[2] / "Makefile").read_text(encoding="utf-8")
    assert f"PROMPT ?= {PROMPT}\n" in makefile
    out = tmp_path / "trace.html"
    assert main(["demo", "--model", str(model_folder), "--out", str(out)]) == 0
    answer, summary = capsys.readouterr().out.split("\n\n")
    assert "sea" in answer
    assert "the model ended its answer" in summary


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["model-folder", "--help"], ["--version"]])
def test_help_and_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    words = capsys.readouterr().out
    assert (f"genai-lab {__version__}" if arguments == ["--version"] else "usage: genai-lab") in words


@pytest.mark.parametrize("arguments", [[], ["sing"], ["demo", "--loud"], ["demo", "--top-k", "many"]])
def test_a_wrong_command_line_shows_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: genai-lab" in capsys.readouterr().err


def test_an_interrupt_keeps_what_there_is(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held, out = Held(monkeypatch, tokens=4), tmp_path / "trace.html"
    wait = og.Trace.wait

    def interrupted(trace: og.Trace, timeout: float | None = None) -> og.Trace:
        monkeypatch.setattr(og.Trace, "wait", wait)
        held.wait()
        trace.stop()
        held.let_go()
        raise KeyboardInterrupt

    monkeypatch.setattr(og.Trace, "wait", interrupted)
    assert demo(tiny_folder, out) == 130
    words = capsys.readouterr().out
    assert "4 tokens (stopped)" in words and f"wrote {out}" in words
    assert out.stat().st_size > 10_000


INTERRUPTED = """
import sys
from genai_lab.workbench.cli import PROMPT, main
from genai_lab.workbench.live import Live
def wrote(live):
    print("writing", flush=True)
    live._jobs[0]._stopping.wait()  # as a slow model would
Live.wrote = wrote
sys.exit(main(["demo", "--model", sys.argv[1], "--out", sys.argv[2]]))
"""


@pytest.mark.slow
def test_ctrl_c_in_a_terminal(tiny_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.html"
    command = [sys.executable, "-c", INTERRUPTED, str(tiny_folder), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        too_long = threading.Timer(PATIENCE, process.kill)
        too_long.start()
        assert process.stdout is not None and process.stderr is not None
        while "writing" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        process.send_signal(signal.SIGINT)
        words, wrong = process.communicate()
        too_long.cancel()
    assert (process.returncode, wrong) == (130, "")
    assert "1 token (stopped)" in words
    assert out.exists()
