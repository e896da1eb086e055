"""Several sequences of one generator in one model: prompts are read row by row, then all rows decode together.

Each row keeps its own length, so a short prompt beside a long one is computed as if it were alone; no padding enters
the model. Rows are those of one slab (see `rows.RowsExecutor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, StateError
from genai_lab.kvcache import ContiguousCache
from genai_lab.models.model import Model
from genai_lab.models.rows import RowsExecutor


class BatchState:
    """The KV cache of `rows` sequences and the runs over it.

    Args:
        model: a loaded decoder-only model.
        rows: sequences.
        capacity: tokens per row, prompt included.
    """

    def __init__(self, model: Model, rows: int, capacity: int) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self.cache = ContiguousCache(model.kv_layout, rows, capacity)
        self._executor = RowsExecutor(model, self.cache.slab)
        self.lengths = np.zeros(rows, np.int64)  # [rows] tokens in each row
        self._logits: NDArray[np.float32] = np.zeros((rows, model.vocab_size), np.float32)  # of each row's last token

    def read(self, row: int, tokens: NDArray[np.int32], stops: Sequence[int]) -> NDArray[np.float32]:
        """Read the tokens [n] of one row, the first of which are in its cache already, in runs that end at `stops`;
        returns the last one's logits [V]."""
        logits = None
        for stop in stops:
            start = int(self.lengths[row])
            logits = self._executor.chunk(row, tokens[start:stop], start)
            self.lengths[row] = stop
        if logits is None:
            raise AssertionError("there is a token to read")
        self._logits[row] = logits
        return logits.copy()

    def decode(self, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
        """One more token for every row, `tokens` [rows]; returns logits [rows, V], which the next call overwrites."""
        self._logits = self._executor.decode(0, tokens, self.lengths)
        self.lengths += 1
        return self._logits

    def copy_row(self, source: int, targets: Sequence[int]) -> None:
        """`targets` hold what `source` holds."""
        length = int(self.lengths[source])
        for target in targets:
            self.cache.slab[:, :, target, :, :length] = self.cache.slab[:, :, source, :, :length]
            self.lengths[target], self._logits[target] = length, self._logits[source]

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

    def clear(self) -> None:
        """Forget every token."""
        self.lengths[:] = 0

    def output(self, name: str) -> NDArray[Any]:
        """A copy of one layer's present keys or values, [rows, kv_heads, longest row, head_dim], or of the last
        logits, [rows, 1, V]."""
        names = self.model.config.model.decoder.outputs
        length = int(self.lengths.max())
        if length == 0:
            raise StateError(f"get_output({name!r}): the model has not run yet; append tokens first")
        if name == names.logits:
            return self._logits[:, None].copy()
        for layer in range(self.cache.layout.num_layers):
            if name == names.present_key_names % layer:
                return self.cache.keys(layer)[:, :, :length].copy()
            if name == names.present_value_names % layer:
                return self.cache.values(layer)[:, :, :length].copy()
        known = f"{names.logits!r}, {names.present_key_names % 0!r}, {names.present_value_names % 0!r}, ..."
        raise ArgumentError(f"get_output({name!r}): no such output; allowed are {known}")
