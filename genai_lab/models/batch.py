"""Several sequences of one generator in one model: prompts are read row by row, then all rows decode together.

Each row keeps its own length, so a short prompt beside a long one is computed as if it were alone; no padding enters
the model. Rows are those of one slab (see `rows.RowsExecutor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, StateError
from genai_lab.kvcache import ContiguousCache
from genai_lab.models.chunks import chunk_stops
from genai_lab.models.extras import unknown_input, unknown_output
from genai_lab.models.model import Model
from genai_lab.models.places import Blind
from genai_lab.models.rows import RowsExecutor

NO_INPUTS = (
    "get_input({name!r}): the rows of a batch are read one after another, no run has the input of all of them; use one "
    "generator per prompt to look at inputs"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One run over prompts: whose, and when."""

    rows: tuple[int, ...]
    start_ns: int
    end_ns: int


class BatchState(Blind):
    """The KV cache of `rows` sequences and the runs over it.

    Args:
        model: a loaded decoder-only model.
        rows: sequences.
        capacity: tokens per row, prompt included.
    """

    def __init__(self, model: Model, rows: int, capacity: int) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self.cache = ContiguousCache(model.kv_layout, rows, capacity)
        self._executor = RowsExecutor(model, self.cache.slab, keeps_others=True)
        self.extras = self._executor.extras
        self.lengths = np.zeros(rows, np.int64)  # [rows] tokens in each row
        self._read_others: dict[int, dict[str, NDArray[Any]]] = {}  # {row: what its prompt gave}, until a decode
        self._logits: NDArray[np.float32] = np.zeros((rows, model.vocab_size), np.float32)  # of each row's last token

    def read_rows(self, prompts: Sequence[NDArray[np.int32]], chunk_size: int | None) -> list[Reading]:
        """Read every row's prompt, one after another; a row with the very prompt of the row before it gets a copy."""
        readings = []
        for row, prompt in enumerate(prompts):
            start = perf_counter_ns()
            if row and prompt is prompts[row - 1]:
                self._copy_row(row - 1, row)
            else:
                self._read(row, prompt, chunk_stops(0, prompt.size, chunk_size))
            readings.append(Reading((row,), start, perf_counter_ns()))
        return readings

    def last_logits(self) -> NDArray[np.float32]:
        """[rows, V] of every row's last token; the next run overwrites them."""
        return self._logits

    def decode(self, tokens: NDArray[np.int32]) -> None:
        """Read one more token in every row, `tokens` [rows]."""
        self._logits = self._executor.decode(0, tokens, self.lengths)
        self._read_others.clear()
        self.lengths += 1

    def _read(self, row: int, tokens: NDArray[np.int32], stops: Sequence[int]) -> None:
        for stop in stops:
            start = int(self.lengths[row])
            self._logits[row] = self._executor.chunk(row, tokens[start:stop], start)
            self._read_others[row] = self._executor.others()
            self.lengths[row] = stop

    def _copy_row(self, source: int, target: int) -> None:
        length = int(self.lengths[source])
        self.cache.slab[:, :, target, :, :length] = self.cache.slab[:, :, source, :, :length]
        self.lengths[target], self._logits[target] = length, self._logits[source]
        self._read_others[target] = self._read_others[source]

    def reorder(self, parents: Sequence[int], begin: Sequence[int]) -> None:
        """Row i becomes what row parents[i] was; both hold the same first begin[i] tokens, which stay where they
        are."""
        slab = self.cache.slab
        lengths = self.lengths[list(parents)]
        taken = {
            row: slab[:, :, parent, :, start : int(self.lengths[parent])].copy()
            for row, (parent, start) in enumerate(zip(parents, begin, strict=True))
            if row != parent
        }
        for row, values in taken.items():
            slab[:, :, row, :, begin[row] : begin[row] + values.shape[3]] = values
        self.lengths[:] = lengths

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one extra input; rows are read one after another, so a run has no tokens of all of them."""
        known = self.extras.used
        if name not in known:
            raise ArgumentError(unknown_input(name, known) if known else NO_INPUTS.format(name=name))
        return np.array(known[name])

    def clear(self) -> None:
        """Forget every token."""
        self.lengths[:] = 0
        self._read_others.clear()

    def output(self, name: str) -> NDArray[Any]:
        """A copy of one layer's present keys or values, [rows, kv_heads, longest row, head_dim], of the last logits,
        [rows, 1, V], or of what else the graph gives for the last tokens, [rows, longest of them, ...]: zeros where a
        row had fewer."""
        names = self.model.config.model.decoder.outputs
        length = int(self.lengths.max())
        if length == 0:
            raise StateError(unknown_output(name, ()))
        if name == names.logits:
            return self._logits[:, None].copy()
        for layer in range(self.cache.layout.num_layers):
            if name == names.present_key_names % layer:
                return self.cache.keys(layer)[:, :, :length].copy()
            if name == names.present_value_names % layer:
                return self.cache.values(layer)[:, :, :length].copy()
        others = self._others()
        if name in others:
            return others[name]
        known = [names.logits, names.present_key_names % 0, names.present_value_names % 0, *others]
        raise ArgumentError(unknown_output(name, known))

    def _others(self) -> dict[str, NDArray[Any]]:
        """What the graph gave beside logits, keys and values: of a decode, or of every row's prompt."""
        rows = [self._read_others[row] for row in sorted(self._read_others)]
        if not rows:
            return self._executor.others()
        return {name: _side_by_side([row[name] for row in rows]) for name in rows[0]}


def _side_by_side(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """[1, S, ...] of every row as [rows, longest S, ...]; what has no row and no tokens is the last row's."""
    if any(part.ndim < 2 or part.shape[0] != 1 for part in parts):
        return parts[-1]
    longest = max(part.shape[1:2] for part in parts)
    whole = np.zeros((len(parts), *longest, *parts[0].shape[2:]), parts[0].dtype)
    for row, part in enumerate(parts):
        whole[row, : part.shape[1]] = part[0]
    return whole
