"""Tokens that are not committed yet, as logits processors look at them: the text so far and what may follow it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Ahead:
    """A text [n] with where its answer begins.

    >>> ahead = Ahead(np.array([5, 6, 5], np.int32), answer_start=1)
    >>> len(ahead), ahead.distinct.tolist()
    (3, [5, 6])
    """

    def __init__(self, tokens: NDArray[np.int32], answer_start: int) -> None:
        self.tokens, self.answer_start = tokens, answer_start

    def __len__(self) -> int:
        return int(self.tokens.size)

    @property
    def distinct(self) -> NDArray[np.int32]:
        """[d] each id once."""
        return np.unique(self.tokens)
