"""A Jinja environment for templates that nobody has checked: no way out to Python, and no way to run or grow
without end.

Receives template text, gives a compiled template whose rendering is counted against a `Budget`: loop and macro rounds,
characters made, and time. It knows nothing of chats; `chat_template` adds what those need.

Jinja's own sandbox keeps attributes and calls safe. What it does not do is count, so loops, slices, `~` and everything
that makes text longer are led through this class, most of them by rewriting the parsed template.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from string import Formatter
from types import BuiltinMethodType, MethodType
from typing import Any, Final

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.visitor import NodeTransformer

MAX_ROUNDS: Final = 200_000
MAX_CHARS: Final = 16 * 2**20
CHARS_PER_INPUT_CHAR: Final = 64
MAX_SECONDS: Final = 5.0
MAX_WIDTH: Final = 1_000
MAX_BITS: Final = 4_096


class Budget:
    """What one rendering may still use up. Every method raises `SecurityError` when it is too much.

    Args:
        input_chars: size of what the template is given; long conversations may cost more.
    """

    def __init__(self, input_chars: int = 0) -> None:
        self._rounds = MAX_ROUNDS
        self._chars = MAX_CHARS + CHARS_PER_INPUT_CHAR * input_chars
        self._deadline = time.monotonic() + MAX_SECONDS

    def round(self) -> None:
        self._rounds -= 1
        if self._rounds < 0:
            raise SecurityError(f"more than {MAX_ROUNDS:,} rounds of loops and macros")
        if time.monotonic() > self._deadline:
            raise SecurityError(f"more than {MAX_SECONDS:g} seconds")

    def chars(self, count: int) -> None:
        self._chars -= max(count, 0)
        if self._chars < 0:
            raise SecurityError("more text is made than the size of the input can explain")

    def written(self, value: object) -> None:
        """Count a value as the text that it becomes."""
        self.chars(size_as_text(value, self._chars))


_budget: ContextVar[Budget] = ContextVar("budget")


def size_as_text(value: object, limit: int) -> int:
    """About how many characters a value has when written out. Nested values count as often as they occur, so a small
    structure that refers to itself many times over is seen for what it would become; counting stops at `limit`."""
    total, depth, level = 0, 1, [value]
    while level and total <= limit:
        inner: list[object] = []
        for item in level:
            total += len(item) if isinstance(item, str | bytes) else depth
            if isinstance(item, Mapping):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple | set | frozenset):
                inner += item
            if total + len(inner) > limit:
                return total + len(inner)
        level, depth = inner, depth + 1
    return total


class _Counting(NodeTransformer):
    """Leads loops, macros, `~` and slices of a parsed template through the environment's counting methods."""

    def _with_round(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._call("count_round", [], node), lineno=node.lineno))
        return node  # type: ignore[no-any-return]

    visit_For = visit_Macro = visit_CallBlock = _with_round

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._call("join_parts", [nodes.List(node.nodes, lineno=node.lineno)], node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        ends = [end or nodes.Const(None, lineno=node.lineno) for end in (node.arg.start, node.arg.stop, node.arg.step)]
        return self._call("take_slice", [node.node, *ends], node)

    @staticmethod
    def _call(method: str, arguments: list[Any], node: nodes.Node) -> nodes.Call:
        function = nodes.EnvironmentAttribute(method, lineno=node.lineno)
        return nodes.Call(function, arguments, [], None, None, lineno=node.lineno)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox. Compile with `from_string`, render with `render`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(optimized=False, finalize=_count_output, **options)  # folding constants would not be counted
        self.concat = _concat  # type: ignore[method-assign]
        self.globals.pop("lipsum", None)
        self.globals["range"] = _range
        self.filters = {name: _counted_filter(name, function) for name, function in self.filters.items()}

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        self.filters[name] = _counted_filter(name, function)

    def render(self, template: Any, variables: Mapping[str, Any]) -> str:
        """The text of a template made by this environment; `variables` count as its input."""
        token = _budget.set(Budget(size_as_text(dict(variables), limit=2**40)))
        try:
            return str(template.render(variables))
        finally:
            _budget.reset(token)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _Counting().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree  # type: ignore[no-any-return]

    # ---- what rewritten templates call

    def count_round(self) -> None:
        _budget.get().round()

    def join_parts(self, parts: list[Any]) -> str:
        _budget.get().written(parts)
        return "".join(map(str, parts))

    def take_slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        return _counted(value[slice(start, stop, step)])

    # ---- what Jinja's compiled code calls

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_binop(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            _budget.get().chars(_size_after(owner, getattr(function, "__name__", ""), args, kwargs))
        return _counted(super().call(context, function, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if not isinstance(value, MethodType | BuiltinMethodType) or value.__name__ not in ("format", "format_map"):
            return None
        if not isinstance(value.__self__, str):
            return None
        text, formatter = str(value.__self__), _BoundedFormatter(self)

        def format(*args: Any, **kwargs: Any) -> str:
            return _counted(Formatter.vformat(formatter, text, args, kwargs))  # type: ignore[no-any-return]

        def format_map(mapping: Mapping[str, Any]) -> str:
            return format(**mapping)

        return format if value.__name__ == "format" else format_map


class _BoundedFormatter(SandboxedFormatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        _check_width(format_spec)
        _budget.get().written(value)
        return super().format_field(value, format_spec)


# ---- counting


def _counted(value: Any) -> Any:
    if isinstance(value, str | bytes | list | tuple | dict | set):
        _budget.get().chars(len(value))
    return value


def _count_output(value: Any) -> Any:
    if not isinstance(value, str):
        _budget.get().written(value)
    return value


def _concat(parts: Iterable[str]) -> str:
    budget, kept = _budget.get(), []
    for part in parts:
        budget.chars(len(part))
        kept.append(part)
    return "".join(kept)


def _range(*ends: int) -> range:
    numbers = range(*ends)
    if abs((numbers.stop - numbers.start) // numbers.step) > MAX_ROUNDS:
        raise SecurityError(f"range of more than {MAX_ROUNDS:,} numbers")
    return numbers


def _check_binop(operator: str, left: Any, right: Any) -> None:
    budget = _budget.get()
    if operator == "%" and isinstance(left, str):
        _check_percent_format(left)
        budget.written([left, right])
    elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        if bits > MAX_BITS:
            raise SecurityError(f"a number of more than {MAX_BITS:,} bits")
    elif operator in ("+", "*"):
        sizes = [len(side) if isinstance(side, str | list | tuple) else side for side in (left, right)]
        if any(isinstance(side, str | list | tuple) for side in (left, right)) and all(
            isinstance(size, int) for size in sizes
        ):
            budget.chars(sizes[0] + sizes[1] if operator == "+" else sizes[0] * max(sizes[1], 0))


def _check_width(format_spec: str) -> None:
    """Refuse a format that pads to a great width, as `{:1000000}` and `%1000000d` do, or to one not known (`%*d`)."""
    if "*" in format_spec or any(int(digits[:9]) > MAX_WIDTH for digits in re.findall(r"\d+", format_spec)):
        raise SecurityError(f"a format wider than {MAX_WIDTH:,} characters")


def _check_percent_format(text: str) -> None:
    for spec in re.findall(r"%[^%a-zA-Z]*", text):
        _check_width(spec)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _size_after(text: str, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """An upper bound of what a method of a string makes out of it."""
    given = [*args, *kwargs.values()]
    match method:
        case "replace" if len(given) >= 2 and all(isinstance(part, str) for part in given[:2]):
            return len(text) + text.count(given[0]) * len(given[1])
        case "join" if given and isinstance(given[0], list | tuple | dict | set):
            return sum(map(len, filter(_is_text, given[0]))) + len(text) * len(given[0])
        case "ljust" | "rjust" | "center" | "zfill":
            return len(text) + max((n for n in given if isinstance(n, int)), default=0)
        case "expandtabs":
            return len(text) + text.count("\t") * max((n for n in given if isinstance(n, int)), default=8)
        case "translate":
            raise SecurityError("str.translate")
    return len(text)


_WIDE_FILTERS: Final = frozenset({"batch", "center", "indent", "round", "slice", "tojson", "truncate", "wordwrap"})
_WRITING_FILTERS: Final = frozenset({"format", "join", "pprint", "string", "tojson", "urlencode", "xmlattr"})


def _counted_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    first = 1 if hasattr(function, "jinja_pass_arg") else 0  # Jinja puts its own context before the value

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        _check_filter(name, args[first:], kwargs)
        return _counted(function(*args, **kwargs))

    return counted


def _check_filter(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    value, options = args[0] if args else None, [*args[1:], *kwargs.values()]
    budget = _budget.get()
    if name in _WIDE_FILTERS and any(isinstance(n, int) and abs(n) > MAX_WIDTH for n in options):
        raise SecurityError(f"filter {name} with a number above {MAX_WIDTH:,}")
    if name in _WRITING_FILTERS and not isinstance(value, Undefined):
        budget.written([value, options])
    if name == "format" and isinstance(value, str):
        _check_percent_format(value)
    if name == "replace" and len(options) >= 2:
        budget.chars(_size_after(str(value), "replace", (str(options[0]), str(options[1])), {}))
    if name == "join" and options and isinstance(value, list | tuple | dict | set):
        budget.chars(len(str(options[0])) * len(value))
    if name == "indent" and options:
        width = len(options[0]) if isinstance(options[0], str) else options[0]
        budget.chars((str(value).count("\n") + 1) * int(width))
