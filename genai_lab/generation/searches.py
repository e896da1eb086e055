"""What the searches of a generator have alike: what a caller may ask about the rows and their runs.

A search (`one`, `batch`, `beams`, `speculative`) inherits this, owns the running decoder, and decides; here is only
what is handed on from it. Nothing here runs a model or changes a text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Sequence
from genai_lab.models import ManyRows, OneRow, RunExtras


class OneSequence:
    """One sequence in a running decoder."""

    _state: OneRow
    _tokens: Sequence
    _cached: int  # tokens of the sequence whose keys and values are in the cache
    _next: int

    @property
    def token_count(self) -> int:
        """Tokens handed out so far, prompt included."""
        return len(self._tokens)

    @property
    def next_tokens(self) -> NDArray[np.int32]:
        """[1] the token of the last step; after an append or a rewind the last one there is; 0 when there is none."""
        return np.array([self._next], np.int32)

    def sequence(self, _index: int) -> NDArray[np.int32]:
        """[n] a copy of every token handed out so far."""
        return self._tokens.tokens.copy()

    @property
    def extras(self) -> RunExtras:
        """What the caller added to the runs."""
        return self._state.extras

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last run."""
        return self._state.input(name)

    def output(self, name: str) -> NDArray[Any]:
        """A copy of one output of the last run."""
        return self._state.output(name, self._cached)


class SeveralSequences:
    """Several sequences in a running decoder."""

    _state: ManyRows
    _next: NDArray[np.int32]  # [rows]

    @property
    def next_tokens(self) -> NDArray[np.int32]:
        """[rows] the last step's token of each row (of beams, the best first); after the prompts their last, padding
        included; 0 before them."""
        return self._next.copy()

    @property
    def extras(self) -> RunExtras:
        """What the caller added to the runs."""
        return self._state.extras

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last run."""
        return self._state.input(name)

    def output(self, name: str) -> NDArray[Any]:
        """A copy of one output of the last run."""
        return self._state.output(name)
