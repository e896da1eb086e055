"""Read a GGUF file: its metadata and a read-only view of each tensor's bytes.

Receives a path. Returns a `GgufFile` whose tensors are views of a memory map: nothing is copied and nothing is decoded.
It does not know what a tensor means, how a block type is decoded (see `blocks`) or what a llama is.

The file is hostile until proven otherwise: every count, length and offset is compared with the bytes that are really
there before anything of that size is made.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

from genai_lab.errors import ModelFolderError

MAGIC: Final = b"GGUF"
SUPPORTED_VERSIONS: Final = (2, 3)
MAX_DIMENSIONS: Final = 4
DEFAULT_ALIGNMENT: Final = 32

_SCALARS: Final[dict[int, tuple[str, str]]] = {  # value type -> (struct code, numpy dtype)
    GGUFValueType.UINT8: ("<B", "<u1"),
    GGUFValueType.INT8: ("<b", "<i1"),
    GGUFValueType.UINT16: ("<H", "<u2"),
    GGUFValueType.INT16: ("<h", "<i2"),
    GGUFValueType.UINT32: ("<I", "<u4"),
    GGUFValueType.INT32: ("<i", "<i4"),
    GGUFValueType.FLOAT32: ("<f", "<f4"),
    GGUFValueType.BOOL: ("<?", "<?"),
    GGUFValueType.UINT64: ("<Q", "<u8"),
    GGUFValueType.INT64: ("<q", "<i8"),
    GGUFValueType.FLOAT64: ("<d", "<f8"),
}


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: its shape as numpy writes it (GGUF lists dimensions the other way round) and its raw bytes."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]  # [rows, columns] of a weight matrix, [n] of a vector
    data: NDArray[np.uint8]  # [bytes], a view of the memory map


@dataclass(frozen=True)
class GgufFile:
    """What a GGUF file holds."""

    path: Path
    metadata: dict[str, Any]  # numbers, strings, lists of strings; arrays of numbers are views of the memory map
    tensors: dict[str, GgufTensor]


def _inside(folder: Path) -> str:
    """The .gguf file in a folder, as a hint."""
    found = next(folder.glob("*.gguf"), None)
    return f", such as {found}" if found is not None else ""


def read_gguf(path: str | Path) -> GgufFile:
    """Open a GGUF file.

    >>> read_gguf("missing.gguf")
    Traceback (most recent call last):
    ...
    genai_lab.errors.ModelFolderError: missing.gguf: no such file. Give the path of a .gguf file.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise ModelFolderError(f"{path}: a folder. Give the path of a .gguf file{_inside(path)}.")
    if not os.path.exists(path):
        raise ModelFolderError(f"{path}: no such file. Give the path of a .gguf file.")
    if not os.path.isfile(path):
        raise ModelFolderError(f"{path}: not a plain file. Give the path of a .gguf file.")
    if path.stat().st_size < 24:
        raise ModelFolderError(f"{path}: {path.stat().st_size} bytes are too few for a GGUF file. Fetch it again.")
    try:
        cursor = _Cursor(path, np.memmap(path, dtype=np.uint8, mode="r"))
    except OSError as error:
        raise ModelFolderError(f"{path}: cannot be read: {error.strerror}. Make it readable.") from error
    num_tensors, num_keys = _read_header(cursor)
    metadata = _read_metadata(cursor, num_keys)
    return GgufFile(path, metadata, _read_tensors(cursor, num_tensors, metadata))


