"""The environment's maker, with stand-in interpreters: what it says when there is no fitting Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.files import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the Makefile needs a POSIX shell")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with spaces in its name that has what the script reads."""
    folder = tmp_path / "a clone"
    for name in ("tools/setup_env.sh", "pyproject.toml", "genai_lab/_version.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def stand_in(folder: Path, script: str) -> str:
    """An executable that answers like some Python would."""
    path = folder / "python of old"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    link = folder / "oldpython"
    link.symlink_to(path)
    return str(link.name)


def setup(clone: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{clone}:/usr/bin:/bin", **variables}
    command = ["sh", "tools/setup_env.sh", "lab"]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)


def test_too_old_a_python_is_named_with_what_is_needed(clone: Path) -> None:
    old = stand_in(clone, 'case "$1" in --version) echo Python 3.8.10;; *) exit 1;; esac')
    told = setup(clone, PYTHON=old)
    assert told.returncode == 1
    assert "genai_lab needs Python 3.11 or newer" in told.stderr
    assert "Python 3.8.10" in told.stderr
    assert "make ... PYTHON=" in told.stderr


def test_no_python_at_all(clone: Path) -> None:
    told = setup(clone, PYTHON="python-of-nobody")
    assert told.returncode == 1
    assert "Looked for: python-of-nobody. Found: nothing" in told.stderr


def test_a_folder_of_somebody_else_is_left_alone(clone: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv" / "diary.txt").write_text("mine")
    told = setup(clone)
    assert told.returncode == 1
    assert ".venv exists and is no Python environment" in told.stderr
    assert (clone / ".venv" / "diary.txt").read_text() == "mine"


def test_an_environment_that_is_ready_is_not_touched(clone: Path) -> None:
    """With an environment whose pip always fails: ready says nothing, a changed pyproject.toml installs again."""
    binary = clone / ".venv" / "bin"
    binary.mkdir(parents=True)
    (clone / ".venv" / "pyvenv.cfg").touch()
    (binary / "python").write_text(f'#!/bin/sh\n[ "$1" = -m ] && exit 9\nexec "{sys.executable}" "$@"\n')
    (binary / "python").chmod(0o755)
    told = setup(clone)
    assert told.returncode == 1
    assert "the packages could not be installed" in told.stderr
    (binary / "python").write_text(f'#!/bin/sh\n[ "$1" = -m ] && exit 0\nexec "{sys.executable}" "$@"\n')
    assert "Setting up .venv" in setup(clone).stdout
    assert setup(clone).stdout == ""
    with (clone / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert "Setting up .venv" in setup(clone).stdout
