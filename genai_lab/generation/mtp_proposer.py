"""Proposals of a multi-token prediction head (MTP): a graph of about one layer that goes on from the target's own
hidden states.

The head reads pairs: the target's hidden state at a token, and the token that followed. From the last pair it tells the
token after that, and a hidden state of its own, from which it goes on for the next proposed token. As in
onnxruntime-genai its text begins with the answer's first token: pairs inside a prompt are not read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Chooser, Sequence
from genai_lab.decoding.history import Guess
from genai_lab.decoding.speculation import Proposal, SpeculativeStats
from genai_lab.errors import StateError
from genai_lab.generation.proposers import Drafting
from genai_lab.models import Model, OneRow, make_one
from genai_lab.tracing.speculation_facts import Proposer as By


@dataclass(frozen=True, slots=True)
class HiddenNames:
    """What hidden states are called in the two graphs."""

    given: str  # the target's output
    taken: str  # the head's input
    fed_back: str | None  # the head's output, for a second proposed token; None: it has none


class MtpProposer:
    """Lets the head write on from the target's hidden states.

    Args:
        head: its graph, a model with the target's vocabulary.
        names: of the hidden states.
        hidden_size: numbers in one.
        capacity: tokens of the text at most.
        chooser: the target's.
    """

    by = By.MTP
    anchors_narrow_rounds = False
    draft: OneRow | None = None  # a head's inputs are the target's outputs

    def __init__(
        self,
        head: Model,
        names: HiddenNames,
        hidden_size: int,
        capacity: int,
        chooser: Chooser,
        stats: SpeculativeStats,
    ) -> None:
        self._state, self._names, self._stats = make_one(head, capacity), names, stats
        self._drafting = Drafting(chooser)
        self._hidden = np.zeros((capacity, hidden_size), head.graph.inputs[names.taken].dtype)  # [position, H]
        self._begin = 0  # position of the first pair's hidden state
        self._held = 0  # pairs in the head's cache that are made of the target's own hidden states

    def propose(self, text: Sequence, count: int) -> Proposal:
        """`count` tokens; none before the answer's first token is known."""
        tokens, pairs = text.tokens, len(text) - 1 - self._begin
        if pairs < 1:
            return Proposal(())
        guess, drawn = Guess(text, count), []
        proposed: list[int] = []
        first = self._begin + self._held
        logits = self._read(tokens[first + 1 :], self._hidden[first : len(text) - 1], self._held)
        self._held = pairs
        while True:
            token, candidates = self._drafting.choose(logits, guess)
            guess.add(token)
            proposed.append(token)
            if candidates is not None:
                drawn.append(candidates)
            if len(proposed) == count:
                return Proposal(tuple(proposed), tuple(drawn) if self._drafting.draws else None)
            place = self._held + len(proposed) - 1
            logits = self._read(np.array([token], np.int32), self._own_hidden(), place)

    def read(self, text: Sequence) -> None:
        """A prompt was read: the head begins behind it."""
        self._begin, self._held = len(text) - 1, 0

    def target_ran(self, target: OneRow, first: int, count: int) -> None:
        """Keep the hidden states of tokens [first, first + count)."""
        given = target.output(self._names.given, first + count)
        if given.shape[1] != count:
            raise StateError(
                f"MtpGenerator: the target's output {self._names.given!r} has the shape {list(given.shape)} after a "
                f"run over {count} tokens; one hidden state for each is needed. Export the graph with all of them"
            )
        self._hidden[first : first + count] = given[0]

    def round_ended(self, text: Sequence) -> None:
        """Nothing to do: accepted tokens are read with the target's hidden states when something is proposed."""

    def rewind(self, length: int) -> None:
        """Keep the pairs of the first `length` tokens."""
        last = max(length - 1, 0)
        self._begin = min(self._begin, last)
        self._held = min(self._held, last - self._begin)

    def _read(self, tokens: NDArray[np.int32], hidden: NDArray[np.floating], cached: int) -> NDArray[np.float32]:
        """Run the head over [S] pairs after `cached` ones; logits [V] behind the last."""
        self._state.extras.set_input(self._names.taken, hidden[None])  # [1, S, H]
        self._state.prepare(tokens, cached)
        self._state.run()
        self._stats.draft_forward_passes += 1
        return self._state.read_logits()

    def _own_hidden(self) -> NDArray[np.floating]:
        """[1, H] the head's hidden state behind its last token."""
        if self._names.fed_back is None:
            raise AssertionError("a head without one proposes one token")
        return self._state.output(self._names.fed_back, 0)[0, -1:]