class _Cursor:
    """A position in the file that cannot leave it."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path = path
        self.data = data
        self.view = data.data
        self.at = 0

    def fail(self, what: str) -> NoReturn:
        raise ModelFolderError(f"{self.path}: {what} (at byte {self.at}). The file is cut or broken: fetch it again.")

    def room_for(self, count: int, least_bytes: int, what: str) -> int:
        """`count`, after checking that so many items of at least `least_bytes` each can still follow."""
        left = len(self.data) - self.at
        if count * least_bytes > left:
            self.fail(f"{what}: {count} items of at least {least_bytes} bytes do not fit in the {left} that are left")
        return count

    def scalar(self, code: str) -> Any:
        size = struct.calcsize(code)
        self.room_for(1, size, "a number")
        (value,) = struct.unpack_from(code, self.view, self.at)
        self.at += size
        return value

    def string(self) -> str:
        size = self.room_for(self.scalar("<Q"), 1, "a string")
        raw = bytes(self.view[self.at : self.at + size])
        self.at += size
        return raw.decode("utf-8", errors="replace")

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        values = np.frombuffer(self.view, dtype=dtype, count=count, offset=self.at)
        self.at += values.nbytes
        return values


def _read_header(cursor: _Cursor) -> tuple[int, int]:
    magic = bytes(cursor.view[:4])
    if magic != MAGIC:
        raise ModelFolderError(f"{cursor.path}: starts with {magic!r}, not with {MAGIC!r}: this is not a GGUF file.")
    cursor.at = 4
    version = cursor.scalar("<I")
    if version not in SUPPORTED_VERSIONS:
        raise ModelFolderError(
            f"{cursor.path}: GGUF version {version}; versions {SUPPORTED_VERSIONS} in little-endian order are read."
        )
    num_tensors, num_keys = cursor.scalar("<Q"), cursor.scalar("<Q")
    # The shortest entries: a key is length + type + one byte; a tensor is length + rank + type + offset.
    return cursor.room_for(num_tensors, 24, "tensor list"), cursor.room_for(num_keys, 13, "metadata")


def _read_metadata(cursor: _Cursor, num_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.string()
        if key in metadata:
            cursor.fail(f"metadata key {key!r} appears twice")
        metadata[key] = _read_value(cursor, cursor.scalar("<I"), key)
    return metadata


def _read_value(cursor: _Cursor, value_type: int, key: str) -> Any:
    if value_type in _SCALARS:
        return cursor.scalar(_SCALARS[value_type][0])
    if value_type == GGUFValueType.STRING:
        return cursor.string()
    if value_type != GGUFValueType.ARRAY:
        cursor.fail(f"metadata key {key!r} has the unknown value type {value_type}")
    item_type, count = cursor.scalar("<I"), cursor.scalar("<Q")
    if item_type in _SCALARS:
        dtype = _SCALARS[item_type][1]
        return cursor.array(dtype, cursor.room_for(count, np.dtype(dtype).itemsize, key))
    if item_type == GGUFValueType.STRING:
        return [cursor.string() for _ in range(cursor.room_for(count, 8, key))]
    cursor.fail(f"metadata key {key!r} is an array of value type {item_type}; numbers and strings are read")


def _read_tensors(cursor: _Cursor, num_tensors: int, metadata: dict[str, Any]) -> dict[str, GgufTensor]:
    headers = [_read_tensor_header(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        cursor.fail(f"general.alignment is {alignment!r}, not a power of two")
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, kind, shape, offset in headers:
        if name in tensors:
            cursor.fail(f"tensor {name!r} appears twice")
        num_bytes = _num_bytes(cursor, name, kind, shape)
        first, end = start + offset, start + offset + num_bytes
        if offset % alignment or end > len(cursor.data):
            cursor.fail(f"tensor {name!r} claims bytes {first}..{end} of a file of {len(cursor.data)} bytes")
        tensors[name] = GgufTensor(name, kind, shape, cursor.data[first:end])
    return tensors


def _read_tensor_header(cursor: _Cursor) -> tuple[str, GGMLQuantizationType, tuple[int, ...], int]:
    name = cursor.string()
    rank = cursor.scalar("<I")
    if not 1 <= rank <= MAX_DIMENSIONS:
        cursor.fail(f"tensor {name!r} has {rank} dimensions; 1 to {MAX_DIMENSIONS} are allowed")
    dimensions = [cursor.scalar("<Q") for _ in range(rank)]
    type_number = cursor.scalar("<I")
    try:
        kind = GGMLQuantizationType(type_number)
    except ValueError:
        raise ModelFolderError(f"{cursor.path}: tensor {name!r} has the unknown tensor type {type_number}.") from None
    return name, kind, tuple(reversed(dimensions)), cursor.scalar("<Q")


def _num_bytes(cursor: _Cursor, name: str, kind: GGMLQuantizationType, shape: tuple[int, ...]) -> int:
    block_size, block_bytes = GGML_QUANT_SIZES[kind]
    if not all(shape):
        cursor.fail(f"tensor {name!r} has the empty shape {shape}")
    if shape[-1] % block_size:
        cursor.fail(f"tensor {name!r}: rows of {shape[-1]} do not divide into {kind.name} blocks of {block_size}")
    return math.prod(shape) // block_size * block_bytes
