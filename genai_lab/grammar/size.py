r"""How large an expression gets when its repetitions are written out: `(ab{3}){2}` is 8.

Receives the text of a regular expression, a JSON schema or a Lark grammar, returns a number. The library's own limits
do not see this size, and the work before the first token grows with its square: a short text could cost minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from genai_lab.errors import GrammarError

MAX_UNROLLED: Final = 250_000

_REPEAT: Final = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}|~\s*(\d+)(?:\s*\.\.\s*(\d+))?")
_NAME: Final = re.compile(r"[A-Z_][A-Z_0-9]*|[a-z_0-9.]+|%\w+")
_TERMINAL: Final = re.compile(r"^[ \t]*([A-Z_][A-Z_0-9]*)(?:\.-?\d+)?(?:\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
_RULE: Final = re.compile(r"^[ \t]*[?!]?[A-Za-z_][A-Za-z_0-9]*(?:\.-?\d+)?(?:\[[^\]\n]*\])?[ \t]*:|^%", re.MULTILINE)
_NO_NAMES: Final[dict[str, int]] = {}


def check_size(kind: str, text: str, document: Any = None) -> None:
    """Raises GrammarError when the expression is too large.

    Args:
        document: a JSON schema's parsed text.
    """
    size = {"regex": regex_size, "lark_grammar": lark_size}.get(kind, lambda _: schema_size(document))(text)
    if size > MAX_UNROLLED:
        raise GrammarError(
            f"set_guidance: the {kind} is too large: with its repetitions written out it has {min(size, 10**18):,} "
            f"parts, at most {MAX_UNROLLED:,} are allowed. Make the counts in braces smaller, or write * in their place"
        )


def regex_size(text: str) -> int:
    r"""Of a regular expression.

    >>> regex_size("(ab{3}){2}"), regex_size(r"[a-z]{10}\{9}")
    (8, 13)
    """
    return _size(text, _NO_NAMES.get, is_lark=False)


def schema_size(document: Any) -> int:
    """Of the largest string in a JSON schema, read as a pattern."""
    return max((regex_size(text) for text in _strings(document)), default=0)


def lark_size(text: str) -> int:
    """Of the largest line of a Lark grammar; names of terminals count as what they stand for."""
    lines = _terminals(text)
    known: dict[str, int] = {}

    def size_of(name: str) -> int:
        if name not in known:
            known[name] = 1  # while it is being counted: a terminal inside itself is an error anyway
            known[name] = _size(lines.get(name, ""), size_of, is_lark=True)
        return known[name]

    try:
        whole = max(_size(_RULE.sub("", line), size_of, is_lark=True) for line in text.split("\n"))
        return max(whole, *map(size_of, lines), 0)
    except RecursionError as error:
        raise GrammarError("set_guidance: terminals of the lark_grammar are nested too deeply; flatten them") from error


def _terminals(text: str) -> dict[str, str]:
    """The right side of each terminal."""
    found: dict[str, str] = {}
    for match in _TERMINAL.finditer(text):
        end = _RULE.search(text, match.end())
        found[match[1]] = text[match.end() : end.start() if end else len(text)]
    return found


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            waiting += part


def _size(text: str, size_of: Callable[[str], int | None], *, is_lark: bool) -> int:
    groups, last, i = [0], 0, 0
    while i < len(text):
        repeat = _REPEAT.match(text, i) if text[i] in "{~" else None
        if repeat:
            times = _count(repeat)
            groups[-1] += last * (times - 1)
            last, i = last * times, repeat.end()
            continue
        if text[i] == "(":
            groups.append(0)
            i += 1
            continue
        if text[i] == ")":
            item, i = groups.pop(), i + 1
            groups = groups or [0]
        else:
            item, i = _item(text, i, size_of, is_lark)
        if item:
            groups[-1], last = groups[-1] + item, item
    return sum(groups)


def _item(text: str, i: int, size_of: Callable[[str], int | None], is_lark: bool) -> tuple[int, int]:
    """The size of what stands at `i`, and where the next thing is; size 0 for what is only form."""
    c = text[i]
    if not is_lark:
        if c == "[":
            return 1, _closing(text, i, "]")
        return (0 if c in "*+?|^$" else 1), i + (2 if c == "\\" else 1)
    if c in '"/':
        end = _closing(text, i, c)
        inner = text[i + 1 : end - 1]
        return (len(inner) if c == '"' else regex_size(inner)), end
    name = _NAME.match(text, i)
    return (size_of(name[0]) or 1, name.end()) if name else (0, i + 1)


def _closing(text: str, i: int, mark: str) -> int:
    """Behind the `mark` that closes what `i` opens."""
    i += 1
    while i < len(text) and text[i] != mark:
        i += 2 if text[i] == "\\" else 1
    return min(i + 1, len(text))


def _count(repeat: re.Match[str]) -> int:
    """The larger of a repetition's counts."""
    numbers = [digits for digits in repeat.groups() if digits]
    return max((int(digits) if len(digits) < 10 else 10**9 for digits in numbers), default=1)
