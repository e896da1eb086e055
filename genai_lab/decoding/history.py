"""Tokens that are not committed yet, as logits processors look at them: the text so far and what may follow it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Text(Protocol):
    """Tokens so far."""

    @property
    def tokens(self) -> NDArray[np.int32]: ...  # [n]
    @property
    def distinct(self) -> NDArray[np.int32]: ...  # each id once
    @property
    def answer_start(self) -> int: ...


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


class Guess:
    """A text, and tokens after it that somebody guessed, one more at a time. Costs what the guesses cost, not the text.

    Args:
        text: a sequence that stays as it is meanwhile.
        room: guesses at most.

    >>> guess = Guess(Ahead(np.array([5, 6, 5], np.int32), answer_start=1), room=2)
    >>> guess.add(7)
    >>> guess.tokens.tolist(), guess.distinct.tolist(), guess.answer_start
    ([5, 6, 5, 7], [5, 6, 7], 1)
    """

    def __init__(self, text: Text, room: int) -> None:
        self.answer_start = text.answer_start
        self._known = text.distinct
        self._length = text.tokens.size
        self._memory = np.empty(self._length + room, np.int32)
        self._memory[: self._length] = text.tokens
        self._guesses: list[int] = []

    def __len__(self) -> int:
        return self._length + len(self._guesses)

    def add(self, token: int) -> None:
        """One more guess."""
        self._memory[len(self)] = token
        self._guesses.append(token)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """[n] the text and the guesses."""
        return self._memory[: len(self)]

    @property
    def distinct(self) -> NDArray[np.int32]:
        """[d] each id once, in order of first use."""
        known = self._known
        fresh = [token for token in dict.fromkeys(self._guesses) if not (known == token).any()]
        return np.append(known, np.array(fresh, np.int32)) if fresh else known
