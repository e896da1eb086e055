"""A person's own logits processor, sampler and stopping rule: any callable, called with care.

Receives callables; gives them what they may read, checks what they return, and says which one failed, at which of its
lines. Nothing they return is trusted, nothing they keep can change a generator.

    processor   fn(tokens, logits) -> None (changed in place) or new logits     tokens int32 [n], logits float32 [V]
    sampler     fn(logits, rng) -> token                                        rng: numpy.random.Generator
    stopping    fn(tokens) -> bool or str (the reason)                          asked after every token but an end token
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import CallableError
from genai_lab.sampling.processors import History
from genai_lab.sampling.random_stream import RandomStream
from genai_lab.sampling.sampler import Choice, softmax

ProcessorFunction: TypeAlias = Callable[[NDArray[np.int32], NDArray[np.float32]], Any]
SamplerFunction: TypeAlias = Callable[[NDArray[np.float32], np.random.Generator], Any]
StoppingFunction: TypeAlias = Callable[[NDArray[np.int32]], Any]

_MAX_REASON = 200  # characters of a stopping rule's reason


@dataclass(frozen=True, slots=True)
class OwnProcessor:
    """A logits processor of a person's own."""

    function: ProcessorFunction
    name: str

    def __call__(self, logits: NDArray[np.float32], history: History) -> NDArray[np.int32]:
        """Calls it; returns which ids it changed, [k]."""
        before = logits.copy()
        self.run(logits, history)
        return np.flatnonzero(before != logits).astype(np.int32)

    def run(self, logits: NDArray[np.float32], history: History) -> None:
        """Calls it and looks no further: what it changed is of interest to a recording only."""
        answer = self._call(logits, read_only(history.tokens))
        if answer is not None and answer is not logits:
            logits[:] = self._checked(answer, logits.size)
        highest = float(logits.max())
        if not np.isfinite(highest):
            self._refuse(_what_is_wrong(logits))

    def _call(self, logits: NDArray[np.float32], tokens: NDArray[np.int32]) -> Any:
        try:
            return self.function(tokens, logits)
        except (Exception, SystemExit) as error:
            raise_named("logits processor", self.name, self.function, error)

    def _checked(self, answer: object, vocab_size: int) -> NDArray[np.float32]:
        if not isinstance(answer, np.ndarray):
            self._refuse(f"{type(answer).__name__} {answer!r:.40}")
        if answer.shape != (vocab_size,):
            self._refuse(f"an array of the shape {answer.shape}")
        if answer.dtype.kind != "f":
            self._refuse(f"an array of {answer.dtype}")
        with np.errstate(over="ignore"):
            values: NDArray[np.float32] = answer.astype(np.float32)
        return values

    def _refuse(self, what: str) -> NoReturn:
        raise CallableError(
            f"the logits processor {self.name!r} returned {what}; allowed are None, after changing the logits in "
            "place, or float logits [V] of which one at least is finite and none is NaN or +inf (-inf forbids a token)"
        )


@dataclass(frozen=True, slots=True)
class OwnSampler:
    """A sampler of a person's own."""

    function: SamplerFunction
    name: str

    def choose(self, logits: NDArray[np.float32], stream: RandomStream) -> Choice:
        """The token it takes from processed logits [V]; its probability is the one at temperature 1."""
        try:
            token = self.function(read_only(logits), stream.numpy)
        except (Exception, SystemExit) as error:
            raise_named("sampler", self.name, self.function, error)
        if isinstance(token, np.ndarray) and token.size == 1:
            token = token.reshape(())[()]
        if isinstance(token, bool | np.bool_) or not isinstance(token, int | np.integer):
            self._refuse(f"{type(token).__name__} {token!r:.40}", logits.size)
        if not 0 <= token < logits.size:
            self._refuse(str(token), logits.size)
        everything = (logits.size, logits.size, logits.size)
        return Choice(int(token), float(softmax(logits, 1.0)[int(token)]), everything)

    def _refuse(self, what: str, vocab_size: int) -> NoReturn:
        raise CallableError(
            f"the sampler {self.name!r} returned {what}; one token id is allowed, an integer of 0 to {vocab_size - 1}"
        )


@dataclass(frozen=True, slots=True)
class OwnStopping:
    """A stopping rule of a person's own."""

    function: StoppingFunction
    name: str

    def reason(self, tokens: NDArray[np.int32]) -> str | None:
        """Why a sequence of `tokens` [n] is over; None while it goes on."""
        try:
            answer = self.function(read_only(tokens))
        except (Exception, SystemExit) as error:
            raise_named("stopping criterion", self.name, self.function, error)
        if isinstance(answer, str):
            return f"{self.name}: {answer[:_MAX_REASON]}" if answer else None
        if answer is None or isinstance(answer, bool | np.bool_):
            return self.name if answer else None
        raise CallableError(
            f"the stopping criterion {self.name!r} returned {type(answer).__name__} {answer!r:.40}; True, False, None "
            "or a string (the reason) is allowed"
        )


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def raise_named(kind: str, name: str, function: object, error: BaseException) -> NoReturn:
    """Raises a `CallableError` that names the callable and its line."""
    raise CallableError(
        f"the {kind} {name!r} raised {type(error).__name__}: {error}\n{_line_of(function, error)}Nothing was appended; "
        f"correct it, or remove it from the params, and go on"
    ) from error


def _line_of(function: object, error: BaseException) -> str:
    """Where in the callable's own file it happened, with the line itself."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is our call
    if not frames:
        return ""
    code = _code_of(function)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    frame = (own or frames)[-1]
    text = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"  line {frame.lineno} of {frame.filename}, in {frame.name}:\n    {text}\n"


def _code_of(function: object) -> CodeType | None:
    """The code behind a function, a method, a partial or an object that can be called."""
    for candidate in (function, getattr(function, "func", None), vars(type(function)).get("__call__")):
        code = getattr(candidate, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def _what_is_wrong(logits: NDArray[np.float32]) -> str:
    missing = np.flatnonzero(np.isnan(logits))
    if missing.size:
        return f"logits with NaN at {missing.size:,} of {logits.size:,} tokens, the first at {missing[0]}"
    above = np.flatnonzero(logits == np.inf)
    if above.size:
        return f"logits with +inf at {above.size:,} of {logits.size:,} tokens, the first at {above[0]}"
    return "logits that are all -inf"
