"""Sections of a JSON file as frozen dataclasses: a field says how its value is read, and the fields are the known keys.

Receives a parsed JSON object and its place, returns the dataclass. It knows no particular section.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any, TypeVar

from genai_lab.config.json_values import Place, Reader, an_object

T = TypeVar("T")


def key(read: Reader[T], default: T, *, name: str | None = None) -> T:
    """A field that is read from the key of its own name, or from `name`."""
    return with_default(default, {"read": read, "key": name})


def with_default(value: T, metadata: Mapping[str, Any] | None = None) -> T:
    """A field with a default that is never changed; dataclasses take a read-only mapping for one that could be."""
    made: T = field(default_factory=lambda: value, metadata=metadata)
    return made


def section(kind: type[T]) -> Reader[T]:
    """A reader for a dataclass whose fields were made by `key`; fields without a reader are not JSON keys."""
    known: dict[str, Field[Any]] = {
        item.metadata["key"] or item.name: item
        for item in fields(kind)  # type: ignore[arg-type]
        if "read" in item.metadata
    }

    def read(value: object, place: Place) -> T:
        given: dict[str, Any] = {}
        for name, item in an_object(value, place).items():
            if name not in known:
                raise place.unknown_key(name, known)
            given[known[name].name] = known[name].metadata["read"](item, place.key(name))
        return kind(**given)

    return read
