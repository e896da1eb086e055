"""Paths that people hand over, and files that appear whole or not at all.

Receives what somebody gave as a path. Returns a `Path` that can be used, or an error that says what is wrong with it.
It does not know what the files hold. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from genai_lab.errors import ArgumentError, ArgumentTypeError, OutputError

_REASONS = {
    errno.EACCES: "writing there is not permitted",
    errno.EPERM: "writing there is not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EISDIR: "it is a folder",
}


def checked_path(value: object, argument: str, wanted: str) -> Path:
    """`value` as a path.

    Args:
        value: what was given.
        argument: what the caller's argument is called.
        wanted: what it should be the path of, such as "a model folder".

    Raises:
        ArgumentTypeError: neither a str nor a `pathlib.Path`.
        ArgumentError: empty, or with a NUL character.

    >>> checked_path(5, "path", "a trace file")
    Traceback (most recent call last):
    ...
    genai_lab.errors.ArgumentTypeError: path is 5 (int); the path of a trace file is allowed, as a str or pathlib.Path.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ArgumentTypeError(
            f"{argument} is {value!r:.60} ({type(value).__name__}); the path of {wanted} is allowed, as a str or "
            f"pathlib.Path."
        )
    if not text or "\0" in text:
        wrong = "has a NUL character" if text else "is empty"
        raise ArgumentError(f"{argument} {wrong}; the path of {wanted} is allowed.")
    return Path(text)


@contextlib.contextmanager
def whole_file(path: Path, argument: str = "path") -> Iterator[Path]:
    """Give a path to write to. When the block ends well, the file stands at `path`; else what was there stays.

    Raises:
        OutputError: `path` is a folder, or cannot be written; says why and what to do.
    """
    if os.path.isdir(path):
        raise OutputError(
            f"{argument} {str(path)!r} is a folder; the path of a file is needed. Give a file name inside it."
        )
    place = Path(os.path.realpath(path))  # what a link points to is replaced, not the link
    if os.path.exists(place) and not os.path.isfile(place):
        partial = place  # a device or a pipe takes what is written, and must not be replaced
    else:
        partial = place.with_name(f".genai_lab.{secrets.token_hex(6)}.part")
    try:
        if os.path.isfile(place) and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        yield partial
        if partial != place:
            if os.path.isfile(place):
                shutil.copymode(place, partial)
            os.replace(partial, place)
    except OSError as error:
        raise cannot_write(path, argument, error) from error
    finally:
        if partial != place:
            with contextlib.suppress(OSError):  # it is not there, or its folder is not
                partial.unlink()


def cannot_write(path: Path, argument: str, error: OSError) -> OutputError:
    """The error for a file or folder that could not be written: which one, why, what to do.

    >>> cannot_write(Path("missing/page.html"), "path", FileNotFoundError())
    OutputError("path 'missing/page.html' cannot be written: there is no folder 'missing'. Make it first, or give ...")
    """
    if isinstance(error, OutputError):
        return error
    advice = "Give another place, or make this one writable."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "Free some room, or give another place."
    elif error.errno == errno.EISDIR:
        advice = "Give a file name inside it."
    elif error.errno in (errno.ENOENT, None):
        advice = "Make it first, or give another place."
    return OutputError(f"{argument} {str(path)!r} cannot be written: {reason_of(path, error)}. {advice}")


def reason_of(path: Path, error: OSError) -> str:
    """Why `path` could not be written, in words."""
    parents = Path(os.path.abspath(path)).parents
    file_in_the_way = next((str(parent) for parent in parents if os.path.lexists(parent)), "")
    if file_in_the_way and not os.path.isdir(file_in_the_way):
        return f"{file_in_the_way!r} is a file, not a folder"
    if error.errno in (errno.ENOENT, None) and not parents[0].exists():
        return f"there is no folder {str(path.parent)!r}"
    return _REASONS.get(error.errno or 0) or error.strerror or str(error)
