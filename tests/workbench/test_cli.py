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
from genai_lab.workbench.cli import main
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
    ("arguments", "words"),
    [
        (["demo", "--model", "no-such-model"], "known models are smollm2"),
        (["model-folder", "no-such-model"], "known models are smollm2"),
        (["demo", "--out", "no/such/folder/trace.html"], "--out 'no/such/folder/trace.html' cannot be written"),
    ],
)
def test_what_cannot_be_done_is_said_on_stderr(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [("--temperature", "-1"), ("--max-new-tokens", "0")])
def test_a_bad_option_is_said_on_stderr(
    option: tuple[str, str], tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo(tiny_folder, tmp_path / "trace.html", *option) == 2
    assert option[0].strip("-").replace("-", "_") in capsys.readouterr().err


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
from genai_lab.workbench.cli import main
from genai_lab.workbench.live import Live
def wrote(live):
    print("writing", flush=True)
    live._jobs[0]._stopping.wait()  # as a slow model would
Live.wrote = wrote
sys.exit(main(["demo", "--model", sys.argv[1], "--out", sys.argv[2]]))
"""


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
