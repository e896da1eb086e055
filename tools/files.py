"""Which files belong to the project. Receives the folder, returns paths relative to it, knows nothing of contents."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = {".git", ".venv", "node_modules", "build", "dist", "__pycache__", ".cache", ".ipynb_checkpoints"}
TEXT_SUFFIXES = {
    *(".py", ".pyi", ".toml", ".md", ".txt", ".sh", ".cfg", ".yml", ".yaml", ".ipynb", ".json", ".jsonl", ".csv"),
    *(".ts", ".js", ".mjs", ".css", ".html", ".svg", ".importlinter", ""),
}


def project_files(root: Path = ROOT) -> list[Path]:
    """Every file that is, or is about to be, in the repository: tracked and new ones, without what .gitignore names."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        paths = [Path(name) for name in listed.stdout.split("\0") if name]
    else:  # an unpacked source archive
        found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        paths = [path for path in found if not NOT_OURS & set(path.parts)]
    return sorted(path for path in paths if (root / path).is_file())


def text_files(root: Path = ROOT) -> list[Path]:
    """The project's files that people read, by their suffix."""
    return [path for path in project_files(root) if path.suffix in TEXT_SUFFIXES or path.name.startswith(".")]
