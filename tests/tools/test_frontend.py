"""The front end's part of the gate, with stand-ins for Node and npm: absent, old, failing; and a drifted bundle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import frontend

NPM = """#!/bin/sh
echo "$*" >> "$NPM_LOG"
case "$*" in
  ci*|install*) mkdir -p node_modules ;;
  *build) printf built > ../genai_lab/widgets/static/lab.js ;;
  *"$FAILS"*) echo "it failed"; exit 1 ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    static = tmp_path / "genai_lab" / "widgets" / "static"
    static.mkdir(parents=True)
    (static / "lab.js").write_text("built")
    (tmp_path / "widgets").mkdir()
    (tmp_path / "widgets" / "package.json").write_text("{}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("NPM_LOG", str(tmp_path / "npm.log"))
    monkeypatch.setenv("FAILS", "nothing")
    stand_in(tmp_path, "node", "#!/bin/sh\necho v22.1.0\n")
    stand_in(tmp_path, "npm", NPM)
    return tmp_path


def stand_in(project: Path, name: str, script: str) -> None:
    path = project / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)


def test_in_order_and_installed_once(project: Path) -> None:
    assert frontend.problems(project) == []
    assert frontend.problems(project) == []
    asked = (project / "npm.log").read_text().splitlines()
    assert asked.count("install --no-package-lock") == 1
    assert asked.count("run --silent build") == 2


def test_a_changed_package_file_is_installed_again(project: Path) -> None:
    assert frontend.problems(project) == []
    (project / "widgets" / "package-lock.json").write_text("{}")
    assert frontend.problems(project) == []
    assert "ci" in (project / "npm.log").read_text().splitlines()


def test_a_bundle_that_is_not_what_the_source_builds_is_named(project: Path) -> None:
    (project / "genai_lab/widgets/static/lab.js").write_text("old")
    (found,) = frontend.problems(project)
    assert found.startswith("genai_lab/widgets/static/lab.js was not what widgets/src builds")
    assert frontend.problems(project) == []


@pytest.mark.parametrize("script", frontend.SCRIPTS)
def test_a_failing_script_is_told(project: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setenv("FAILS", f"run --silent {script}")
    assert frontend.problems(project) == [f"npm run --silent {script}:\nit failed"]


def test_an_old_node_is_no_failure(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(project, "node", "#!/bin/sh\necho v12.22.9\n")
    assert frontend.problems(project) == []
    assert "Node v12.22.9 is older than 20" in capsys.readouterr().out
    assert not (project / "npm.log").exists()


def test_no_node_is_no_failure(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(project / "nothing-here"))
    assert frontend.problems(project) == []
    assert "Node is not installed" in capsys.readouterr().out
