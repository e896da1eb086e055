"""The tracer of a run written in the background: a recorder with a lock, and with the run's place among the branches.

Receives what a generator says, passes it on to a `Recorder`. A generator that was rebuilt or took over another one's
cache does not know which run it continues; whoever started it does, and says so here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing import Recorder, RoundFact, StepFact, TokenFact, TurnFact


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a run leaves another."""

    run: int
    index: int  # of the token it replaces, 0-based inside that run's answer
    token: int | None  # put there by hand; None: drawn anew


class BranchTracer:
    """Tells a recorder about one run.

    Args:
        recorder: gets everything.
        lock: held while the recorder is written, so that another thread may read it.
        fork: the run's parent; None for one that answers a prompt of its own.
        opened: called with the run's id once it is known.
    """

    enabled = True

    def __init__(
        self,
        recorder: Recorder,
        lock: AbstractContextManager[Any],
        fork: Fork | None = None,
        opened: Callable[[int], None] = lambda run: None,
    ) -> None:
        self._recorder, self._lock, self._fork, self._opened = recorder, lock, fork, opened
        self._own: int | None = None
        self._before = 0  # tokens of the answer that the generator took for prompt: the forced one

    def open_run(self, *, prompt: NDArray[np.int32], **facts: Any) -> int:
        fork = self._fork
        if fork is not None:
            facts |= {"parent": fork.run, "fork": fork.index, "forced": fork.token}
            if fork.token is not None:
                prompt, self._before = prompt[:-1], 1
        with self._lock:
            self._own = self._recorder.open_run(prompt=prompt, **facts)
        self._opened(self._own)
        return self._own

    def extend_prompt(self, run: int, tokens: NDArray[np.int32]) -> None:
        with self._lock:
            self._recorder.extend_prompt(run, tokens)

    def close_run(self, run: int, finish: str, error: str | None = None) -> None:
        with self._lock:
            self._recorder.close_run(run, finish, error)

    def question(self, text: str) -> None:
        with self._lock:
            self._recorder.question(text)

    def stage(self, run: int, token: int, name: str, start_ns: int, end_ns: int, n: int = 1) -> None:
        if run == self._own and token >= 0:
            token += self._before
        with self._lock:
            self._recorder.stage(run, token, name, start_ns, end_ns, n)

    def claim_engine(self, engine: object) -> bool:
        return self._recorder.claim_engine(engine)

    def engine_step(self, fact: StepFact) -> None:
        with self._lock:
            self._recorder.engine_step(fact)

    def engine_turn(self, fact: TurnFact) -> None:
        with self._lock:
            self._recorder.engine_turn(fact)

    def speculation(self, fact: RoundFact) -> None:
        with self._lock:
            self._recorder.speculation(replace(fact, index=fact.index + self._before))

    def token(self, fact: TokenFact, logits: NDArray[np.float32] | None, *, owned: bool = False) -> None:
        if self._before:
            fact = replace(fact, index=fact.index + self._before)
        with self._lock:
            self._recorder.token(fact, logits, owned=owned)
