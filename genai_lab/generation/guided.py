"""Proposals under a grammar: no token that it forbids, none behind an end, and the tokens that it forces unasked.

Receives a text and who guesses; knows no model and no logits.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Chooser, Sequence
from genai_lab.decoding.history import Guess, Text
from genai_lab.decoding.speculation import Proposal
from genai_lab.sampling.sampler import Candidates


class Grammar:
    """What the grammar of an answer says to somebody who proposes its tokens; without one, anything goes.

    Args:
        chooser: of the target; its guide and whether forced tokens are written unasked.
    """

    def __init__(self, chooser: Chooser) -> None:
        self._guide, self._forces = chooser.guide, chooser.ff_tokens
        self._end_ids = chooser.end_ids
        self.waiting: tuple[int, ...] = ()  # forced behind what is decided, and not in any round yet

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return self._guide is not None

    def allows(self, text: Text, token: int) -> bool:
        """Whether `token` may follow `text`."""
        return self._guide is None or self._guide.accepts(_answer(text), np.array([token], np.int32))

    def ends(self, token: int) -> bool:
        """Whether no proposal goes on behind `token`."""
        return self._guide is not None and token in self._end_ids

    def forced_after(self, text: Text) -> tuple[int, ...]:
        """What must follow `text`, whose last token was chosen; nothing unless it is to be written unasked."""
        if self._guide is None or not self._forces or int(text.tokens[-1]) in self._end_ids:
            return ()
        return tuple(self._guide.forced(_answer(text)))


class Proposing:
    """A proposal in the making.

    Args:
        text: what was handed out; stays as it is.
        count: tokens at most.
        grammar: whose forced tokens come first, and behind every guess.
    """

    def __init__(self, text: Sequence, count: int, grammar: Grammar) -> None:
        self.guess, self._count, self._grammar = Guess(text, count), count, grammar
        self.tokens: list[int] = []
        self._drawn: list[Candidates | None] = []
        self._forced: set[int] = set()
        self._waiting = deque(grammar.waiting)
        self._take_forced()

    @property
    def is_full(self) -> bool:
        """Whether there is room for no other."""
        return len(self.tokens) == self._count

    @property
    def has_forced(self) -> bool:
        """Whether the grammar forced any of it."""
        return bool(self._forced)

    def add(self, token: int, candidates: Candidates | None = None) -> None:
        """One more guess, and what the grammar forces behind it. `candidates`: what it was drawn from."""
        self._append(token, candidates)
        self._waiting.extend(self._grammar.forced_after(self.guess))
        self._take_forced()

    def proposal(self, *, draws: bool = False, chained: int = 0, source: int | None = None) -> Proposal:
        """What came of it. `draws`: the guesses were drawn."""
        drawn = tuple(self._drawn) if draws else None
        return Proposal(tuple(self.tokens), drawn, chained, source, frozenset(self._forced), tuple(self._waiting))

    def _append(self, token: int, candidates: Candidates | None) -> None:
        self.guess.add(token)
        self.tokens.append(token)
        self._drawn.append(candidates)

    def _take_forced(self) -> None:
        while self._waiting and not self.is_full:
            self._forced.add(len(self.tokens))
            self._append(self._waiting.popleft(), None)


def _answer(text: Text) -> NDArray[np.int32]:
    return text.tokens[text.answer_start :]
