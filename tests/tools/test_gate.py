"""The gate's parts on small projects made here: one that is in order, and one fault each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import check, dependencies, docs, forbidden, notebooks
from tools.files import project_files, text_files

PYPROJECT = """
[project]
name = "genai-lab"
dependencies = ["numpy>=2.0", "jupyterlab>=4.4,<5"]
[project.optional-dependencies]
parquet = ["pyarrow>=17"]
dev = ["pytest>=8"]
"""
README = """# Title
[the rooms](ARCHITECTURE.md#the-rooms) and `genai_lab/tracing/`, then `make test`.

```
genai_lab/
  __init__.py tracing/    the public names; the recorder
    # a remark
  tracing/
    ring.py               one ring
```
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": PYPROJECT,
        "Makefile": "test: env\n\tpytest\n",
        "README.md": README,
        "ARCHITECTURE.md": "# The rooms\nThere is tracing.\n",
        "genai_lab/README.md": "```\ntracing/\n  ring.py    from here\n```\n",
        "genai_lab/__init__.py": "import numpy as np\nimport json\n",
        "genai_lab/tracing/__init__.py": "from genai_lab.tracing import ring\n",
        "genai_lab/tracing/ring.py": "def write():\n    import pyarrow\n",
        "notebooks/00_start.py": "# %% [markdown]\n# # Hello\n\n# %%\n1 + 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    notebooks.build(tmp_path)
    return tmp_path


def change(project: Path, name: str, old: str, new: str) -> None:
    path = project / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("part", [dependencies.problems, docs.problems, forbidden.problems, notebooks.problems])
def test_a_project_in_order_has_no_complaints(project: Path, part: Callable[[Path], list[str]]) -> None:
    assert part(project) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("import json", "import pytest", "imports pytest, which pyproject.toml does not declare"),
        ("import json", "import yaml_of_nobody", "imports yaml_of_nobody"),
        ("import numpy as np", "", "numpy is declared and nothing in genai_lab imports it"),
    ],
)
def test_dependencies(project: Path, old: str, new: str, complaint: str) -> None:
    change(project, "genai_lab/__init__.py", old, new)
    (found,) = dependencies.problems(project)
    assert complaint in found


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("README.md", "(ARCHITECTURE.md", "(DESIGN.md", "link to DESIGN.md, which does not exist"),
        ("README.md", "#the-rooms", "#the-floors", "no such heading"),
        ("README.md", "`make test`", "`make tests`", "no such target"),
        ("README.md", "`genai_lab/tracing/`", "`genai_lab/traces/`", "`genai_lab/traces/` does not exist"),
        ("README.md", "ring.py  ", "rings.py ", "the file tree names genai_lab/tracing/rings.py"),
        ("README.md", "```\ngenai_lab/", "```python\nx = = 1\n```\n```\ngenai_lab/", "does not parse"),
        ("ARCHITECTURE.md", "tracing", "nothing", "does not mention genai_lab/tracing"),
    ],
)
def test_docs(project: Path, name: str, old: str, new: str, complaint: str) -> None:
    change(project, name, old, new)
    (found,) = docs.problems(project)
    assert complaint in found


@pytest.mark.parametrize(
    "line",
    [
        "index = 'https://" + "py" + "pi.org/simple'",
        '"resolved": "https://registry.' + 'npmjs.org/x"',
        "open('/ro" + "ot/models/x')",
        "open('/ho" + "me/somebody/x')",
        "x = 1  # TO" + "DO: more",
        "raise NotImplemented" + "Error",
        "<" * 7 + " HEAD",
    ],
)
def test_forbidden(project: Path, line: str) -> None:
    change(project, "genai_lab/__init__.py", "import json", f"import json\n{line}")
    (found,) = forbidden.problems(project)
    assert found.startswith("genai_lab/__init__.py:3: ")


def test_a_notebook_with_outputs_is_named_and_built_again(project: Path) -> None:
    change(project, "notebooks/00_start.ipynb", '"execution_count": null', '"execution_count": 7')
    (found,) = notebooks.problems(project)
    assert found.startswith("notebooks/00_start.ipynb is not what 00_start.py makes")
    notebooks.build(project)
    assert notebooks.problems(project) == []


def test_a_notebook_edited_in_jupyter_is_collected(project: Path) -> None:
    change(project, "notebooks/00_start.ipynb", '"1 + 1"', '"2 + 2"')
    notebooks.collect(project)
    assert "2 + 2" in (project / "notebooks/00_start.py").read_text(encoding="utf-8")
    assert notebooks.problems(project) == []


@pytest.mark.parametrize(
    ("gone", "complaint"), [("00_start.py", "has no source"), ("00_start.ipynb", "was never built")]
)
def test_a_notebook_has_both_files(project: Path, gone: str, complaint: str) -> None:
    (project / "notebooks" / gone).unlink()
    (found,) = notebooks.problems(project)
    assert complaint in found


def test_files_of_an_archive_and_of_a_repository(project: Path) -> None:
    (project / "node_modules").mkdir()
    (project / "node_modules" / "x.js").write_text("x")
    (project / "logo.png").write_bytes(b"\x89PNG")
    everything = project_files(project)
    assert Path("README.md") in everything
    assert Path("logo.png") in everything
    assert Path("node_modules/x.js") not in everything
    assert Path("logo.png") not in text_files(project)
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    (project / ".gitignore").write_text("node_modules/\n")
    assert project_files(project) == sorted([*everything, Path(".gitignore")])


def test_a_failing_part_is_told_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "print('spoken'); raise SystemExit(3)"]
    parts: dict[str, check.Part] = {"command": command, "function": lambda: ["a complaint"], "fine": list}
    monkeypatch.setattr(check, "PARTS", parts)
    assert check.main([]) == 1
    said = capsys.readouterr().out
    assert "spoken" in said
    assert "a complaint" in said
    assert "make check: failed: command, function" in said
    assert check.main(["fine"]) == 0
    assert check.main(["unheard-of"]) == 2
