"""Put a finished folder in its place, whole or not at all.

Receives the place. Returns a folder to fill: a hidden sibling, which a rename puts in place. Whoever is killed in the
middle leaves only the sibling, which a later run removes. It does not know what the folder holds.
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
from genai_lab.paths import cannot_write

PARTIAL: Final = ".partial"
STALE_AFTER: Final = 3600.0  # seconds since anything was written to a partial folder


@contextlib.contextmanager
def whole_folder(place: Path, keep_existing: bool = False) -> Iterator[Path]:
    """Give a folder to fill; when the block ends well, it stands at `place`.

    With `keep_existing`, a folder that another process has put there meanwhile stays; else it is replaced.

    Raises OutputError when the folder cannot be written; then nothing is left, and what was at `place` stays.
    """
    with scratch_folder(place) as scratch:
        try:
            folder = scratch / "whole"
            folder.mkdir()
            yield folder
            _move(folder, place, keep_existing, aside=scratch)
        except OSError as error:
            raise cannot_write(place, "output_dir", error) from error


@contextlib.contextmanager
def scratch_folder(place: Path) -> Iterator[Path]:
    """A folder beside `place`, on the same file system, that is gone when the block ends; folders above it that had to
    be made go, too, unless something was put into them.

    Raises OutputError when it cannot be made.
    """
    missing = [folder for folder in place.parents if not folder.exists()]  # the innermost first
    scratch = None
    try:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(place)
            scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=PARTIAL, dir=place.parent))
        except OSError as error:
            raise cannot_write(place, "output_dir", error) from error
        yield scratch
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        for folder in missing:
            with contextlib.suppress(OSError):  # not empty, or never made
                folder.rmdir()


def _remove_stale(place: Path) -> None:
    """Remove what killed runs left behind."""
    for left in place.parent.glob(f".{place.name}.*{PARTIAL}"):
        with contextlib.suppress(OSError):  # its owner, or another process that tidies up, may be removing it now
            newest = max(entry.stat().st_mtime for entry in (left, *left.rglob("*")))
            if time.time() - newest > STALE_AFTER:
                shutil.rmtree(left, ignore_errors=True)


def _move(folder: Path, place: Path, keep_existing: bool, aside: Path) -> None:
    for attempt in range(100):  # a round is lost only when another process has just finished
        try:
            os.rename(folder, place)
            return
        except OSError:
            if not place.exists():
                raise
        if keep_existing:
            return
        with contextlib.suppress(FileNotFoundError):  # another process moved it away first
            os.rename(place, aside / f"replaced{attempt}")
    raise ModelFolderError(f"{place}: other processes keep replacing this folder. Give another output folder.")
