"""Whether decoding several rows together gives each row the bits that it gets alone: measured, not assumed.

It depends on the processor, the quantisation and the kernels. On a processor with VNNI instructions 4-bit weights in
blocks of 32 are exact; with AVX2 only, one row takes another code path than two or more. Receives a model, runs some
decodes on random keys and values, and remembers the answer for as long as the model lives. Where the difference is in
the last bits, most logits of a small model agree by chance: so many are compared, and every row.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_lab.models.model import Model
from genai_lab.models.rows import RowsExecutor

CONTEXT = 6  # tokens in a probed row; rows differ in length
ENOUGH = 200_000  # logits to compare: a large vocabulary has them in one random state, a toy needs many
MOST_TRIALS = 64  # states
PAIRS = 4  # neighbours that are decoded together, in each state


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What holds of decodes of 1 to `rows` rows on this processor."""

    rows: int
    is_exact: bool  # a row in a batch gets bit by bit what it gets alone
    is_invariant: bool  # with at least one neighbour, it does not matter how many there are, which, or where it stands

    def in_words(self) -> str:
        """One sentence."""
        if self.is_exact:
            return "a row in a batch gets the same bits as alone"
        if self.is_invariant:
            return "a row in a batch gets other bits than alone, but the same in every batch of two or more"
        return "a row's bits depend on the batch around it"


_known: weakref.WeakKeyDictionary[Model, dict[int, BatchFacts]] = weakref.WeakKeyDictionary()


def batch_facts(model: Model, rows: int) -> BatchFacts:
    """The facts for batches of up to `rows` rows; the first call for a model runs some decodes: 0.2 s
    for the default model.

    Args:
        model: a loaded decoder-only model.
        rows: the largest batch, at least 1.
    """
    known = _known.setdefault(model, {})
    if rows not in known:
        known[rows] = _measured(model, rows)
    return known[rows]


def known_facts(model: Model, rows: int) -> BatchFacts | None:
    """The facts if they were measured."""
    return _known.get(model, {}).get(rows)


def _measured(model: Model, rows: int) -> BatchFacts:
    if rows == 1:
        return BatchFacts(1, is_exact=True, is_invariant=True)
    probe, is_exact, is_invariant = _Probe(model, rows), True, True
    for _ in range(min(MOST_TRIALS, -(-ENOUGH // (rows * model.vocab_size)))):
        probe.begin()
        whole = probe.logits(0, rows)
        for first in range(rows):
            is_exact = is_exact and _same(probe.logits(first, 1), whole[first : first + 1])
        for first in range(0, rows - 1, max(1, rows // PAIRS)):
            is_invariant = is_invariant and _same(probe.logits(first, 2), whole[first : first + 2])
        if not is_invariant:
            break
    return BatchFacts(rows, is_exact=is_exact and is_invariant, is_invariant=is_invariant)


class _Probe:
    """Rows of random keys and values, decoded again and again from the same state."""

    def __init__(self, model: Model, rows: int) -> None:
        layout = model.kv_layout
        self._shape = (layout.num_layers, 2, *layout.row_shape(rows, CONTEXT + 2))
        self._dtype, self._vocab_size = np.dtype(layout.numpy_dtype), model.vocab_size
        self._random, self._rows = np.random.default_rng(0), rows
        self._state = np.empty(self._shape, self._dtype)
        self._executor = RowsExecutor(model, np.empty_like(self._state))
        self._cached = CONTEXT - np.arange(rows) % 3
        self.begin()

    def begin(self) -> None:
        """Another state."""
        spread = 20 if self._dtype.kind == "i" else 1  # an 8-bit cache holds whole numbers up to 127
        self._state = (spread * self._random.standard_normal(self._shape)).astype(self._dtype)
        self._tokens = self._random.integers(0, self._vocab_size, self._rows).astype(np.int32)

    def logits(self, first: int, count: int) -> NDArray[np.float32]:
        """[count, V] of the rows from `first` on."""
        self._executor.slab[...] = self._state
        rows = slice(first, first + count)
        return self._executor.decode(first, self._tokens[rows], self._cached[rows]).copy()


def _same(first: NDArray[np.float32], second: NDArray[np.float32]) -> bool:
    """Bit by bit."""
    return first.tobytes() == second.tobytes()
