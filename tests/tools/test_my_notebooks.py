"""Copies of notebooks for a person: made once, renewed while nobody changed them, then left alone."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat

from tools.files import ROOT
from tools.my_notebooks import copy


def write(path: Path, *cells: str) -> None:
    path.parent.mkdir(exist_ok=True)
    made = [nbformat.v4.new_code_cell(source, id=f"c{number}") for number, source in enumerate(cells)]
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)


def sources(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def test_a_copy_is_made_run_renewed_changed_and_kept(tmp_path: Path) -> None:
    shipped, mine = tmp_path / "notebooks" / "a.ipynb", tmp_path / "my_notebooks" / "a.ipynb"
    write(shipped, "1 + 1")
    assert copy(tmp_path) == [] and sources(mine) == ["1 + 1"]

    ran = nbformat.read(mine, as_version=4)
    ran.cells[0].outputs = [nbformat.v4.new_output("stream", text="2")]
    nbformat.write(ran, mine)
    assert copy(tmp_path) == [] and nbformat.read(mine, as_version=4).cells[0].outputs  # nothing new: outputs stay

    write(shipped, "1 + 1", "2 + 2")
    assert copy(tmp_path) == [] and sources(mine) == ["1 + 1", "2 + 2"]

    changed = nbformat.read(mine, as_version=4)
    changed.cells[0].source = "my own"
    nbformat.write(changed, mine)
    assert copy(tmp_path) == []  # still the newest
    write(shipped, "3 + 3")
    assert len(copy(tmp_path)) == 1 and sources(mine) == ["my own", "2 + 2"]


def test_a_notebook_of_the_same_name_that_was_no_copy_stays(tmp_path: Path) -> None:
    write(tmp_path / "notebooks" / "a.ipynb", "1")
    write(tmp_path / "my_notebooks" / "a.ipynb", "mine")
    assert len(copy(tmp_path)) == 1 and sources(tmp_path / "my_notebooks" / "a.ipynb") == ["mine"]


def test_the_settings_of_make_lab_are_what_jupyterlab_reads() -> None:
    settings = json.loads((ROOT / "tools" / "lab_settings" / "overrides.json").read_text(encoding="utf-8"))
    assert settings["@jupyter-widgets/jupyterlab-manager:plugin"] == {"saveState": True}
    assert "app_settings_dir=$(CURDIR)/tools/lab_settings" in (ROOT / "Makefile").read_text(encoding="utf-8")
