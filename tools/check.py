"""The one gate, the same for a person and for CI: `python -m tools.check [name ...]`.

Runs every part even after one has failed, so that one run tells everything, and ends with a line for each. A part is a
command, or a function that returns its complaints.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from tools import dependencies, docs, forbidden, frontend, notebooks
from tools.files import ROOT

Part = Sequence[str] | Callable[[], list[str]]


def documents() -> list[str]:
    """Every document, and the table that is made of another library's members; both libraries are heavy to import."""
    from tools import compat

    return docs.problems() + compat.problems()


PYTHON = sys.executable
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"  # it has no `python -m`
PARTS: dict[str, Part] = {
    "format": [PYTHON, "-m", "ruff", "format", "--check", "--quiet", "."],
    "lint": [PYTHON, "-m", "ruff", "check", "--quiet", "."],
    "types": [PYTHON, "-m", "mypy"],
    "imports": [PYTHON, "-c", LINT_IMPORTS, "--no-cache"],
    "dependencies": dependencies.problems,
    "forbidden": forbidden.problems,
    "docs": documents,
    "notebooks": notebooks.problems,
    "frontend": frontend.problems,
}


def run_command(command: Sequence[str]) -> list[str]:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return [] if done.returncode == 0 else [done.stdout.strip()]


def run_part(part: Part) -> list[str]:
    return part() if callable(part) else run_command(part)


def main(names: Sequence[str]) -> int:
    if unknown := set(names) - set(PARTS):
        print(f"No such check: {', '.join(sorted(unknown))}. There are: {', '.join(PARTS)}")
        return 2
    failed = []
    for name in names or PARTS:
        start = time.perf_counter()
        complaints = run_part(PARTS[name])
        print("\n".join(complaints), end="\n" if complaints else "")
        print(f"{'FAILED' if complaints else 'ok':7}{name:13}{time.perf_counter() - start:6.1f} s", flush=True)
        failed += [name] if complaints else []
    print(f"make check: {'failed: ' + ', '.join(failed) if failed else 'all good'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
