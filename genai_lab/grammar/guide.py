"""A grammar's state along one answer. Receives the answer's tokens so far; returns which tokens may come next.

The state is a function of the answer alone: each call compares the answer with the tokens that were read before, takes
back what differs and reads what is new. So rewinding, forking, preemption and a step that was undone need no call here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import TokenMask
from genai_lab.errors import ArgumentError, StateError

Matcher = Any
"""llguidance.LLMatcher."""


class Guide:
    """Follows one answer through a grammar.

    Args:
        start: a matcher at the grammar's beginning; it is copied, never moved.
        vocab_size: length of a mask.
        end_ids: tokens that end an answer, allowed where the grammar may end.
    """

    def __init__(self, start: Matcher, vocab_size: int, end_ids: tuple[int, ...]) -> None:
        self._start, self._vocab_size, self._end_ids = start, vocab_size, end_ids
        self._matcher = start.deep_copy()
        self._read: NDArray[np.int32] = np.empty(0, np.int32)  # what the matcher has read

    def mask(self, answer: NDArray[np.int32]) -> TokenMask:
        """Which tokens may follow `answer` [n].

        Raises:
            ArgumentError: the answer itself does not follow the grammar.
            StateError: the grammar is too complex to go on within its limits.
        """
        self._follow(answer)
        if self._matcher.is_stopped():
            return self._only_the_end()
        try:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        except ValueError as error:
            raise self._broken(str(error)) from error
        if self._matcher.is_error():
            raise self._broken(self._matcher.get_error())
        return self._cut(bits)

    def forced(self, answer: NDArray[np.int32]) -> list[int]:
        """The tokens that must follow `answer` [n], whatever the model says; often none."""
        self._follow(answer)
        return [] if self._matcher.is_stopped() else [int(token) for token in self._matcher.compute_ff_tokens()]

    def accepts(self, answer: NDArray[np.int32], more: NDArray[np.int32]) -> bool:
        """Whether `answer` [n] could go on with `more` [k]. With an image, a negative id, it cannot."""
        self._follow(answer)
        if bool((more < 0).any()):
            return False
        return not more.size or int(self._matcher.validate_tokens(more.tolist())) == more.size

    def may_end(self, answer: NDArray[np.int32]) -> bool:
        """Whether `answer` [n] is whole."""
        self._follow(answer)
        return bool(self._matcher.is_accepting())

    def fork(self) -> Guide:
        """A second one at the same place."""
        twin = Guide.__new__(Guide)
        twin._start, twin._vocab_size, twin._end_ids = self._start, self._vocab_size, self._end_ids
        twin._matcher, twin._read = self._matcher.deep_copy(), self._read
        return twin

    # ---- inside -------------------------------------------------------------------------------------------------

    def _follow(self, answer: NDArray[np.int32]) -> None:
        common = min(answer.size, self._read.size)
        different = np.flatnonzero(answer[:common] != self._read[:common])
        common = int(different[0]) if different.size else common
        back = self._read.size - common
        if back and not self._matcher.rollback(back):
            self._matcher, common = self._start.deep_copy(), 0
        new = answer[common:].tolist()
        self._read = answer.copy() if new or back else self._read
        if new and not self._matcher.consume_tokens(new):
            words = self._matcher.get_error()
            self._begin_anew()
            raise ArgumentError(
                f"the last {len(new)} tokens of the answer, {new[:8]}, do not follow the grammar "
                f"({_first_line(words)}). Rewind to where they begin, or make a generator without guidance"
            )

    def _only_the_end(self) -> TokenMask:
        if self._matcher.is_error():
            raise self._broken(self._matcher.get_error())
        bits = np.zeros(-(-self._vocab_size // 8), np.uint8)
        for token in self._end_ids:
            bits[token >> 3] |= 1 << (token & 7)
        return TokenMask(bits, self._vocab_size)

    def _cut(self, bits: NDArray[np.uint8]) -> TokenMask:
        """A mask of the vocabulary's length; the library's may be longer."""
        bits = bits[: -(-self._vocab_size // 8)].copy()
        spare = -self._vocab_size % 8
        if spare:
            bits[-1] &= 0xFF >> spare
        return TokenMask(bits, self._vocab_size)

    def _begin_anew(self) -> None:
        self._matcher, self._read = self._start.deep_copy(), np.empty(0, np.int32)

    def _broken(self, words: str) -> StateError:
        place = self._read.size
        self._begin_anew()
        return StateError(
            f"guidance cannot go on at token {place} of the answer: {_first_line(words)}. The grammar needs more work "
            "there than is allowed; write it with fewer alternatives or smaller repetitions"
        )


def _first_line(words: str) -> str:
    return words.strip().split("\n", 1)[0] or "no reason given"
