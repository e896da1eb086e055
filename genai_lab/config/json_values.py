"""Typed values out of JSON that nobody has checked: every reader takes the value and its place and returns the value,
or raises a `ModelFolderError` that names the place (`model.decoder.head_size`), the value and what is allowed.

It knows nothing about any particular file; `model_config` and `other_sections` say which keys exist.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeGuard, TypeVar

from genai_lab.errors import ModelFolderError

T = TypeVar("T")
Reader: TypeAlias = Callable[[object, "Place"], T]
"""Turns a parsed JSON value into a checked one."""

INT32_MAX = 2**31 - 1
MAX_DEPTH = 32


@dataclass(frozen=True)
class Place:
    """Where a value stands: the file (or other source) and the path inside it."""

    source: str
    path: str = ""

    def key(self, name: str) -> Place:
        return Place(self.source, f"{self.path}.{name}" if self.path else name)

    def index(self, position: int) -> Place:
        return Place(self.source, f"{self.path}[{position}]")

    def error(self, value: object, allowed: str) -> ModelFolderError:
        return ModelFolderError(
            f"{self.source}: {self.path or 'the top level'} is {shown(value)}; {allowed} is allowed. "
            f"Correct the value, or leave the key out."
        )

    def unknown_key(self, name: str, known: Iterable[str]) -> ModelFolderError:
        names = sorted(known)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys here: {', '.join(names) or 'none'}."
        return ModelFolderError(f"{self.source}: unknown key {self.key(shorten(name)).path!r}; {hint}")


def shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def shown(value: object) -> str:
    """A value in an error message: short, with its JSON type."""
    kinds: dict[type, str] = {dict: "an object", list: "an array", type(None): "null"}
    named = kinds.get(type(value))
    return named if named else f"{shorten(repr(value))} ({type(value).__name__})"


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """The bytes of a file of a model folder; its size is checked before anything is read."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ModelFolderError(
            f"{path}: cannot be read ({error.strerror or error}). A model folder with a readable {path.name} is needed."
        ) from error
    if len(data) > max_bytes:
        raise ModelFolderError(f"{path}: larger than {max_bytes:,} bytes, which is the most allowed for {path.name}.")
    return data


def parse_object(text: str | bytes, source: str) -> dict[str, Any]:
    """One JSON object; numbers are finite, nesting is at most `MAX_DEPTH`."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ModelFolderError(f"{source}: not UTF-8 text at byte {error.start}. Save it as UTF-8.") from error

    def no_constant(name: str) -> float:
        raise ModelFolderError(f"{source}: contains {name}, which is not JSON; finite numbers are allowed.")

    try:
        value = json.loads(text, parse_constant=no_constant)
    except RecursionError as error:
        raise ModelFolderError(f"{source}: nested more than {MAX_DEPTH} levels deep.") from error
    except ValueError as error:
        raise ModelFolderError(f"{source}: not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise Place(source).error(value, "one JSON object")
    _check_depth(value, source)
    return value


def _check_depth(value: object, source: str) -> None:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise ModelFolderError(f"{source}: nested more than {MAX_DEPTH} levels deep.")


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


# ---- readers of single values


def integer(low: int = -INT32_MAX - 1, high: int = INT32_MAX) -> Reader[int]:
    def read(value: object, place: Place) -> int:
        whole = as_whole_number(value)
        if whole is None or not low <= whole <= high:
            raise place.error(value, f"an integer from {low} to {high}")
        return whole

    return read


def number(low: float = -math.inf, high: float = math.inf) -> Reader[float]:
    def read(value: object, place: Place) -> float:
        if not is_number(value) or not low <= value <= high or not math.isfinite(as_float(value)):
            raise place.error(value, f"a number from {low} to {high}" if math.isfinite(low + high) else "a number")
        return float(value)

    return read


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_whole_number(value: object) -> int | None:
    """The integer that a JSON number stands for (`8` and `8.0` are the same number there), or None."""
    if not is_number(value) or (isinstance(value, float) and not value.is_integer()):
        return None
    return int(value)


def as_float(value: int | float) -> float:
    """The number as a float; an integer beyond every float is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def boolean(value: object, place: Place) -> bool:
    if not isinstance(value, bool):
        raise place.error(value, "true or false")
    return value


def string(value: object, place: Place) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise place.error(value, "a string without NUL")
    return value


def choice(*allowed: str) -> Reader[str]:
    def read(value: object, place: Place) -> str:
        if value not in allowed:
            raise place.error(value, "one of " + ", ".join(allowed))
        return str(value)

    return read


def file_name(value: object, place: Place) -> str:
    """A path that stays inside the model folder."""
    name = string(value, place)
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or (name and not parts[0]) or name[1:2] == ":":
        raise place.error(value, "a relative path inside the model folder, without '..',")
    return name


def layer_pattern(value: object, place: Place) -> str:
    """A name with `%d` for the number of the layer, which is filled in by `%`; so no other `%` may stand in it."""
    pattern = string(value, place)
    if pattern.count("%") != 1 or "%d" not in pattern:
        raise place.error(value, "a name with one '%d' for the layer")
    return pattern


# ---- readers of several values


def list_of(read_item: Reader[T]) -> Reader[tuple[T, ...]]:
    def read(value: object, place: Place) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise place.error(value, "an array")
        return tuple(read_item(item, place.index(position)) for position, item in enumerate(value))

    return read


def map_of(read_item: Reader[T]) -> Reader[Mapping[str, T]]:
    """An object with any keys."""

    def read(value: object, place: Place) -> Mapping[str, T]:
        return MappingProxyType({k: read_item(v, place.key(shorten(k))) for k, v in an_object(value, place).items()})

    return read


def record(keys: Mapping[str, Reader[Any]]) -> Reader[Mapping[str, Any]]:
    """An object with known keys, each optional; kept as a read-only mapping of what was given."""

    def read(value: object, place: Place) -> Mapping[str, Any]:
        checked: dict[str, Any] = {}
        for name, item in an_object(value, place).items():
            if name not in keys:
                raise place.unknown_key(name, keys)
            checked[name] = keys[name](item, place.key(name))
        return MappingProxyType(checked)

    return read


def an_object(value: object, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.error(value, "an object")
    return value
