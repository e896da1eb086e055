"""Replays binder/ without a container: what mybinder.org would do with the last commit, step by step.

    python -m tools.binder_replay [--keep FOLDER] [--limit-mb 1024]

Receives the last commit; prints a JSON line for each step with its seconds and its peak memory, and fails when a step
fails or a notebook needs more memory than a pod likes to give. It is no container: this machine's system stands in for
Ubuntu, and pip for the image's conda lock; the versions of the image's Jupyter are repo2docker's own.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tools.files import ROOT

# what the image has before our requirements, and the notebooks meet
IMAGE_PACKAGES = (
    *("jupyterlab", "notebook", "jupyter_server", "ipykernel", "ipywidgets", "jupyter-resource-usage"),
    *("jupyter-offlinenotebook", "nbclient", "nbformat", "packaging", "traitlets"),
)
EXPECTED = ('-r "binder/requirements.txt"', "RUN ./binder/postBuild", 'R2D_ENTRYPOINT="${REPO_DIR}/binder/start"')
NOT_IN_IMAGE = ("JUPYTER", "VIRTUAL_ENV", "PYTHON", "GENAI_LAB", "OMP_")


class Failed(Exception):
    """A step of the replay did not work."""


def folder_mb(path: Path) -> float:
    sizes = (file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    return sum(sizes) / 1e6


def memory_mb(pid: int) -> float:
    """Proportional memory of a process and its children: shared pages count once."""
    total = 0.0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return total / 1e6
    return total / 1e6


def step(name: str, command: Sequence[str], **options: Any) -> float:
    """Runs a command and prints what it took; returns its peak memory in MB."""
    start = time.monotonic()
    process = subprocess.Popen(command, **options)
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peak[0] = max(peak[0], memory_mb(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    done.set()
    watcher.join()
    facts = {"step": name, "code": code, "seconds": round(time.monotonic() - start, 1), "peak_mb": round(peak[0])}
    print(json.dumps(facts), flush=True)
    if code:
        raise Failed(name)
    return peak[0]


def new_venv(path: Path) -> str:
    step(f"venv {path.name}", [sys.executable, "-m", "venv", str(path)])
    return str(path / "bin" / "python")


def unpack_commit(repo: Path) -> None:
    """The last commit and nothing else, as a fresh clone has it."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(repo, filter="data")


def read_image(base: Path, repo: Path) -> list[str]:
    """Asks repo2docker what it makes of the folder; returns pins of the packages that its image has."""
    python = new_venv(base / "repo2docker")
    install = ["install", "-qq", "--disable-pip-version-check", "jupyter-repo2docker"]
    step("repo2docker", [python, "-m", "pip", *install])
    command = [python, "-m", "repo2docker", "--no-build", "--debug", "--user-id", "1000", "--user-name", "jovyan"]
    told = subprocess.run([*command, str(repo)], capture_output=True, text=True)
    dockerfile = told.stdout + told.stderr
    (base / "Dockerfile").write_text(dockerfile, encoding="utf-8")
    if told.returncode:
        raise Failed(f"repo2docker: {dockerfile[-2000:]}")
    if ignored := [line for line in EXPECTED if line not in dockerfile]:
        raise Failed(f"repo2docker ignores {ignored}")
    found = re.search(r"environment-2epy-2d3-2e(\d+)-2d", dockerfile)
    if found is None:
        raise Failed("repo2docker names no Python version")
    version = f"3.{found[1]}"
    print(json.dumps({"image_python": version, "this_python": sys.version.split()[0]}))
    lock = next((base / "repo2docker").rglob(f"environment.py-{version}-linux-64.lock")).read_text(encoding="utf-8")
    pins = ((name, re.search(rf"/{name.replace('-', '[-_]')}-(\d[^-]*)-", lock)) for name in IMAGE_PACKAGES)
    return [f"{name}=={pin[1]}" for name, pin in pins if pin]


def image_environment(base: Path, repo: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_IN_IMAGE)}
    image = base / "image"
    places = {"HOME": repo, "REPO_DIR": repo, "NB_PYTHON_PREFIX": image, "CONDA_DIR": image}
    path = f"{image / 'bin'}{os.pathsep}{kept['PATH']}"
    return {**kept, **{name: str(place) for name, place in places.items()}, "PATH": path}


def build(base: Path, repo: Path) -> Mapping[str, str]:
    """The steps of the image's build; returns the environment that its notebooks run in."""
    pins = read_image(base, repo)
    python = new_venv(base / "image")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    step("image: " + " ".join(pins), [*pip, "install", "-qq", *pins])
    image_mb = folder_mb(base / "image")
    environment = image_environment(base, repo)
    options: dict[str, Any] = {"cwd": repo, "env": environment}
    step("requirements", [*pip, "install", "-qq", "--no-cache-dir", "-r", "binder/requirements.txt"], **options)
    step("postBuild", ["./binder/postBuild"], **options)
    step("pip check", [*pip, "check"], **options)
    added = folder_mb(base / "image") - image_mb
    sizes = {"image_mb": round(image_mb), "added_mb": round(added), "repo_mb": round(folder_mb(repo))}
    print(json.dumps(sizes), flush=True)
    return environment


def run_notebooks(repo: Path, environment: Mapping[str, str]) -> float:
    """Runs every notebook through the start script, as a pod does; returns the largest peak in MB."""
    command = ["./binder/start", "jupyter", "execute", "--timeout=600"]
    notebooks = sorted((repo / "notebooks").rglob("*.ipynb"))
    return max((step(book.name, [*command, str(book)], cwd=repo, env=environment) for book in notebooks), default=0.0)


def replay(base: Path, limit_mb: float) -> float:
    repo = base / "home"
    repo.mkdir(parents=True, exist_ok=True)
    unpack_commit(repo)
    peak = run_notebooks(repo, build(base, repo))
    if peak > limit_mb:
        raise Failed(f"a notebook took {peak:.0f} MB, more than {limit_mb:.0f} MB")
    return peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="leave everything there (default: a folder that is removed)"
    )
    parser.add_argument("--limit-mb", type=float, default=1024, help="the most that a notebook may take")
    arguments = parser.parse_args()
    try:
        if arguments.keep:
            peak = replay(arguments.keep.absolute(), arguments.limit_mb)
        else:
            with tempfile.TemporaryDirectory(prefix="binder-") as folder:
                peak = replay(Path(folder), arguments.limit_mb)
    except Failed as failure:
        print(f"Binder would fail: {failure}")
        return 1
    print(f"Binder would work; the largest notebook took {peak:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
