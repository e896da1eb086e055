"""How a browser is found and, where that may be, installed."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import pytest

from tools import chromium

PLAYWRIGHT = [sys.executable, "-m", "playwright", "install", "chromium"]


def test_a_named_browser_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "browser"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("GENAI_LAB_CHROMIUM", str(mine))
    assert chromium.find_chromium() == str(mine)


def test_a_named_browser_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_LAB_CHROMIUM", str(tmp_path / "gone"))
    with pytest.raises(SystemExit, match=r"gone.*no executable file"):
        chromium.find_chromium()


def test_the_first_name_on_the_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("google-chrome", "chromium-browser"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.delenv("GENAI_LAB_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(chromium, "_playwright_chromium", lambda: "/nowhere")
    assert chromium.find_chromium() == str(tmp_path / "chromium-browser")


@pytest.mark.parametrize(
    ("user", "system", "first_words"),
    [
        (0, "debian", ["sh", "-c"]),
        (0, "ubuntu", [*PLAYWRIGHT, "--with-deps"]),
        (1000, "debian", PLAYWRIGHT),
    ],
)
def test_who_may_install_what(monkeypatch: pytest.MonkeyPatch, user: int, system: str, first_words: list[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": system})
    assert chromium.install_commands()[0][: len(first_words)] == first_words


def test_a_failed_installation_says_why_in_a_line_and_does_not_stop_the_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chromium, "find_chromium", lambda: None)
    failing = [sys.executable, "-c", "print('one\\nError: no route\\nError: at last'); raise SystemExit(1)"]
    monkeypatch.setattr(chromium, "install_commands", lambda: [failing])
    assert chromium.main() == 0
    said = capsys.readouterr().out
    assert "did not work: Error: no route\n" in said
    assert "There is still no Chromium" in said
