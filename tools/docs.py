"""Holds the Markdown documents against the project: links, `make` targets, paths, file trees, Python blocks.

Receives the project's folder; returns one complaint for each thing that a document names and the project does not have.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.files import ROOT, project_files

LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
MAKE_TARGET = re.compile(r"(?:^|`|\$ )make ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)(?= |`|$)", re.MULTILINE)
PATH = re.compile(r"`((?:genai_lab|widgets|tests|tools|notebooks|binder|benchmarks|docs|\.ci)/[\w./*-]*)`")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
TREE_NAME = re.compile(r"[\w.*-]+/?")
# products of a build or a test run, named in documents, absent from a fresh clone
PRODUCTS = ("build/", "dist/", "widgets/node_modules")


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it.

    >>> slug("Who may import whom?")
    'who-may-import-whom'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)}


def dead_links(document: Path, text: str, root: Path) -> Iterator[str]:
    for match in LINK.finditer(FENCE.sub("", text)):
        target, _, anchor = (match[1] or match[2]).partition("#")
        if ":" in target:
            continue
        file = root / document.parent / target if target else root / document
        if not file.exists():
            yield f"link to {target}, which does not exist"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield f"link to {target}#{anchor}: no such heading"


def unknown_targets(text: str, root: Path) -> Iterator[str]:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    for words in MAKE_TARGET.findall(text):
        yield from (f"`make {word}`: the Makefile has no such target" for word in words.split() if word not in known)


def missing_paths(text: str, root: Path) -> Iterator[str]:
    for path in PATH.findall(FENCE.sub("", text)):
        if not path.startswith(PRODUCTS) and not any(root.glob(path.rstrip("/"))):
            yield f"`{path}` does not exist"


def tree_paths(block: str) -> Iterator[str]:
    """The paths that an annotated file tree names: a fenced block whose first line is a folder.

    A line is `indent name [name ...]  words`, two spaces or more before the words.

    >>> list(tree_paths("src/\\n  a.py b.py    two files\\n  sub/        a folder\\n    c.py\\n"))
    ['src/', 'src/a.py', 'src/b.py', 'src/sub/', 'src/sub/c.py']
    """
    parents: list[tuple[int, str]] = []
    for line in block.splitlines():
        bare = re.sub(r"[│├└─]", " ", line)
        depth = len(bare) - len(bare.lstrip())
        names = re.split(r"\s{2,}", bare.strip())[0].split()
        if not names or not all(TREE_NAME.fullmatch(name) for name in names):
            continue
        parents = [parent for parent in parents if parent[0] < depth]
        folder = parents[-1][1] if parents else ""
        yield from (folder + name for name in names)
        if names[-1].endswith("/"):
            parents.append((depth, folder + names[-1]))


def bad_blocks(text: str, root: Path, home: Path) -> Iterator[str]:
    """`home` is the document's own folder: a tree starts there or at the project's."""
    for language, block in FENCE.findall(text):
        if language in ("python", "py"):
            try:
                ast.parse(block)
            except SyntaxError as error:
                yield f"a Python block does not parse: {error}"
        elif language in ("", "text") and re.match(r"[\w.-]+/(\s|$)", block):
            for path in tree_paths(block):
                if not any(any(base.glob(path.rstrip("/"))) for base in (home, root)):
                    yield f"the file tree names {path}, which does not exist"


def unmentioned_rooms(root: Path) -> Iterator[str]:
    """Rooms of genai_lab that ARCHITECTURE.md leaves out."""
    architecture = root / "ARCHITECTURE.md"
    if not architecture.exists():
        return
    text = architecture.read_text(encoding="utf-8")
    for init in sorted((root / "genai_lab").glob("*/__init__.py")):
        if not re.search(rf"\b{init.parent.name}\b", text):
            yield f"ARCHITECTURE.md: does not mention genai_lab/{init.parent.name}"


def problems(root: Path = ROOT) -> list[str]:
    found = list(unmentioned_rooms(root))
    for document in (path for path in project_files(root) if path.suffix == ".md"):
        text = (root / document).read_text(encoding="utf-8")
        checks = (dead_links(document, text, root), unknown_targets(text, root), missing_paths(text, root))
        found += [
            f"{document}: {complaint}"
            for check in (*checks, bad_blocks(text, root, (root / document).parent))
            for complaint in check
        ]
    return found
