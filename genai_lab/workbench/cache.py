"""Where genai_lab keeps what it fetched or converted.

Receives the environment. Returns a path; makes nothing. It does not know what is kept there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import platformdirs

CACHE_VARIABLE: Final = "GENAI_LAB_CACHE"


def cache_folder() -> Path:
    """The cache: `GENAI_LAB_CACHE` if it is set and not empty, else the user's cache folder of the platform."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_cache_path("genai_lab")
