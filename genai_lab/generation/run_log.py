"""Which run of a trace a generator is writing. A run is one answer: a prompt, then generated tokens.

Appending after generated tokens begins a new run; rewinding begins a branch of the run that was rewound. Two traces see
the same generator independently: a tracer that never saw it gets a run that starts with what is there.
"""

from __future__ import annotations

import weakref
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.config import SearchOptions
from genai_lab.decoding import Hooks, Place, Sequence
from genai_lab.models import Model
from genai_lab.sampling import EffectiveMode
from genai_lab.tracing import NULL, Tracer
from genai_lab.types import FinishReason

_FINISH = {
    FinishReason.EOS: "eos",
    FinishReason.MAX_SESSION_TOKENS: "length",
    FinishReason.CANCELLED: "stopped",
    FinishReason.STOPPING_CRITERION: "criterion",
}


class RunLog:
    """One sequence's place in the trace that watches it.

    Args:
        model, options, mode, hooks: what the trace is told about the answer.
        sequence: the tokens that the answer is part of.
        source: whoever can continue the answer, held weakly; None: nobody.
    """

    def __init__(
        self,
        model: Model,
        options: SearchOptions,
        mode: EffectiveMode,
        sequence: Sequence,
        source: object = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._hooks = hooks or Hooks()
        self._model, self._options, self._mode, self._sequence = model, options, mode, sequence
        self._source = None if source is None else weakref.ref(source)
        self._tracer: Tracer = NULL
        self._run: int | None = None  # None: the next event opens one
        self._start = 0  # length of the sequence when the run's answer began
        self._index = 0  # tokens generated in this run
        self._origin: tuple[int, int] | None = None  # (parent run, token index there) of a branch to come

    def append(self, tracer: Tracer, tokens: NDArray[np.int32], cached: int) -> Place:
        """Tokens were appended to the sequence (they are in it already)."""
        self._follow(tracer)
        if tracer.enabled and self._run is not None and self._index == 0:
            tracer.extend_prompt(self._run, tokens)
        elif tracer.enabled:
            self._close("appended")
            forced = int(tokens[0]) if self._origin is not None and tokens.size == 1 else None
            self._open(tracer, cached, forced)
            self._start = len(self._sequence) - self._index
        if self._index == 0:
            self._start = len(self._sequence)
        return self._place(tracer)

    def place(self, tracer: Tracer, cached: int) -> Place:
        """Where the next token's stages belong; `cached` tokens are in the cache."""
        self._follow(tracer)
        if tracer.enabled and self._run is None:
            self._open(tracer, cached, None)
            self._start = len(self._sequence)
        return self._place(tracer)

    def generated(self, tracer: Tracer, finish: FinishReason | None) -> None:
        """A token was chosen, or the answer was stopped."""
        self._index += 0 if finish is FinishReason.CANCELLED else 1
        if finish is not None:
            self._close(_FINISH.get(finish, "stopped"))

    def finished(self, finish: FinishReason) -> None:
        """The answer is over without another choice."""
        self._close(_FINISH.get(finish, "stopped"))

    def rewound(self, length: int, tracer: Tracer) -> None:
        """The sequence is cut to `length`; what follows is a branch when the cut lies inside the answer."""
        self._follow(tracer)
        if length == len(self._sequence):
            return  # nothing is cut: the answer goes on
        inside = self._run is not None and self._start <= length
        self._origin = (self._run, length - self._start) if inside and self._run is not None else None
        self._close("rewound")
        self._run, self._index = None, 0

    def forked(self, source: RunLog, length: int) -> None:
        """This generator begins as a copy of `source`'s first `length` tokens."""
        self._tracer = source._tracer
        if source._run is not None and source._start <= length:
            self._origin = (source._run, length - source._start)

    def fail(self, tracer: Tracer, words: str) -> None:
        """The model run behind the current run failed."""
        if tracer.enabled and self._run is not None:
            tracer.close_run(self._run, "failed", words)
            self._run, self._index = None, 0

    def _follow(self, tracer: Tracer) -> None:
        if tracer is not self._tracer:
            self._tracer, self._run, self._index, self._origin = tracer, None, 0, None

    def _place(self, tracer: Tracer) -> Place:
        return Place(tracer, self._run or 0, self._index)

    def _open(self, tracer: Tracer, cached: int, forced: int | None) -> None:
        model, mode = self._model, self._mode
        parent, fork = self._origin if self._origin is not None else (None, None)
        settings: dict[str, Any] = asdict(self._options) | {"mode": mode.mode.value, "mode_reason": mode.reason}
        settings |= self._hooks.describe()
        tokens = self._sequence.tokens
        self._run = tracer.open_run(
            prompt=tokens if forced is None else tokens[:-1],
            settings=settings,
            model=model.describe(),
            describe=model.token_texts,
            parent=parent,
            fork=fork,
            forced=forced,
            cached_tokens=cached,
            source=None if self._source is None else self._source(),
        )
        self._index, self._origin = (0 if forced is None else 1), None  # a forced token is the answer's first

    def _close(self, finish: str) -> None:
        if self._tracer.enabled and self._run is not None:
            self._tracer.close_run(self._run, finish)
