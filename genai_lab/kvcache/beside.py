"""What a row keeps beside its blocks: rings of blocks for layers that see a short window, and states of one size.

A ring belongs to its row and is written round and round: the token at place p stands where the one at p minus the
ring's length stood. A state is what a run leaves behind; it counts once the step is committed. There is a limit to
going back. A ring is never shared; a state is kept where a run ended with a full block, so that another sequence can
begin there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_lab.kvcache.table import blocks_for
from genai_lab.kvcache.untouched import untouched_zeros

KEPT_PER_ROW = 4  # states that are kept for beginnings, for each row of the store
TokenShapes = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""By name, what one token (or one row) takes: shape and type."""
Arrays = dict[str, NDArray[Any]]


class Beside(Protocol):
    """Memory of rows that follows what becomes of their blocks."""

    arrays: Arrays

    def load(self, row: int, block: int, tokens: int) -> None: ...  # it begins with `tokens` others, up to `block`
    def forget(self, blocks: Iterable[int]) -> None: ...  # their content is about to be another
    def keep(self, row: int, block: int) -> None: ...  # a committed run ended with the last token of `block`
    def reserve(self, row: int, stop: int) -> None: ...  # a run is about to write tokens up to `stop`
    def commit(self, row: int) -> None: ...
    def release(self, row: int) -> None: ...
    def can_go_back(self, row: int, tokens: int) -> bool: ...
    def copy_row(self, source: int, target: int) -> None: ...
    def clear(self, row: int) -> None: ...


class Rings:
    """Blocks of the last tokens of each row.

    Args:
        shapes: what one token takes in each tensor.
        rows, block_size: of the store.
        window: tokens that a token sees, itself included.
        most: tokens of one run of a row.

    >>> rings = Rings({"key": ((1, 8), np.dtype("float32"))}, rows=2, block_size=4, window=6, most=3)
    >>> rings.blocks(1), rings.arrays["key"].shape
    ([2, 3], (4, 4, 1, 8))
    """

    def __init__(self, shapes: TokenShapes, rows: int, block_size: int, window: int, most: int) -> None:
        self.window, self.block_size = window, block_size
        self.length = ring_blocks(window, most, block_size)
        self.arrays: Arrays = {
            name: untouched_zeros((rows * self.length, block_size, *shape), kind)
            for name, (shape, kind) in shapes.items()
        }
        self._written = [0] * rows  # the place after the last that was ever written

    def blocks(self, row: int) -> list[int]:
        """The row's ring."""
        return list(range(row * self.length, (row + 1) * self.length))

    def load(self, row: int, block: int, tokens: int) -> None:
        """No sequence begins with another's ring."""
        raise AssertionError("a model with rings shares no beginnings")

    def forget(self, blocks: Iterable[int]) -> None:
        """Rings belong to rows."""

    def keep(self, row: int, block: int) -> None:
        """Nothing is kept for others."""

    def reserve(self, row: int, stop: int) -> None:
        """Older tokens are about to be written over."""
        self._written[row] = max(self._written[row], stop)

    def commit(self, row: int) -> None:
        """It was written."""

    def release(self, row: int) -> None:
        """What a failed run wrote is written again; what it wrote over is seen by no run that begins where it began."""

    def can_go_back(self, row: int, tokens: int) -> bool:
        """Whether what the token after `tokens` others sees is still there."""
        oldest = self._written[row] - self.length * self.block_size
        return oldest <= max(0, tokens - self.window + 1)

    def copy_row(self, source: int, target: int) -> None:
        """`target` has the same last tokens."""
        for tensor in self.arrays.values():
            tensor[self.blocks(target)] = tensor[self.blocks(source)]
        self._written[target] = self._written[source]

    def clear(self, row: int) -> None:
        """The next sequence begins at its first token and reads nothing that it did not write."""
        self._written[row] = 0


class RowStates:
    """States of one size.

    Args:
        shapes: of a row's state, by name.
        starts: what fills it at the beginning, where that is not 0.
        rows: of the store.
        sharing: states are kept for sequences that begin as others did.
    """

    def __init__(self, shapes: TokenShapes, starts: Mapping[str, int], rows: int, *, sharing: bool) -> None:
        self._starts = {name: starts.get(name, 0) for name in shapes}
        self.arrays: Arrays = {name: untouched_zeros((rows, *shape), kind) for name, (shape, kind) in shapes.items()}
        for row in range(rows if any(self._starts.values()) else 0):
            self._begin(row)
        self._offered: dict[int, Arrays] = {}
        self._lengths = [0] * rows  # tokens that each state has seen
        self._stops: dict[int, int] = {}
        self._kept: dict[int, Arrays] = {}  # by block, the state behind its last token; the oldest first
        self._most = KEPT_PER_ROW * rows if sharing else 0

    def of(self, rows: Sequence[int]) -> Arrays:
        """By name, the states of `rows` as they stand, [rows, *shape]."""
        return {name: tensor[list(rows)] for name, tensor in self.arrays.items()}

    def offer(self, row: int, states: Arrays) -> None:
        """What a run left behind; the row's own when it is committed."""
        self._offered[row] = states

    def has(self, block: int) -> bool:
        """Whether the state behind a block's last token is kept, so that a sequence can go on from there."""
        return block in self._kept

    def load(self, row: int, block: int, tokens: int) -> None:
        """The row goes on from the state behind `block`."""
        kept = self._kept[block] = self._kept.pop(block)  # the last to be given up
        for name, state in kept.items():
            self.arrays[name][row] = state
        self._lengths[row] = tokens

    def forget(self, blocks: Iterable[int]) -> None:
        """What was kept of them is of a content that they lose."""
        for block in blocks:
            self._kept.pop(block, None)

    def keep(self, row: int, block: int) -> None:
        """Keep the row's state for sequences that begin as it does; a few for each row, the latest."""
        if not self._most:
            return
        self._kept.pop(block, None)
        self._kept[block] = {name: tensor[row].copy() for name, tensor in self.arrays.items()}
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def reserve(self, row: int, stop: int) -> None:
        """A run is about to see tokens up to `stop`."""
        self._stops[row] = stop

    def commit(self, row: int) -> None:
        """What was offered counts."""
        for name, state in self._offered.pop(row, {}).items():
            self.arrays[name][row] = state
        self._lengths[row] = self._stops.pop(row, self._lengths[row])

    def release(self, row: int) -> None:
        """What was offered does not count."""
        self._offered.pop(row, None)
        self._stops.pop(row, None)

    def can_go_back(self, row: int, tokens: int) -> bool:
        """A state cannot be taken back."""
        return tokens == self._lengths[row]

    def copy_row(self, source: int, target: int) -> None:
        """`target` has the same state."""
        for tensor in self.arrays.values():
            tensor[target] = tensor[source]
        self._lengths[target] = self._lengths[source]

    def clear(self, row: int) -> None:
        """As at the beginning."""
        self._begin(row)
        self._lengths[row] = 0

    def _begin(self, row: int) -> None:
        for name, tensor in self.arrays.items():
            tensor[row] = self._starts[name]


def ring_blocks(window: int, most: int, block_size: int) -> int:
    """Blocks of a ring in which `most` new tokens find all that they see.

    >>> ring_blocks(window=3, most=2, block_size=2), ring_blocks(window=6, most=1, block_size=4)
    (2, 2)
    """
    return blocks_for(most + window - 1, block_size)


def nbytes_of(parts: Iterable[Beside]) -> int:
    """Bytes of all of them."""
    return sum(tensor.nbytes for part in parts for tensor in part.arrays.values())
