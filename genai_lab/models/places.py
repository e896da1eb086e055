"""Going back to an earlier place: what a running decoder is asked about it, and the answer where any place will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Encoding(NamedTuple):
    """A run of a graph that sees or hears, or of the embedding graph that puts what it gave into the prompt."""

    stage: str  # what it is called in a trace
    start_ns: int
    end_ns: int
    n: int  # features that it gave, or tokens that were embedded


class Blind:
    """A decoder before which nothing sees or hears."""

    def encode(self, _tokens: NDArray[np.int32], _start: int) -> Sequence[Encoding]:
        """Run what a prompt of [n] tokens, behind the first `start` ones, needs before the decoder."""
        return ()

    def forget(self, length: int) -> None:
        """What `encode` made of tokens from `length` on belongs to no text."""


class AnyPlace(Blind):
    """A decoder that holds something of every token apart, so that any beginning of the text can be gone back to."""

    def admit(self, tokens: NDArray[np.int32], _length: int) -> NDArray[np.int32]:
        """What of [n] tokens, about to follow the first `length` ones, becomes part of the text."""
        return tokens

    def rewind(self, length: int) -> int:
        """The text was cut to `length` tokens; returns how many of them are still held, at most."""
        return length

    def snapshot(self) -> None:
        """Remember this place."""
