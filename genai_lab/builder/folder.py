"""Put a finished folder in its place, whole or not at all.

Receives the place and a way to fill a folder. The filling happens in a hidden sibling; a rename puts it in place. Whoever is
killed in the middle leaves only the sibling, which a later run removes. It does not know what the folder holds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from genai_lab.errors import ModelFolderError

PARTIAL: Final = ".partial"
STALE_AFTER: Final = 3600.0  # seconds since a partial folder was last written to


@contextlib.contextmanager
def whole_folder(place: Path, keep_existing: bool = False) -> Iterator[Path]:
    """Give a temporary folder to fill; when the block ends well, it stands at `place`.

    With `keep_existing`, a folder that another process has put there meanwhile stays; else it is replaced.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(place)
    temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=PARTIAL, dir=place.parent))
    try:
        temporary.chmod(0o755)  # mkdtemp makes it private; a model folder may be shared
        yield temporary
        _move(temporary, place, keep_existing)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_stale(place: Path) -> None:
    """Remove what killed runs left behind."""
    for left in place.parent.glob(f".{place.name}.*{PARTIAL}"):
        with contextlib.suppress(OSError):  # another process may be removing it too
            newest = max(entry.stat().st_mtime for entry in [left, *left.rglob("*")])
            if time.time() - newest > STALE_AFTER:
                shutil.rmtree(left, ignore_errors=True)


def _move(temporary: Path, place: Path, keep_existing: bool) -> None:
    for _ in range(100):  # each round lost means that another process has just finished
        try:
            os.rename(temporary, place)
            return
        except OSError:
            if not place.exists():
                raise
        if keep_existing:
            return
        with contextlib.suppress(FileNotFoundError):  # another process moved it away first
            aside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=PARTIAL, dir=place.parent))
            os.rename(place, aside / "replaced")
            shutil.rmtree(aside, ignore_errors=True)
    raise ModelFolderError(f"{place}: other processes keep replacing this folder. Give another output folder.")
