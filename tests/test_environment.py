"""The tests' own surroundings: the user's folders are out of reach, the default model's is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import SURROUNDINGS
from tests.environment import JUPYTER_VARIABLES, Surroundings, in_ci


def test_folders_are_the_tests_own(pytestconfig: pytest.Config) -> None:
    home = pytestconfig.stash[SURROUNDINGS].home
    assert Path.home() == home
    assert all(Path(os.environ[name]).is_relative_to(home) for name in JUPYTER_VARIABLES)
    assert not Path(os.environ["GENAI_LAB_CACHE"]).is_relative_to(home)


def test_the_users_folders_come_back_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home-of-somebody")
    monkeypatch.delenv("XDG_CACHE_HOME")
    surroundings = Surroundings(tmp_path)
    assert os.environ["HOME"] == str(tmp_path)
    with surroundings.as_user():
        assert os.environ["HOME"] == "/home-of-somebody"
        assert "XDG_CACHE_HOME" not in os.environ
    assert os.environ["HOME"] == str(tmp_path)
    surroundings.restore()
    assert os.environ["HOME"] == "/home-of-somebody"


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), ("1", True), ("", False), ("0", False), ("False", False)]
)
def test_what_is_ci(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv("CI", value)
    assert in_ci() is expected
