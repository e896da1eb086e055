"""A conversation as the text a chat model was trained on: the model's own Jinja template, rendered as Hugging Face
does.

Receives template text, messages and tools, returns a string. It knows no token ids, except that templates may use the
special tokens' text. Rules of rendering: https://huggingface.co/docs/transformers/chat_templating_writing
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn, TypeAlias

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from genai_lab.errors import ArgumentError, ArgumentTypeError, TemplateError
from genai_lab.tokenizer.sandbox import BoundedEnvironment
from genai_lab.tokenizer.text import checked_text

Message: TypeAlias = Mapping[str, Any]
"""One turn, usually `{"role": "user", "content": "..."}`."""

MAX_TEMPLATE_CHARS: Final = 2**20
_FILE_NAME: Final = "<template>"  # the file name Jinja gives to compiled templates


class _TemplateRaisedError(jinja2.TemplateError):
    """The template itself refused, by `raise_exception`."""


class _GenerationTag(Extension):
    """`{% generation %}` marks what the model is to learn when training. For rendering it is a block like any other."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_unchanged"), [], [], body).set_lineno(lineno)

    def _unchanged(self, caller: Callable[[], str]) -> str:
        return caller()


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is; Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> NoReturn:
    raise _TemplateRaisedError(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


class _ChatEnvironment(BoundedEnvironment):
    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self.add_filter("tojson", _to_json)
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: Jinja text, at most `MAX_TEMPLATE_CHARS` characters.
        name: what messages of errors call it.

    Raises:
        TemplateError: too long, or not Jinja; names the line.

    Example:
        >>> template = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
        >>> template.render([{"role": "user", "content": "Hi"}])
        '<user>Hi'
    """

    def __init__(self, source: str, name: str = "the chat template") -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateError(f"{name} has {len(source):,} characters; at most {MAX_TEMPLATE_CHARS:,} are allowed.")
        self._name, self._source = name, source
        self._environment = _ChatEnvironment()
        try:
            self._template = self._environment.from_string(source)
        except Exception as error:  # whatever the parser trips over is the template's fault
            raise self._error(error) from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        special_tokens: Mapping[str, Any] | None = None,
        **variables: Any,
    ) -> str:
        """The conversation as text.

        Args:
            messages: the turns, oldest first.
            tools: JSON schemas of the functions the model may call.
            add_generation_prompt: end with the start of an answer.
            special_tokens: `bos_token` and its like, as text.
            variables: what else this template understands, such as `enable_thinking`.

        Raises:
            TemplateError: the template fails, refuses the messages, or wants too much time or memory; names the line.
        """
        given = dict(special_tokens or {}) | dict(variables)
        given |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        given.setdefault("documents", None)
        try:
            return self._environment.render(self._template, given)
        except Exception as error:  # templates are foreign code: any error in them is the template's
            raise self._error(error) from error

    def _error(self, error: Exception) -> TemplateError:
        line = _line_of(error)
        lines = self._source.splitlines()
        where = f", line {line}" if line else ""
        shown = f" ({lines[line - 1].strip():.80})" if line and line <= len(lines) else ""
        if isinstance(error, _TemplateRaisedError):
            return TemplateError(
                f"{self._name}{where}, refuses these messages: {str(error.message).rstrip('.')}. Change the messages, "
                f"or pass another as template_str=."
            )
        text = str(error.message) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
        return TemplateError(
            f"{self._name}{where}{shown}: {text.rstrip('.')}. Correct it, or pass another as template_str=."
        )


def _line_of(error: Exception) -> int | None:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE_NAME]
    return lines[-1] if lines else None


# ---- what people hand over


def as_messages(messages: object) -> list[dict[str, Any]]:
    """Messages as a list of dicts, from such a list or from its JSON text.

    Raises:
        ArgumentError, ArgumentTypeError: says which message is wrong.
    """
    items = _from_json(messages, "messages") if isinstance(messages, str) else messages
    if isinstance(items, Mapping | bytes) or not isinstance(items, Iterable):
        raise ArgumentTypeError(
            f"messages is {type(items).__name__}; a list of dicts such as {{'role': 'user', 'content': '...'}}, or its "
            f"JSON text, is allowed."
        )
    checked: list[dict[str, Any]] = []
    for position, message in enumerate(items):
        if not isinstance(message, Mapping) or not isinstance(message.get("role", ""), str):
            raise ArgumentTypeError(
                f"messages[{position}] is {message!r:.60}; a dict with a string 'role', and usually 'content', is "
                f"allowed."
            )
        for key in ("role", "content"):
            if isinstance(message.get(key), str):
                checked_text(message[key], f"messages[{position}][{key!r}]")
        checked.append(dict(message))
    return checked


def check_complete(messages: Sequence[Message], source: str) -> None:
    """Refuse a message without what the template reads from each: a role, and something that is said. Tool calls and
    whatever else the template's text mentions count as said.

    Raises:
        ArgumentError: says which message lacks what.
    """
    for position, message in enumerate(messages):
        said = [key for key, value in message.items() if key != "role" and value is not None and key in source]
        lacking = "role" if "role" not in message and "role" in source else None
        if not said and "content" in source:
            lacking = "content"
        if lacking is not None:
            raise ArgumentError(
                f"messages[{position}] is {dict(message)!r:.80}, without {lacking!r}; a message is a dict such as "
                f"{{'role': 'user', 'content': '...'}}. Add its {lacking!r}."
            )


def as_tools(tools: object) -> list[Any] | None:
    """Tools as a list, from a list of dicts or from its JSON text; None when there are none.

    Raises:
        ArgumentError, ArgumentTypeError: says what is wrong.
    """
    items = _from_json(tools, "tools") if isinstance(tools, str) and tools else tools
    if not items:
        return None
    if not isinstance(items, Sequence) or not all(isinstance(item, Mapping) for item in items):
        raise ArgumentTypeError(
            f"tools is {items!r:.60}; a list of JSON schemas as dicts, or its JSON text, is allowed. For a function "
            f"write its schema."
        )
    return list(items)


def _from_json(text: str, argument: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            f"{argument} is text but not JSON ({error}); the JSON text of a list, or the list itself, is allowed."
        ) from error
