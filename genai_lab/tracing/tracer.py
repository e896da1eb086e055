"""What the live rooms say to a recorder, and how they find it.

A live room asks `current_tracer()` once per public call and then says the same things to whatever it got: the null
tracer forgets them, a `Recorder` keeps them. So a plain and a recorded run execute the same statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import TokenMask
from genai_lab.once import once
from genai_lab.tracing.engine_facts import StepFact, TurnFact
from genai_lab.tracing.speculation_facts import Origin, RoundFact


class TokenText(NamedTuple):
    """What one token alone looks like."""

    text: str  # bytes that are no character as `<0xF0>`
    special: bool
    raw: bytes | None = None  # its bytes, when they are not whole characters


Describe = Callable[[Sequence[int]], Sequence[tuple[str, bool] | TokenText]]
"""Token ids -> text, is special (and bytes) of each; asked only when the trace is read."""


@runtime_checkable
class Decodes(Protocol):
    """A `Describe` that can also put tokens together as the tokenizer does."""

    def decode(self, ids: Sequence[int]) -> str: ...


class Change(NamedTuple):
    """What one logits processor did to one row of logits."""

    by: str  # the processor's name
    ids: NDArray[np.int32]  # the ids it changed, [k]
    logits: NDArray[np.float32]  # their new values, [k]


class Masking(NamedTuple):
    """A processor that forbade every token outside a mask, which is kept as bits: a grammar forbids thousands."""

    by: str
    mask: TokenMask


@dataclass(slots=True)
class TokenFact:
    """One generated token, as the step that made it knows it. Nobody changes it; frozen, it would take five times as
    long to make."""

    run: int
    index: int  # 0-based inside the run's answer
    position: int  # index in the whole sequence, prompt included
    token: int
    start_ns: int
    end_ns: int
    final_prob: float  # the probability it was drawn with, after every processor and filter; greedy: 1
    kept: tuple[int, int, int]  # candidates left after top-k, top-p, min-p
    changes: tuple[Change | Masking, ...]
    seen: NDArray[np.int32]  # the distinct ids of the sequence before this token
    forced: bool = False  # nobody chose it: a grammar allowed no other
    origin: Origin = Origin.ALONE


@runtime_checkable
class Tracer(Protocol):
    """The calls a live room makes. Times are `time.perf_counter_ns()` values."""

    enabled: bool

    def open_run(
        self,
        *,
        prompt: NDArray[np.int32],
        settings: Mapping[str, Any],
        model: Mapping[str, Any],
        describe: Describe,
        parent: int | None = None,
        fork: int | None = None,
        forced: int | None = None,
        cached_tokens: int = 0,
        source: object = None,
    ) -> int: ...

    def extend_prompt(self, run: int, tokens: NDArray[np.int32]) -> None: ...

    def close_run(self, run: int, finish: str, error: str | None = None) -> None: ...

    def question(self, text: str) -> None: ...

    def stage(self, run: int, token: int, name: str, start_ns: int, end_ns: int, n: int = 1) -> None: ...

    def token(self, fact: TokenFact, logits: NDArray[np.float32] | None, *, owned: bool = False) -> None: ...

    def claim_engine(self, engine: object) -> bool: ...  # whether this engine, and no other, is recorded here

    def engine_step(self, fact: StepFact) -> None: ...

    def engine_turn(self, fact: TurnFact) -> None: ...

    def speculation(self, fact: RoundFact) -> None: ...


class NullTracer:
    """Forgets everything; the tracer of a run that nobody records."""

    enabled = False

    def open_run(self, **_facts: Any) -> int:
        return 0

    def extend_prompt(self, run: int, tokens: NDArray[np.int32]) -> None:
        pass

    def close_run(self, run: int, finish: str, error: str | None = None) -> None:
        pass

    def question(self, text: str) -> None:
        pass

    def stage(self, run: int, token: int, name: str, start_ns: int, end_ns: int, n: int = 1) -> None:
        pass

    def token(self, fact: TokenFact, logits: NDArray[np.float32] | None, *, owned: bool = False) -> None:
        pass

    def claim_engine(self, engine: object) -> bool:
        return True

    def engine_step(self, fact: StepFact) -> None:
        pass

    def engine_turn(self, fact: TurnFact) -> None:
        pass

    def speculation(self, fact: RoundFact) -> None:
        pass


NULL: Tracer = NullTracer()
_current: ContextVar[Tracer] = ContextVar("genai_lab_tracer", default=NULL)


def current_tracer() -> Tracer:
    """The tracer of this context: the null tracer unless inside `with use_tracer(...)`. It does not cross threads."""
    return _current.get()


@once
def use_tracer(tracer: Tracer) -> Iterator[Tracer]:
    """Make `tracer` the current one inside the block."""
    token = _current.set(tracer)
    try:
        yield tracer
    finally:
        _current.reset(token)
