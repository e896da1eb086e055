"""What is alive and what it holds: models, generators, engines, requests, adapters; and how they are closed.

Receives each object when it is made, and when it is closed; keeps weak references only, so that asking what is alive
keeps nothing alive. It knows of an object its kind, when it was made, and a function that says how many bytes it holds.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar, overload

Thing = TypeVar("Thing")


class Closing(ABC):
    """What gives its memory back when `close` is called, or when the `with` block ends that it was opened for."""

    @abstractmethod
    def close(self) -> None:
        """Give the memory back; closing twice is allowed."""

    @abstractmethod
    def _live(self) -> object:
        """What it works with while it is open; StateError when it is closed."""

    def __enter__(self) -> Self:
        self._live()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class LiveObject:
    """One object that was made and neither closed nor dropped."""

    kind: str
    """Its class, such as "Generator"."""
    bytes: int
    """Memory of caches and weights that is its own; see `live_objects`."""
    age_s: float
    """Seconds since it was made."""
    words: str
    """What it says of itself."""


class LiveObjects(Sequence[LiveObject]):
    """What `live_objects` found, oldest first; prints as a table."""

    def __init__(self, found: Sequence[LiveObject]) -> None:
        self._found = tuple(found)

    @property
    def total_bytes(self) -> int:
        """Bytes of all of them together."""
        return sum(one.bytes for one in self._found)

    def frame(self) -> Any:
        """The same as a pandas DataFrame: kind, bytes, age_s, words."""
        import pandas as pd

        rows = [(one.kind, one.bytes, one.age_s, one.words) for one in self._found]
        return pd.DataFrame(rows, columns=["kind", "bytes", "age_s", "words"])

    @overload
    def __getitem__(self, index: int) -> LiveObject: ...
    @overload
    def __getitem__(self, index: slice) -> LiveObjects: ...
    def __getitem__(self, index: int | slice) -> LiveObject | LiveObjects:
        return LiveObjects(self._found[index]) if isinstance(index, slice) else self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[LiveObject]:
        return iter(self._found)

    def __repr__(self) -> str:
        if not self._found:
            return "nothing is alive"
        lines = [f"{'kind':12} {'memory':>10} {'age':>8}  what"]
        lines += [f"{o.kind:12} {in_units(o.bytes):>10} {o.age_s:>6.1f} s  {o.words}" for o in self._found]
        return "\n".join([*lines, f"{'together':12} {in_units(self.total_bytes):>10}"])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(o.kind)}</td><td>{in_units(o.bytes)}</td><td>{o.age_s:.1f} s</td>"
            f"<td>{escape(o.words)}</td></tr>"
            for o in self._found
        )
        head = "<tr><th>kind</th><th>memory</th><th>age</th><th>what</th></tr>"
        return f"<table>{head}{rows}<tr><td>together</td><td>{in_units(self.total_bytes)}</td></tr></table>"


@dataclass(slots=True)
class _Entry:
    reference: weakref.ref[Any]
    kind: str
    born: float
    size: Callable[[Any], int]


# By id. No lock: a collection may end an object in the middle of any line here, and each line is one step of the dict.
_LIVE: dict[int, _Entry] = {}


def born(thing: Thing, kind: str, size: Callable[[Thing], int]) -> None:
    """`thing` was made. `size` says how many bytes it holds; it must not hold `thing` itself."""
    key = id(thing)
    _LIVE[key] = _Entry(weakref.ref(thing, lambda _: _LIVE.pop(key, None)), kind, monotonic(), size)


def died(thing: object) -> None:
    """`thing` was closed: it holds nothing any more. May be said twice."""
    _LIVE.pop(id(thing), None)


def live_objects() -> LiveObjects:
    """What was made by this process and is neither closed nor dropped: `Model`, `Generator`, `MtpGenerator`, `Engine`,
    `Request`, `Adapters`.

    The bytes are each object's own: a model's files, a generator's cache (reserved for `max_length` tokens; memory is
    used as tokens arrive), an engine's rows, of a request the tokens that it has in them (already counted in the
    engine's), adapters' files.

    >>> from genai_lab.lifecycle import live_objects
    >>> len(live_objects()) >= 0
    True
    """
    now, found = monotonic(), []
    for entry in sorted(_LIVE.values(), key=lambda entry: entry.born):
        thing = entry.reference()
        if thing is not None:
            found.append(LiveObject(entry.kind, entry.size(thing), now - entry.born, repr(thing)))
    return LiveObjects(found)


def in_units(size: int) -> str:
    """Bytes, as a person reads them.

    >>> in_units(512), in_units(3 * 2**20)
    ('512 B', '3.0 MiB')
    """
    if size < 1024:
        return f"{size} B"
    amount, unit = float(size), 0
    while amount >= 1024 and unit < 3:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {('', 'KiB', 'MiB', 'GiB')[unit]}"
