"""Where a grammar is wrong. Receives its text and what the library says; raises a `GrammarError` that points there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from genai_lab.errors import GrammarError
from genai_lab.grammar.size import check_size

Compiled = Callable[[str, str], tuple[Any, str]]
"""(kind, text) -> (what came out, the library's error or "")."""

MAX_LOOKED_AT: Final = 200  # parts of a schema that are compiled alone to find the wrong one
MAX_SHOWN: Final = 120  # characters of a line

_LARK_PLACE: Final = re.compile(r"^(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)
_REGEX_ERROR: Final = re.compile(r"^error: (.*)", re.MULTILINE)


def describe(kind: str, text: str, compiled: Compiled) -> Any:
    """What `compiled` makes of the text.

    Raises:
        GrammarError: it is wrong; the message has the place, and how to put it right as far as that is known.
    """
    document = _json(text) if kind == "json_schema" else None
    check_size(kind, text, document)
    try:
        made, words = compiled(kind, text)
    except (ValueError, RecursionError) as error:
        made, words = None, str(error)
    if not words:
        return made
    if kind == "json_schema":
        raise _schema_error(document, words, compiled)
    raise _regex_error(text, words) if kind == "regex" else _lark_error(text, words)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise GrammarError(
            f"set_guidance: the json_schema is not JSON at line {error.lineno}, column {error.colno}: {error.msg}.\n"
            f"{_pointed_at(text, error.lineno, error.colno)}"
        ) from error
    except RecursionError as error:
        raise GrammarError("set_guidance: the json_schema is nested too deeply; flatten it") from error


def _schema_error(document: Any, words: str, compiled: Compiled) -> GrammarError:
    path = _path_of(document, words, compiled)
    where = "at its top" if not path else f"at ${''.join(path)}"
    return GrammarError(f"set_guidance: the json_schema is wrong {where}: {_reason(words)}")


def _path_of(document: Any, words: str, compiled: Compiled) -> list[str]:
    """The deepest part that fails with the same words when it stands alone."""
    path: list[str] = []
    budget = MAX_LOOKED_AT
    parts = _parts(document)
    while True:
        for step, part in parts:
            budget -= 1
            if budget < 0:
                return path
            if _words(part, compiled) == words:
                path.append(step)
                parts = _parts(part)
                break
        else:
            return path


def _words(part: Any, compiled: Compiled) -> str:
    try:
        return compiled("json_schema", json.dumps(part))[1]
    except (ValueError, RecursionError) as error:
        return str(error)


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside a schema, each with its step of a JSON path."""
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
            inner = value.items() if isinstance(value, dict) else ()
            yield from ((f".{key}.{name}", part) for name, part in inner)
        elif key in ("anyOf", "allOf", "oneOf", "prefixItems"):
            yield from ((f".{key}[{i}]", part) for i, part in enumerate(value if isinstance(value, list) else ()))
        elif key in ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"):
            yield f".{key}", value


def _regex_error(text: str, words: str) -> GrammarError:
    column = _caret_column(words)
    if column is not None and "\n" not in text:
        return GrammarError(
            f"set_guidance: the regex is wrong at column {column}: {_reason(words)}.\n{_pointed_at(text, 1, column)}"
        )
    return GrammarError(f"set_guidance: the regex {text!r:.{MAX_SHOWN}} is wrong: {_reason(words)}")


def _caret_column(words: str) -> int | None:
    """The 1-based column of the caret under a one-line expression, which the library indents by four."""
    lines = words.split("\n")
    for line in lines[1:]:
        if line.strip() and not line.strip(" ^"):
            return line.index("^") - 3
    return None


def _lark_error(text: str, words: str) -> GrammarError:
    place = _LARK_PLACE.match(words)
    if place is None:
        return GrammarError(f"set_guidance: the lark_grammar is wrong: {_reason(words)}")
    line, column = int(place[1]), int(place[2])
    return GrammarError(
        f"set_guidance: the lark_grammar is wrong at line {line}, column {column}: {_reason(place[3])}.\n"
        f"{_pointed_at(text, line, column)}"
    )


def _reason(words: str) -> str:
    inner = _REGEX_ERROR.search(words)
    return (inner[1] if inner else words.strip().split("\n", 1)[0])[:400].rstrip(".")


def _pointed_at(text: str, line: int, column: int) -> str:
    """The line with a mark under the column; a long one around it only."""
    lines = text.split("\n")
    shown = lines[line - 1] if 0 < line <= len(lines) else ""
    first = max(0, column - 1 - MAX_SHOWN // 2)
    return f"    {shown[first : first + MAX_SHOWN]}\n    {' ' * (column - 1 - first)}^"
