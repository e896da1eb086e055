"""Graphs whose keys and values grow: each run takes the past and returns it with the new tokens behind it.

Graphs that cannot append in place are like that: those without GroupQueryAttention, GPT-2's with keys and values in one
tensor, and any whose config has past_present_share_buffer off. All rows are read together: padding stays in the rows
and is masked, positions count real tokens only, so each row is that row alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, StateError
from genai_lab.models.batch import Reading
from genai_lab.models.extras import RunExtras, unknown_input
from genai_lab.models.graph import past_names, past_shape, token_inputs
from genai_lab.models.model import Model

Arrays = dict[str, NDArray[Any]]


class GrowingState:
    """The past of `rows` sequences and the runs over it.

    Args:
        model: a loaded model whose graph takes `past_key_values` (or `past`) and returns them grown.
        rows: sequences.
        capacity: tokens per row, prompt included.
    """

    def __init__(self, model: Model, rows: int, capacity: int, extras: RunExtras | None = None) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self.past_names = past_names(model.session, model.config)
        self.extras = extras or RunExtras(model.session, model.config)
        self._past: Arrays = {}
        self.clear()

    @property
    def terminated(self) -> bool:
        """Whether the reading of a prompt in progress is told to stop. (A decode is over in milliseconds, and is
        stopped by the runtime option terminate_session only: looking at run options costs it one percent.)"""
        return bool(self.extras.options.terminate)

    @terminated.setter
    def terminated(self, value: bool) -> None:
        self.extras.options.terminate = value

    # ---- one sequence -------------------------------------------------------------------------------------------

    def prepare(self, tokens: NDArray[np.int32], cached: int) -> None:
        """Take [S] new tokens of a single row after `cached` ones; what was known behind those is forgotten."""
        if cached + tokens.size > self.capacity:
            raise StateError(f"{tokens.size} tokens after {cached} do not fit into a cache of {self.capacity}")
        self._cut(cached)
        self._ids, self._mask = tokens[None, :], np.ones((1, cached + tokens.size), bool)

    def run(self) -> None:
        """Run the graph over what was taken."""
        self._run(self._ids, self._mask)

    def read_logits(self) -> NDArray[np.float32]:
        """[V] of the single row's last token."""
        row: NDArray[np.float32] = self.last_logits()[0]
        return row

    def take_prefix(self, source: GrowingState, length: int) -> None:
        """Hold the first `length` tokens that `source` holds."""
        self._past = {name: cut(source._past[name], length) for name in self.past_names}
        self._mask = source._mask[:, :length]

    # ---- several ------------------------------------------------------------------------------------------------

    def read_rows(self, prompts: Sequence[NDArray[np.int32]], _chunk_size: int | None) -> list[Reading]:
        """Read every row's prompt, all in one run."""
        start = perf_counter_ns()
        width = max(prompt.size for prompt in prompts)
        ids, real = np.full((self.rows, width), self.model.config.model.pad_token_id, np.int32), []
        for row, prompt in enumerate(prompts):
            ids[row, width - prompt.size :] = prompt  # padded on the left: the last position is everyone's last token
            real.append([False] * (width - prompt.size) + [True] * prompt.size)
        self.clear()
        self._run(ids, np.array(real))
        return [Reading(tuple(range(self.rows)), start, perf_counter_ns())]

    def last_logits(self) -> NDArray[np.float32]:
        """[rows, V] of every row's last token."""
        logits = self._outputs[self.model.config.model.decoder.outputs.logits]
        last: NDArray[np.float32] = logits[:, -1].astype(np.float32, copy=False)
        return last

    def decode(self, tokens: NDArray[np.int32]) -> None:
        """Read one more token in every row, `tokens` [rows]."""
        mask = np.concatenate([self._mask, np.ones((self.rows, 1), bool)], axis=1)
        self._run(tokens[:, None], mask)

    def reorder(self, parents: Sequence[int], _begin: Sequence[int]) -> None:
        """Row i becomes what row parents[i] was."""
        for name, value in self._past.items():
            axis = row_axis(value)
            self._past[name] = np.take(value, list(parents), axis=axis)
        self._mask = self._mask[list(parents)]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[rows] real tokens in each row."""
        lengths: NDArray[np.int64] = self._mask.sum(axis=1, dtype=np.int64)
        return lengths

    # ---- both ---------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget every token."""
        session, config = self.model.session, self.model.config
        self._past = {
            name: np.zeros(past_shape(config, session, name, self.rows, 0), session.inputs[name].dtype)
            for name in self.past_names
        }
        self._ids = np.zeros((self.rows, 0), np.int32)
        self._mask = np.zeros((self.rows, 0), bool)  # [rows, tokens] False: padding
        self._feeds: Arrays = {}
        self._outputs: Mapping[str, Any] = {}

    def output(self, name: str, _length: int | None = None) -> NDArray[Any]:
        """A copy of one output of the last run, as the graph gave it."""
        if not self._outputs:
            raise StateError(f"get_output({name!r}): the model has not run yet; append tokens first")
        if name not in self._outputs:
            raise ArgumentError(f"get_output({name!r}): no such output; allowed are {', '.join(self._outputs)}")
        return np.array(self._outputs[name])

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last run."""
        if name not in self._feeds:
            raise ArgumentError(unknown_input(name, self._feeds))
        return np.array(self._feeds[name])

    # ---- inside -------------------------------------------------------------------------------------------------

    def _cut(self, length: int) -> None:
        if length < self._mask.shape[1]:
            self._past = {name: cut(value, length) for name, value in self._past.items()}

    def _run(self, ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> None:
        """Run over new tokens `ids` [rows, S]; `mask` [rows, T] covers the past and them."""
        self.extras.check_complete()
        self._feeds = self._past | self._inputs(ids, mask) | self.extras.used
        values = self.model.session.inference.run(None, self._feeds, self.extras.options)
        outputs = dict(zip(self.model.session.outputs, values, strict=True))
        self._past = {past: outputs[present] for past, present in self.past_names.items()}
        self._outputs, self._mask = outputs, mask

    def _inputs(self, ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> Arrays:
        """The token inputs by their names in the graph, in the types that it wants."""
        known = self.model.session.inputs
        total, new = mask.shape[1], ids.shape[1]
        values: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, total - new :],
            "total_sequence_length": total,
            "past_sequence_length": total - new,
            "past_key_values_length": total - new,
            "current_sequence_length": total,
        }
        return {
            name: shaped(values[kind], known[name].dtype, len(known[name].shape))
            for kind, name in token_inputs(self.model.config).items()
            if name in known
        }


def shaped(value: Any, dtype: np.dtype[Any], rank: int) -> NDArray[Any]:
    """A number or array in the type and with the number of axes that a graph wants."""
    array = np.asarray(value).astype(dtype)
    return array if array.ndim else np.full((1,) * rank, array)


def row_axis(past: NDArray[Any]) -> int:
    """Which axis of a past counts the rows."""
    return past.ndim - 4


def cut(past: NDArray[Any], length: int) -> NDArray[Any]:
    """The first `length` tokens of a past."""
    return np.ascontiguousarray(past[..., :length, :])
