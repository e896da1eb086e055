"""The notebooks that `make lab` opens: copies in my_notebooks/, which git ignores.

There JupyterLab may save outputs and a person may change what they like; notebooks/ stays what is reviewed and checked.
`python -m tools.my_notebooks` copies what is new. A copy that a person changed stays.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.files import ROOT

FOLDER = "my_notebooks"


def copy(root: Path = ROOT) -> list[str]:
    """Copy every notebook that was not copied yet, or whose copy nobody changed. Says which others are outdated."""
    mine = root / FOLDER
    mine.mkdir(exist_ok=True)
    outdated = []
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        fresh = nbformat.read(path, as_version=4)
        fresh.metadata["genai_lab"] = {"copied": content(fresh)}
        target = mine / path.name
        old = nbformat.read(target, as_version=4) if target.exists() else None
        copied = None if old is None else old.metadata.get("genai_lab", {}).get("copied")
        if old is None or copied == content(old) != content(fresh):
            nbformat.write(fresh, target)
        elif copied != content(fresh):
            outdated.append(
                f"{FOLDER}/{path.name} is as you changed it; notebooks/{path.name} is newer. For a new copy, rename "
                "or delete yours and call `make lab` again."
            )
    return outdated


def content(notebook: NotebookNode) -> str:
    """Changes when a person changes a cell, and not when a cell is run."""
    cells = "\0".join(f"{cell.cell_type}\0{cell.source}" for cell in notebook.cells)
    return hashlib.sha256(cells.encode()).hexdigest()


if __name__ == "__main__":
    for line in copy():
        print(line, file=sys.stderr)
