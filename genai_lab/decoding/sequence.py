"""The tokens of one row: prompts and answers in one buffer, where the answer begins, and the distinct ids among them.

What is extended is a prompt, what is appended is an answer's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, CapacityError


class Sequence:
    """Append-only until rewound. Views handed out stay valid: a rewind makes a new buffer for the distinct ids.

    Args:
        max_length: most tokens it may hold, prompt included.

    >>> sequence = Sequence(8)
    >>> sequence.extend(np.array([5, 6, 5], np.int32))
    >>> len(sequence), sequence.distinct.tolist()
    (3, [5, 6])
    """

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length
        self._tokens = np.zeros(max_length, np.int32)
        self._length = 0
        self._prompts: list[tuple[int, int]] = []  # [start, stop) of each
        self._reset_distinct()

    def __len__(self) -> int:
        return self._length

    @property
    def tokens(self) -> NDArray[np.int32]:
        """[n] view of every token so far."""
        return self._tokens[: self._length]

    @property
    def distinct(self) -> NDArray[np.int32]:
        """Each id once, in order of first use, but for negative ones, which stand for images; [d] view."""
        return self._distinct[: len(self._members)]

    @property
    def answer_start(self) -> int:
        """Where the answer that is being written begins: behind the last prompt."""
        return self._prompts[-1][1] if self._prompts else 0

    def answer_from(self, start: int) -> None:
        """Say that what follows the first `start` tokens is one answer, however it came here."""
        self._prompts = [(0, start)] if start else []

    def append(self, token: int) -> None:
        """Add one token of an answer."""
        if self._length == self.max_length:
            raise CapacityError(
                f"the sequence already has max_length = {self.max_length} tokens; set a larger max_length "
                f"before you begin"
            )
        self._tokens[self._length] = token
        self._length += 1
        if token not in self._members and token >= 0:
            self._distinct[len(self._members)] = token
            self._members.add(token)

    def extend(self, tokens: NDArray[np.int32], *, is_prompt: bool = True) -> None:
        """Add several tokens; all or none. What follows a prompt is an answer to it."""
        self.check_room(tokens.size)
        start = self._length
        for token in tokens.tolist():
            self.append(token)
        if is_prompt and tokens.size:
            self._prompts.append((start, self._length))

    def extend_from(self, other: Sequence, length: int) -> None:
        """Add the first `length` tokens of another sequence to this empty one, prompts as prompts, answers as
        answers."""
        self.extend(other.tokens[:length], is_prompt=False)
        self._prompts = _until(other._prompts, length)

    def check_room(self, count: int) -> None:
        """Raises CapacityError when `count` more tokens do not fit."""
        if self._length + count > self.max_length:
            raise CapacityError(
                f"{count} more tokens after {self._length} exceed max_length = {self.max_length}: input_ids size "
                f"({count}) + current sequence length ({self._length}) exceeds max length ({self.max_length}). Set a "
                "larger max_length, or append fewer tokens"
            )

    def rewind(self, length: int) -> None:
        """Keep the first `length` tokens."""
        if not 0 <= length <= self._length:
            raise ArgumentError(f"cannot rewind to {length}: allowed is 0 to {self._length}, the tokens there are")
        kept = self._tokens[:length].copy()
        self._tokens = np.zeros(self.max_length, np.int32)
        self._length = 0
        self._reset_distinct()
        self.extend(kept, is_prompt=False)
        self._prompts = _until(self._prompts, length)

    def _reset_distinct(self) -> None:
        self._distinct = np.zeros(self.max_length, np.int32)
        self._members: set[int] = set()


def _until(prompts: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """The parts of `prompts` in the first `length` tokens."""
    return [(start, min(stop, length)) for start, stop in prompts if start < length]
