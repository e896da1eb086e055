"""Holds the imports of genai_lab against pyproject.toml: what is imported is declared, what is declared is imported.

A package that happens to be in a developer's environment would otherwise be missed by a user alone.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from tools.files import ROOT

# declared for what it does, not for being imported
NOT_IMPORTED = {"jupyterlab"}


def imported_modules(source: str) -> Iterator[str]:
    """Top-level names of the absolute imports in a file, those inside functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(root: Path) -> tuple[set[str], set[str]]:
    """Names of the dependencies, and of those of the extras that users install."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: deps for name, deps in project["optional-dependencies"].items() if name != "dev"}
    names = [re.split(r"[<>=!~ ;\[]", text)[0] for text in project["dependencies"]]
    optional = [re.split(r"[<>=!~ ;\[]", text)[0] for deps in extras.values() for text in deps]
    return {normal(name) for name in names}, {normal(name) for name in optional}


def problems(root: Path = ROOT) -> list[str]:
    required, optional = declared(root)
    distributions = packages_distributions()
    used: dict[str, Path] = {}
    found = []
    for path in sorted((root / "genai_lab").rglob("*.py")):
        for module in set(imported_modules(path.read_text(encoding="utf-8"))):
            if module in sys.stdlib_module_names or module == "genai_lab":
                continue
            names = {normal(name) for name in distributions.get(module, [module])}
            used |= dict.fromkeys(names, path)
            if not names & (required | optional):
                found.append(f"{path.relative_to(root)}: imports {module}, which pyproject.toml does not declare")
    unused = sorted(required - set(used) - NOT_IMPORTED)
    return found + [f"pyproject.toml: {name} is declared and nothing in genai_lab imports it" for name in unused]
