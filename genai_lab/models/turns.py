"""What a text keeps of prompts with images or sounds: their embeddings and their places. Pure arrays.

A token of a picture cannot be embedded again by its id alone. So the embeddings of such a prompt are kept, and whatever
reads its tokens again (a chunk, a rewind) takes them from here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_lab.models.session import Arrays


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt, or the beginning of one."""

    start: int  # tokens before it
    embeds: Arrays  # {decoder input: [1, n, ...]}
    features: Arrays  # {input of the embedding graph: [N, H]}
    places: NDArray[np.int64]  # [3, n]

    @property
    def stop(self) -> int:
        """Tokens before its end."""
        return self.start + int(self.places.shape[1])

    @property
    def shift(self) -> int:
        """How much later than it is counted a token behind it has its place; usually below 0."""
        return int(self.places.max()) + 1 - self.stop

    def cut(self, length: int) -> Turn:
        """What of it is in the first `length` tokens of the text."""
        count = length - self.start
        embeds = {name: value[:, :count] for name, value in self.embeds.items()}
        return Turn(self.start, embeds, self.features, self.places[:, :count])


class Turns:
    """Those of one text, in order."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []

    def add(self, turn: Turn) -> None:
        """The text goes on with this prompt."""
        self.cut(turn.start)
        self._turns.append(turn)

    def cut(self, length: int) -> None:
        """The text was cut to `length` tokens."""
        self._turns = [turn if turn.stop <= length else turn.cut(length) for turn in self._turns if turn.start < length]

    def copy(self, length: int) -> Turns:
        """Those of the first `length` tokens."""
        twin = Turns()
        twin._turns = list(self._turns)
        twin.cut(length)
        return twin

    def among(self, start: int, stop: int) -> list[Turn]:
        """The prompts that have tokens in [start, stop)."""
        return [turn for turn in self._turns if turn.start < stop and start < turn.stop]

    def next_place(self, index: int) -> int:
        """The place of the token `index`, if it belongs to no such prompt."""
        return index + next((turn.shift for turn in reversed(self._turns) if turn.stop <= index), 0)

    def places(self, start: int, stop: int) -> NDArray[np.int64]:
        """[3, stop - start] of every token."""
        places = np.broadcast_to([self.next_place(index) for index in range(start, stop)], (3, stop - start)).copy()
        for turn in self.among(start, stop):
            first, last = max(start, turn.start), min(stop, turn.stop)
            places[:, first - start : last - start] = turn.places[:, first - turn.start : last - turn.start]
        return places
