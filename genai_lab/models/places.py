"""Going back to an earlier place: what a running decoder is asked about it, and the answer where any place will do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class AnyPlace:
    """A decoder that holds something of every token apart, so that any beginning of the text can be gone back to."""

    def admit(self, tokens: NDArray[np.int32], _length: int) -> NDArray[np.int32]:
        """What of [n] tokens, about to follow the first `length` ones, becomes part of the text."""
        return tokens

    def rewind(self, length: int) -> int:
        """The text was cut to `length` tokens; returns how many of them are still held, at most."""
        return length

    def snapshot(self) -> None:
        """Remember this place."""
