"""What onnxruntime-genai's Python module offers, member by member, and whether ours can be called in the same ways.

Receives the two modules. A member is a function, a constructor `Class()`, a method, a property or a value of an enum.
Signatures come from the text that pybind11 writes into docstrings; arguments called arg0, arg1 have no name there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

NOT_MEMBERS = {"__getstate__", "__setstate__", "__module__", "__entries", "_pybind11_conduit_v1_"}
"""What pybind11 adds for itself, and for pickling."""
OPERATORS = {"__eq__", "__ne__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__"}
"""What every object has; members only of classes that define them."""
LINE = re.compile(r"^(?:\d+\. )?(\w+)\((.*)\)(?: -> (.*))?$")
NAMELESS = re.compile(r"arg\d+$")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of one way to call."""

    name: str | None  # None: by position only
    required: bool
    keyword_only: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One thing that og has."""

    owner: str  # a class, or "" for a function
    name: str  # "()" for a constructor
    kind: str  # function, constructor, method, static method, property, value
    ways: tuple[tuple[Parameter, ...], ...] = ()  # of calling it, without self
    open_ended: bool = False  # *args or **kwargs

    @property
    def id(self) -> str:
        """As the tables name it: `Model()`, `Model.type`, `set_log_options`."""
        if self.name == "()":
            return f"{self.owner}()"
        return f"{self.owner}.{self.name}" if self.owner else self.name


def members(og: ModuleType) -> list[Member]:
    """Every public member, functions first, then class by class."""
    found: list[Member] = []
    public = sorted(name for name in vars(og) if not name.startswith("_"))
    for name in public:
        if inspect.isbuiltin(vars(og)[name]) or inspect.isfunction(vars(og)[name]):
            found.append(_callable("", name, "function", vars(og)[name].__doc__))
    for name in public:
        if isinstance(vars(og)[name], type):
            found += _of_class(name, vars(og)[name])
    return found


def _of_class(owner: str, cls: type) -> Iterator[Member]:
    if "__init__" in vars(cls) and cls.__init__.__doc__ and "self:" in cls.__init__.__doc__:  # type: ignore[misc]
        yield _callable(owner, "()", "constructor", cls.__init__.__doc__)  # type: ignore[misc]
    for name in sorted(set(dir(cls)) - set(dir(object)) | (set(vars(cls)) & OPERATORS)):
        if name in NOT_MEMBERS:
            continue
        value = inspect.getattr_static(cls, name)
        if isinstance(value, cls):
            yield Member(owner, name, "value")
        elif isinstance(value, staticmethod):
            yield _callable(owner, name, "static method", getattr(cls, name).__doc__)
        elif callable(value):
            yield _callable(owner, name, "method", value.__doc__)
        else:
            yield Member(owner, name, "property")


def _callable(owner: str, name: str, kind: str, doc: str | None) -> Member:
    lines = [match for line in (doc or "").splitlines() if (match := LINE.match(line.strip()))]
    texts = [match[2] for match in lines if match[2] != "*args, **kwargs"] or [match[2] for match in lines]
    ways = tuple(_parameters(text) for text in texts)
    return Member(owner, name, kind, ways, any("*args" in text or "**kwargs" in text for text in texts))


def _parameters(text: str) -> tuple[Parameter, ...]:
    """`self: A, arg0: str, *, options: B = None` -> arg0 by position, options by keyword.

    >>> [(p.name, p.required, p.keyword_only) for p in _parameters("self: A, arg0: str, *, options: B = None")]
    [(None, True, False), ('options', False, True)]
    """
    found: list[Parameter] = []
    keyword_only = False
    for part in _split(text):
        name, _, rest = part.partition(":")
        if name == "*":
            keyword_only = True
        elif name == "/":  # what stands before it has no name for callers
            found = [Parameter(None, parameter.required) for parameter in found]
        elif name != "self" and not name.startswith("*"):
            nameless = NAMELESS.match(name) is not None
            found.append(Parameter(None if nameless else name, "=" not in rest, keyword_only))
    return tuple(found)


def _split(text: str) -> list[str]:
    """At commas that stand outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def find(ours: ModuleType, member: Member) -> Any:
    """Our counterpart, unbound; None when there is none."""
    if not member.owner:
        return getattr(ours, member.name, None)
    cls = getattr(ours, member.owner, None)
    if cls is None or member.name == "()":
        return cls
    missing = object()
    value = inspect.getattr_static(cls, member.name, missing)
    if value is missing:
        return getattr(cls, member.name, None) if hasattr(cls, member.name) else None
    return value


def differences(ours: ModuleType, member: Member) -> list[str]:
    """What of og's ways to name or call a member is not possible here; the types of arguments are not looked at."""
    mine = find(ours, member)
    if mine is None:
        return [f"{member.id} does not exist"]
    if member.kind in ("property", "value"):
        return [] if not inspect.isfunction(mine) else [f"{member.id} is a function, not a {member.kind}"]
    function = mine.__func__ if isinstance(mine, staticmethod | classmethod) else mine
    try:
        signature = inspect.signature(function)
    except ValueError:  # a built-in of the interpreter, such as an enum's operator
        return []
    has_self = member.kind == "method" or isinstance(mine, classmethod)
    return [
        f"{member.id}({_shown(way, named, full)}): {error}"
        for way in member.ways
        for named in (False, True)
        for full in (False, True)
        if (error := _refused(signature, way, named, full, has_self))
    ]


def _refused(
    signature: inspect.Signature, way: tuple[Parameter, ...], named: bool, full: bool, has_self: bool
) -> str | None:
    """Why a call of that form is not possible; None when it is. `named`: what has a name is given by it."""
    given = [parameter for parameter in way if full or parameter.required]
    by_place = [p for p in given if not p.keyword_only and (p.name is None or not named)]
    by_name = {p.name: None for p in given if p.name is not None and (p.keyword_only or named)}
    try:
        signature.bind(*[None] * (len(by_place) + has_self), **by_name)
    except TypeError as error:
        return str(error)
    return None


def _shown(way: tuple[Parameter, ...], named: bool, full: bool) -> str:
    given = [p for p in way if full or p.required]
    return ", ".join(f"{p.name}=" if p.name and (named or p.keyword_only) else p.name or "_" for p in given)
