"""One JupyterLab server for a test session. Receives a folder to live in; gives a URL, a token and a root folder.

The port comes from bind(0) and readiness from the server's own runtime file, never from a parsed log line. Every
Jupyter folder lies below the given one, so that neither the user's settings nor an earlier run leak in.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import nbformat
from nbformat.sign import NotebookNotary

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120
SETTINGS = {
    # every cell in the page, also those below the fold
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
OPTIONS = (
    "--no-browser",
    "--allow-root",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port_retries=0",
    "--LabApp.expose_app_in_browser=True",
    "--LabApp.extension_manager=readonly",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.quit_button=False",
)
TOKEN = "lab"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Folders:
    """Where one server keeps everything."""

    base: Path

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def log(self) -> Path:
        return self.base / "server.log"

    def environment(self) -> dict[str, str]:
        names = {"CONFIG": "config", "RUNTIME": "runtime", "DATA": "data"}
        folders = {f"JUPYTER_{name}_DIR": self.base / place for name, place in names.items()}
        folders |= {
            "JUPYTERLAB_SETTINGS_DIR": self.base / "settings",
            "JUPYTERLAB_WORKSPACES_DIR": self.base / "spaces",
        }
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        quiet = {"PYTHONPATH": path, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "JUPYTER_PREFER_ENV_PATH": "1"}
        return {**os.environ, **{name: str(folder) for name, folder in folders.items()}, **quiet}


class JupyterLab:
    """A running JupyterLab; a context manager."""

    def __init__(self, base: Path) -> None:
        self.folders = Folders(base)
        self.root = self.folders.root
        self.token = TOKEN
        self.url = ""

    def __enter__(self) -> JupyterLab:
        self._prepare()
        port = free_port()
        command = [sys.executable, "-m", "jupyterlab", *OPTIONS, f"--ServerApp.port={port}"]
        command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={self.root}"]
        with self.folders.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=self.root, env=self.folders.environment(), stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self.url = f"http://127.0.0.1:{self._wait()['port']}"
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self) -> None:
        notebooks = ROOT / "notebooks"
        if notebooks.exists():
            shutil.copytree(notebooks, self.root)
        self.root.mkdir(exist_ok=True)
        for plugin, settings in SETTINGS.items():
            file = self.folders.base / "settings" / f"{plugin}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(settings), encoding="utf-8")

    def _wait(self) -> dict[str, Any]:
        deadline = time.monotonic() + START_SECONDS
        runtime = self.folders.base / "runtime"
        while self.process.poll() is None and time.monotonic() < deadline:
            for file in runtime.glob("jpserver-*.json"):
                try:
                    info: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
                except ValueError:  # half written
                    continue
                return info
            time.sleep(0.1)
        raise RuntimeError("JupyterLab did not start:\n" + self.folders.log.read_text(encoding="utf-8")[-3000:])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def write(self, name: str, *cells: str) -> str:
        """Writes a notebook of code cells into the server's root; returns its name."""
        code = [nbformat.v4.new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(cells)]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=kernel), self.root / name)
        return name

    def read(self, name: str) -> nbformat.NotebookNode:
        """The notebook as it lies on the disk."""
        return nbformat.read(self.root / name, as_version=4)

    def trust(self, name: str, trusted: bool) -> None:
        """Signs a notebook for this server, or takes the signature away, as if it came from somebody else."""
        notary = NotebookNotary(data_dir=str(self.folders.base / "data"))
        try:
            (notary.sign if trusted else notary.unsign)(self.read(name))
        finally:
            notary.store.close()
