"""A running log of a generation in text (og's set_log_options and set_log_callback). Off unless somebody asks for it.

For a record that can be inspected, use `genai_lab.record()`; this is for a look at a script that somebody else wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_lab.config import SearchOptions
from genai_lab.errors import ArgumentError, ArgumentTypeError, OutputError, StateError
from genai_lab.models import Model
from genai_lab.types import FinishReason

FLAGS = (
    "enabled",
    "ansi_tags",
    "warning",
    "generate_next_token",
    "append_next_tokens",
    "hit_eos",
    "hit_max_length",
    "model_input_values",
    "model_output_shapes",
    "model_output_values",
    "model_logits",
    "ort_lib",
)
_SHOWN = 8  # numbers of an array


class Watched(Protocol):
    """What the log looks at."""

    model: Model

    @property
    def token_count(self) -> int: ...
    @property
    def next_tokens(self) -> NDArray[np.int32]: ...
    @property
    def finish(self) -> FinishReason | None: ...
    def sequence(self, index: int, /) -> NDArray[np.int32]: ...
    def input(self, name: str, /) -> NDArray[Any]: ...
    def output(self, name: str, /) -> NDArray[Any]: ...


@dataclass(slots=True)
class Log:
    """What is logged, and to whom."""

    flags: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(FLAGS, False) | {"warning": True})
    write: Callable[[str], None] | None = None  # None: standard error
    file: Path | None = None

    def wants(self, kind: str) -> bool:
        """Whether lines of that kind are written."""
        return self.flags["enabled"] and self.flags[kind]

    def say(self, kind: str, text: str) -> None:
        """One line."""
        line = f"  {kind}   {text}\n"
        if self.write is not None:
            self.write(line)
        elif self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(line)
        else:
            sys.stderr.write(line)


LOG = Log()


def set_log_options(**options: bool | str) -> None:
    """Choose what is logged, by name; all or none are changed.

    Args:
        enabled: the switch of the whole log.
        append_next_tokens, generate_next_token, hit_eos, hit_max_length: what happens to the sequence.
        model_input_values, model_output_shapes, model_output_values, model_logits: what a run was given and gave.
        filename: a file that lines are appended to, in place of a callback; "" for standard error again.
        ansi_tags, warning, ort_lib: accepted; they change nothing here.

    Raises:
        ArgumentError: no such option.
        ArgumentTypeError: not a bool (or, for filename, not a string).
    """
    for name, value in options.items():
        if name != "filename" and name not in FLAGS:
            raise ArgumentError(
                f"set_log_options: there is no option {name!r}; allowed are {', '.join(FLAGS)}, filename"
            )
        wanted = str if name == "filename" else bool
        if not isinstance(value, wanted):
            raise ArgumentTypeError(f"set_log_options: {name} is {value!r}; a {wanted.__name__} is allowed")
    filename = options.pop("filename", None)
    if filename is not None:
        LOG.file = _writable(str(filename)) if filename else None
        LOG.write = None if filename else LOG.write
    LOG.flags |= {name: bool(value) for name, value in options.items()}


def set_log_callback(callback: Callable[[str], None] | None) -> None:
    """Hand every line of the log to a function, in place of a file; None: to standard error, or to a file that was
    named later."""
    if callback is not None and not callable(callback):
        raise ArgumentTypeError(f"set_log_callback: got {type(callback).__name__}; a function or None is allowed")
    LOG.write = callback
    LOG.file = LOG.file if callback is None else None


def _writable(filename: str) -> Path:
    path = Path(filename)
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise OutputError(f"set_log_options: filename {filename!r} cannot be written ({error.strerror})") from error
    return path


def array_in_words(name: str, value: NDArray[Any], with_values: bool) -> str:
    """An array's name, shape and type, and its first numbers."""
    text = f"{name} {list(value.shape)} {value.dtype}"
    if not with_values or value.size == 0:
        return text
    first = " ".join(f"{number:g}" for number in np.asarray(value, np.float64).reshape(-1)[:_SHOWN])
    return f"{text}: {first}{' ...' if value.size > _SHOWN else ''}"


def log_appended(search: Watched, before: int) -> None:
    """Tokens were appended and read."""
    if LOG.wants("append_next_tokens"):
        LOG.say("append_next_tokens", " ".join(map(str, search.sequence(0)[before:])))
    _log_run(search)


def log_generated(search: Watched, options: SearchOptions, before: int) -> None:
    """A step was taken; `before` it there were so many tokens."""
    if LOG.wants("generate_next_token"):
        LOG.say(
            "generate_next_token",
            f"do_sample: {int(options.do_sample)} top_k: {options.top_k} top_p: {options.top_p:g} temperature: "
            f"{options.temperature:g} sequence length: {before}",
        )
    if LOG.wants("append_next_tokens"):
        LOG.say("append_next_tokens", " ".join(map(str, search.next_tokens)))
    for kind, reason in (("hit_eos", FinishReason.EOS), ("hit_max_length", FinishReason.MAX_SESSION_TOKENS)):
        if search.finish is reason and LOG.wants(kind):
            LOG.say(kind, f"sequence length: {search.token_count}")
    _log_run(search)


def _log_run(search: Watched) -> None:
    session = search.model.graph
    if LOG.wants("model_input_values"):
        for name in session.inputs:
            with suppress(ArgumentError, StateError):  # the rows of a batch are read one after another
                LOG.say("model_input_values", array_in_words(name, search.input(name), True))
    if LOG.wants("model_output_shapes") or LOG.wants("model_output_values"):
        kind = "model_output_values" if LOG.wants("model_output_values") else "model_output_shapes"
        for name in session.outputs:
            LOG.say(kind, array_in_words(name, search.output(name), LOG.wants("model_output_values")))
    if LOG.wants("model_logits"):
        logits = search.output(search.model.config.model.decoder.outputs.logits)
        LOG.say("model_logits", array_in_words("logits", logits[:, -1], True))
