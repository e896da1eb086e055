"""Notebooks are written twice: `name.py` (percent cells, the source that people review) and `name.ipynb` (what opens).

`python -m tools.notebooks build` writes every .ipynb from its .py; `collect` writes every .py from its .ipynb, after
editing in JupyterLab; `check` complains when the two differ. A built notebook has no outputs, and cell ids that depend
on the cell's place only, so building twice gives the same bytes. `make lab` opens copies (tools.my_notebooks).
"""

from __future__ import annotations

import sys
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

from tools.files import ROOT

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def folder(root: Path = ROOT) -> Path:
    return root / "notebooks"


def stripped(notebook: NotebookNode) -> NotebookNode:
    """The same cells with neither outputs nor anything that a run, an editor or a formatter left behind."""
    cells = []
    for number, cell in enumerate(notebook.cells):
        metadata = {"tags": cell.metadata.tags} if cell.metadata.get("tags") else {}
        make = getattr(nbformat.v4, f"new_{cell.cell_type}_cell")
        cells.append(make(cell.source.strip("\n"), id=f"cell-{number:02d}", metadata=metadata))
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def to_ipynb(source: str) -> str:
    """A py:percent source as the text of a stripped notebook."""
    return nbformat.writes(stripped(jupytext.reads(source, fmt="py:percent"))) + "\n"


def to_py(notebook: str) -> str:
    """A notebook's text, with outputs or without, as a py:percent source."""
    plain = stripped(nbformat.reads(notebook, as_version=4))
    del plain.metadata["language_info"]
    return str(jupytext.writes(plain, fmt="py:percent"))


def problems(root: Path = ROOT) -> list[str]:
    sources = {path.stem: path for path in sorted(folder(root).glob("*.py"))}
    built = {path.stem: path for path in sorted(folder(root).glob("*.ipynb"))}
    found = [
        f"notebooks/{name}.ipynb has no source {name}.py: `make notebooks`" for name in built.keys() - sources.keys()
    ]
    found += [f"notebooks/{name}.py was never built: `make notebooks`" for name in sources.keys() - built.keys()]
    for name in sorted(sources.keys() & built.keys()):
        if built[name].read_text(encoding="utf-8") != to_ipynb(sources[name].read_text(encoding="utf-8")):
            found.append(
                f"notebooks/{name}.ipynb is not what {name}.py makes (outputs left in it, or one was edited alone): "
                f"`make notebooks` keeps the .py, `python -m tools.notebooks collect` keeps the .ipynb"
            )
    return found


def build(root: Path = ROOT) -> None:
    for path in sorted(folder(root).glob("*.py")):
        path.with_suffix(".ipynb").write_text(to_ipynb(path.read_text(encoding="utf-8")), encoding="utf-8")


def collect(root: Path = ROOT) -> None:
    for path in sorted(folder(root).glob("*.ipynb")):
        path.with_suffix(".py").write_text(to_py(path.read_text(encoding="utf-8")), encoding="utf-8")
    build(root)


def main(words: list[str]) -> int:
    if words == ["build"]:
        build()
    elif words == ["collect"]:
        collect()
    elif words == ["check"]:
        print("\n".join(found := problems()), end="")
        return 1 if found else 0
    else:
        print("usage: python -m tools.notebooks build|collect|check")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
