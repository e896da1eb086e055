"""The widgets' TypeScript: lint, types, tests, and whether the committed bundle is what the source builds.

Needs Node; without it nothing is checked and nothing fails, because a user without Node runs the committed bundle.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.files import ROOT

OLDEST_NODE = 20
SCRIPTS = ("lint", "typecheck", "test")
QUIET_NPM = {"npm_config_fund": "false", "npm_config_audit": "false", "npm_config_update_notifier": "false"}


def why_not(root: Path = ROOT) -> str | None:
    """The reason why the front end cannot be checked here, or None when it can."""
    if not (root / "widgets" / "package.json").exists():
        return "there is no widgets/package.json"
    if not (shutil.which("node") and shutil.which("npm")):
        return "Node is not installed (only needed to change the widgets)"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        return f"Node {version} is older than {OLDEST_NODE}"
    return None


def npm(*words: str, root: Path = ROOT) -> str | None:
    """Runs npm in widgets/; what it said when it failed, or None."""
    done = subprocess.run(
        ["npm", *words],
        cwd=root / "widgets",
        env={**os.environ, **QUIET_NPM},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return None if done.returncode == 0 else f"npm {' '.join(words)}:\n{done.stdout.strip()}"


def install(root: Path = ROOT) -> str | None:
    """Brings widgets/node_modules up to date with package.json and the lock file; None when it is."""
    folder = root / "widgets"
    lock = folder / "package-lock.json"
    wanted = hashlib.sha256()
    for path in (folder / "package.json", lock):
        wanted.update(path.read_bytes() if path.exists() else b"-")
    stamp = folder / "node_modules" / ".ready"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted.hexdigest():
        return None
    failed = npm("ci", root=root) if lock.exists() else npm("install", "--no-package-lock", root=root)
    if failed is None:
        stamp.write_text(wanted.hexdigest(), encoding="utf-8")
    return failed


def bundle(root: Path = ROOT) -> dict[str, bytes]:
    static = root / "genai_lab" / "widgets" / "static"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in static.rglob("*") if path.is_file()}


def drift(root: Path = ROOT) -> list[str]:
    """Builds the bundle in place; one complaint for each file that was not what the source makes."""
    before = bundle(root)
    if failed := npm("run", "--silent", "build", root=root):
        return [failed]
    after = bundle(root)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [f"{name} was not what widgets/src builds; it is now: commit it" for name in changed]


def problems(root: Path = ROOT) -> list[str]:
    if reason := why_not(root):
        print(f"widgets' source not checked: {reason}")
        return []
    if failed := install(root):
        return [failed]
    found = [failed for script in SCRIPTS if (failed := npm("run", "--silent", script, root=root))]
    return found + drift(root)


def main() -> int:
    """Builds the bundle: `python -m tools.frontend`."""
    if reason := why_not():
        print(f"The bundle cannot be built: {reason}")
        return 1
    if failed := install() or npm("run", "--silent", "build"):
        print(failed)
        return 1
    print("\n".join(f"{len(content):8} bytes  {name}" for name, content in sorted(bundle().items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
