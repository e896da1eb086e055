"""Files of images and sounds -> their bytes, checked; nothing is decoded.

onnxruntime-genai decodes when a processor is handed the files; here a processor refuses them (see `multimodal`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Self

from genai_lab.errors import ArgumentError, ArgumentTypeError

MAX_MEDIA_BYTES = 2**30


class _Media:
    """Files of one kind; `open` and `open_bytes` make them."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        name = type(self).__name__
        raise ArgumentTypeError(f"{name}: no constructor is defined; call {name}.open(path, ...) or open_bytes(...)")

    @classmethod
    def open(cls, *paths: str | os.PathLike[str]) -> Self:
        """Read files.

        Raises:
            ArgumentTypeError: not paths.
            ArgumentError: none given, or one that does not exist or is too large.
        """
        if not all(isinstance(path, str | os.PathLike) for path in paths):
            raise ArgumentTypeError(f"{cls.kind} paths must be strings; got {_kinds(paths)}")
        return cls._of(cls._read(Path(path)) for path in paths)

    @classmethod
    def open_bytes(cls, *data: bytes) -> Self:
        """Take the files' bytes.

        Raises:
            ArgumentTypeError: not bytes.
            ArgumentError: none given.
        """
        if not all(isinstance(content, bytes) for content in data):
            raise ArgumentTypeError(f"{cls.kind} data must be bytes; got {_kinds(data)}")
        return cls._of(data)

    @property
    def contents(self) -> tuple[bytes, ...]:
        """The files' bytes, in order (ours)."""
        return self._contents

    def __len__(self) -> int:
        return len(self._contents)

    def __repr__(self) -> str:
        return f"<genai_lab.{type(self).__name__}: {len(self)} files, {sum(map(len, self._contents)):,} bytes>"

    @classmethod
    def _of(cls, contents: Iterable[bytes]) -> Self:
        media = cls.__new__(cls)
        media._contents = tuple(contents)
        if not media._contents:
            raise ArgumentError(f"No {cls.kind.lower()}s provided; give at least one")
        return media

    @classmethod
    def _read(cls, path: Path) -> bytes:
        if not os.path.exists(path):  # Path.exists raises for a name that is too long
            raise ArgumentError(f"{cls.kind} path does not exist: {path}. Correct it")
        if not os.path.isfile(path):
            raise ArgumentError(f"{cls.kind} path is not a file: {path}. Give the path of a file")
        if path.stat().st_size > MAX_MEDIA_BYTES:
            raise ArgumentError(f"{cls.kind} {path} has {path.stat().st_size:,} bytes; allowed are {MAX_MEDIA_BYTES:,}")
        return path.read_bytes()

    _contents: tuple[bytes, ...]


class Images(_Media):
    """Files of images (og class Images).

    >>> Images.open_bytes(b"...")
    <genai_lab.Images: 1 files, 3 bytes>
    """

    kind = "Image"


class Audios(_Media):
    """Files of sounds (og class Audios). Empty ones are refused, as there."""

    kind = "Audio"

    @classmethod
    def _of(cls, contents: Iterable[bytes]) -> Self:
        audios = super()._of(contents)
        empty = next((n for n, content in enumerate(audios._contents) if not content), None)
        if empty is not None:
            raise ArgumentError(f"Audio buffer {empty} is empty. Give the bytes of a sound file")
        return audios


def _kinds(values: tuple[object, ...]) -> str:
    return ", ".join(type(value).__name__ for value in values)
