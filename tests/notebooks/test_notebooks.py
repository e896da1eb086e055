"""Every notebook runs from its first cell to its last, as a person would run it, and shows what it promises."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tools.files import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
pytestmark = pytest.mark.notebook


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs; a cell that fails is an error."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_runs(path: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_LAB_CACHE", str(model_folder.parent))
    notebook = executed(path, tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    pictures = [output for cell in cells for output in cell.outputs if "data" in output]
    assert pictures
    errors = [output.get("text", "") for cell in cells for output in cell.outputs if output.get("name") == "stderr"]
    assert errors == []


def test_the_first_notebook_shows_live_widgets_with_a_still_picture(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENAI_LAB_CACHE", str(model_folder.parent))
    notebook = executed(ROOT / "notebooks" / "00_start.ipynb", tmp_path)
    data = [output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    widget = "application/vnd.jupyter.widget-view+json"
    live = [d for d in data if d.get(widget, {}).get("model_id")]
    still = [d["text/html"] for d in data if d.get(widget, {}).get("model_id") == ""]
    assert len(live) == len(still) == 2  # the recorded answer, and the one that streams
    assert "Why is the sky blue?" in still[0]
    assert still[0].count("<u ") == 60  # every token of the answer, tinted
    assert "lighthouse" in still[1]
    assert still[1].count("<u ") > 1  # shown before its first token, and brought up to date at its end
