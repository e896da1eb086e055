"""Where genai_lab keeps what it fetched or converted.

Receives the environment. Returns a path. It does not know what is kept there.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import platformdirs

from genai_lab.errors import OutputError
from genai_lab.paths import reason_of

CACHE_VARIABLE: Final = "GENAI_LAB_CACHE"


def cache_folder() -> Path:
    """The cache: `GENAI_LAB_CACHE` if it is set and not empty, else the user's cache folder of the platform. Makes
    nothing."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(os.path.abspath(os.path.expanduser(chosen))) if chosen else platformdirs.user_cache_path("genai_lab")


def writable_cache() -> Path:
    """The cache folder, made if need be, and written to once to see that it can be.

    Raises:
        OutputError: it is a file, or cannot be made or written; says which setting to change.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise cache_error(folder, error) from error


def cache_error(folder: Path, error: OSError) -> OutputError:
    """The error for a cache that cannot be written."""
    chosen = os.environ.get(CACHE_VARIABLE)
    where = (
        f"{CACHE_VARIABLE} is {chosen!r}" if chosen else f"{CACHE_VARIABLE} is not set; the cache is {str(folder)!r}"
    )
    advice = f"Set {CACHE_VARIABLE} to a folder that can be written" + (", or unset it" if chosen else "")
    return OutputError(
        f"{where}, which cannot be written: {reason_of(folder / 'model', error)}. Fetched and converted models are "
        f"kept there (about 200 MB each). {advice}."
    )
