"""The surroundings that tests run in: a home folder of their own, so that nothing reads or leaves traces in the user's.

The exception is the default model's folder (100 MB and some seconds to make): tests share the user's. Receives
os.environ and changes it; restores it for the little that must run as the user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from genai_lab.workbench.cache import CACHE_VARIABLE, cache_folder

JUPYTER_VARIABLES = {
    "JUPYTER_CONFIG_DIR": "jupyter/config",
    "JUPYTER_DATA_DIR": "jupyter/data",
    "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
    "JUPYTERLAB_SETTINGS_DIR": "jupyter/lab-settings",
    "JUPYTERLAB_WORKSPACES_DIR": "jupyter/lab-workspaces",
    "IPYTHONDIR": "ipython",
    "MPLCONFIGDIR": "matplotlib",
}


def in_ci() -> bool:
    """CI is where a missing browser or model is a failure, and elsewhere a skip."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def playwright_browsers() -> Path:
    """Where `playwright install` put its browsers for this user."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ms-playwright"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ms-playwright"


class Surroundings:
    """os.environ with the user's folders replaced by ones below `home`; `as_user` brings them back for a while."""

    def __init__(self, home: Path) -> None:
        self.home = home
        shared = {CACHE_VARIABLE: str(cache_folder())}
        shared |= {"PLAYWRIGHT_BROWSERS_PATH": os.environ.get("PLAYWRIGHT_BROWSERS_PATH", str(playwright_browsers()))}
        folders = {
            "HOME": home,
            "USERPROFILE": home,
            "XDG_CACHE_HOME": home / "cache",
            "XDG_CONFIG_HOME": home / "config",
        }
        folders |= {"XDG_DATA_HOME": home / "data", "XDG_STATE_HOME": home / "state"}
        folders |= {name: home / place for name, place in JUPYTER_VARIABLES.items()}
        self.replaced = {name: str(folder) for name, folder in folders.items()} | shared
        self.user = {name: os.environ.get(name) for name in self.replaced}
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        os.environ.update(self.replaced)

    def restore(self) -> None:
        for name, value in self.user.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    @contextmanager
    def as_user(self) -> Iterator[None]:
        """The user's own folders, for what needs the user's settings, such as pip's."""
        self.restore()
        try:
            yield
        finally:
            os.environ.update(self.replaced)
