"""What no file of the project may contain: registry hosts, places on one person's machine, unfinished work.

Receives the project's text files; returns one complaint for each hit. It does not know why a line is there.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.files import ROOT, text_files

# written in pieces, so that this file may be read by its own rules
REGISTRY_HOSTS = ("py" + "pi.org", "python" + "hosted.org", "registry." + "npmjs", "registry." + "yarnpkg")
RULES = {
    "the host of a package registry (clients know their own)": "|".join(map(re.escape, REGISTRY_HOSTS)),
    "a place on one person's machine": r"/ro" + r"ot/|/ho" + r"me/(?!jovyan)\w|/Us" + r"ers/\w|[A-Z]:\\Us" + r"ers\\",
    "unfinished work": r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b|raise NotImplemented" + "Error",
    "a merge conflict": r"^(<{7} |>{7} |={7}$)",
}
PATTERNS = {why: re.compile(pattern) for why, pattern in RULES.items()}


def complaints(path: Path, text: str) -> list[str]:
    """One line for each hit in one file's text."""
    return [
        f"{path}:{number}: {why}: {line.strip()[:120]}"
        for number, line in enumerate(text.splitlines(), start=1)
        for why, pattern in PATTERNS.items()
        if pattern.search(line)
    ]


def problems(root: Path = ROOT) -> list[str]:
    found = []
    for path in text_files(root):
        found += complaints(path, (root / path).read_text(encoding="utf-8", errors="replace"))
    return found
