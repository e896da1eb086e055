"""Graphs whose keys and values grow: each run takes the past and returns it with the new tokens behind it.

Graphs that cannot append in place are like that: those without GroupQueryAttention, GPT-2's with keys and values in one
tensor, those of several files, and any whose config has past_present_share_buffer off. All rows are read together:
padding stays in the rows and is masked, positions count real tokens only, so each row is that row alone. Where
attention counts the mask's ones instead of looking at their places (`row_front`), rows of different lengths are read
apart.

Layers of convolution or recurrence keep a state of one size beside it. It cannot be cut: going back needs a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import StateError
from genai_lab.models.batch import Reading
from genai_lab.models.extras import RunExtras
from genai_lab.models.graph import (
    fixed_names,
    fixed_shape,
    past_names,
    past_shape,
    row_axis,
    starting_values,
    token_axis,
)
from genai_lab.models.last_run import LastRun, in_numbers
from genai_lab.models.model import Model
from genai_lab.models.places import AnyPlace
from genai_lab.models.row_front import counts_from_front, known_front, widened
from genai_lab.models.session import Arrays
from genai_lab.models.token_feeds import token_feeds


@dataclass(frozen=True, slots=True)
class Kept:
    """A place to go back to. A run makes new arrays and changes none, so keeping them copies nothing."""

    past: Arrays
    mask: NDArray[np.bool_]
    outputs: Arrays

    @property
    def length(self) -> int:
        """Tokens that are in it."""
        return int(self.mask.shape[1])


class GrowingState(AnyPlace, LastRun):
    """The past of `rows` sequences and the runs over it.

    Args:
        model: a loaded model whose graph takes `past_key_values` (or `past`) and returns them grown.
        rows: sequences.
        capacity: tokens per row, prompt included.
    """

    def __init__(self, model: Model, rows: int, capacity: int, extras: RunExtras | None = None) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self.graph = model.graph.begin()
        self.past_names = past_names(self.graph, model.config)
        self.fixed_names = fixed_names(self.graph, model.config)
        self.extras = extras or RunExtras(self.graph, model.config)
        self._past: Arrays = {}
        self._mask: NDArray[np.bool_]  # [rows, tokens] False: padding
        self._kept: Kept | None = None
        self._in_prompt: bool  # until a token is read alone behind others
        self._from_front = False  # a row's tokens are its first places, whatever stands behind them
        self.clear()

    # ---- one sequence -------------------------------------------------------------------------------------------

    def prepare(self, tokens: NDArray[np.int32], cached: int, *, every: bool = False) -> None:
        """Take [S] new tokens of a single row after `cached` ones; what was known behind those is forgotten. `every`
        changes nothing: this graph gives what it gives."""
        if cached + tokens.size > self.capacity:
            raise StateError(f"{tokens.size} tokens after {cached} do not fit into a cache of {self.capacity}")
        held = self._mask.shape[1]
        if self.fixed_names and cached < held:  # they are in the state, which cannot be taken back: not twice
            tokens, cached = tokens[held - cached :], held
        self._cut(cached)
        self._mask = self._mask[:, :cached]
        self._ids = tokens[None, :]

    def run(self) -> None:
        """Run the graph over what was taken."""
        if self._ids.size:
            self._run(self._ids, np.concatenate([self._mask, np.ones(self._ids.shape, bool)], axis=1))

    def read_logits(self) -> NDArray[np.float32]:
        """[V] of the single row's last token."""
        row: NDArray[np.float32] = self.last_logits()[0]
        return row

    def read_all_logits(self) -> NDArray[np.float32]:
        """[S, V] float32 logits of every position of the single row, or [1, V] of the last."""
        rows: NDArray[np.float32] = self._logits()[0].astype(np.float32, copy=False)
        return rows

    def take_prefix(self, source: GrowingState, length: int) -> None:
        """Hold the first `length` tokens that `source` holds."""
        if length == 0:
            self.clear()
            return
        here = source._here()
        if source.fixed_names and length != here.length:
            raise StateError(
                f"fork: a state of convolutions or recurrences holds {here.length} tokens and cannot be cut to "
                f"{length}; fork where the generator is now"
            )
        self._restore(here)
        self._cut(length)
        self._mask, self._in_prompt = self._mask[:, :length], source._in_prompt

    def rewind(self, length: int) -> int:
        """The text was cut to `length` tokens; returns how many of them are held.

        Raises:
            StateError: layers of convolution or recurrence are past that place, and no snapshot was taken there.
        """
        if not self.fixed_names or length >= self._mask.shape[1]:
            return length
        if length == 0:
            self.clear()
            return 0
        if self._kept is None or length not in (self._kept.length, self._kept.length + 1):
            why = "is not supported without a snapshot"
            if self._kept is not None:
                why = f"cannot restore snapshot at length {self._kept.length}"
            raise StateError(
                f"RecurrentState::RewindTo({length}) {why}: layers of convolution or recurrence keep one state, not "
                "one per token. Call snapshot_state() at the place to come back to, or rewind_to(0)"
            )
        self._restore(self._kept)
        return self._kept.length

    def snapshot(self) -> None:
        """Remember this place, in place of the one remembered before. Only states that cannot be cut need it."""
        if self.fixed_names:
            self._kept = self._here()

    # ---- several ------------------------------------------------------------------------------------------------

    def read_rows(self, prompts: Sequence[NDArray[np.int32]], _chunk_size: int | None) -> list[Reading]:
        """Read every row's prompt, all in one run. What cannot be told of padding is read row by row."""
        start = perf_counter_ns()
        self.clear()
        ragged = len({prompt.size for prompt in prompts}) > 1
        self._from_front = ragged and self._counts_from_front()
        if ragged and (self.fixed_names or self._from_front):
            self._read_apart(prompts)
        else:
            self._read_together(prompts)
        return [Reading(tuple(range(self.rows)), start, perf_counter_ns())]

    def last_logits(self) -> NDArray[np.float32]:
        """[rows, V] of every row's last token."""
        last: NDArray[np.float32] = self._logits()[:, -1].astype(np.float32, copy=False)
        return last

    def decode(self, tokens: NDArray[np.int32]) -> None:
        """Read one more token in every row, `tokens` [rows]."""
        if self._from_front:
            mask = np.arange(self._mask.shape[1] + 1) <= self.lengths[:, None]
        else:
            mask = np.concatenate([self._mask, np.ones((self.rows, 1), bool)], axis=1)
        self._run(tokens[:, None], mask)

    def reorder(self, parents: Sequence[int], _begin: Sequence[int]) -> None:
        """Row i becomes what row parents[i] was."""
        for name, value in self._past.items():
            axis = row_axis(value.shape) if name in self.past_names else 0
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
        inputs, config = self.graph.inputs, self.model.config
        shapes = {name: past_shape(config, inputs[name], self.rows, 0) for name in self.past_names}
        shapes |= {name: fixed_shape(inputs[name], self.rows, self.graph.filename) for name in self.fixed_names}
        begins = starting_values(self.fixed_names, config)
        self._past = {name: np.full(shape, begins.get(name, 0), inputs[name].dtype) for name, shape in shapes.items()}
        self._ids = np.zeros((self.rows, 0), np.int32)
        self._mask = np.zeros((self.rows, 0), bool)
        self._feeds = {}
        self._outputs = {}
        self._in_prompt, self._kept, self._from_front = True, None, False

    # ---- inside -------------------------------------------------------------------------------------------------

    def _logits(self) -> NDArray[Any]:
        name = self.model.config.model.decoder.outputs.logits
        return in_numbers(self._outputs[name], self.graph.outputs[name])

    def _here(self) -> Kept:
        return Kept(self._past, self._mask, self._outputs)

    def _restore(self, kept: Kept) -> None:
        self._past, self._mask, self._outputs = dict(kept.past), kept.mask, kept.outputs

    def _cut(self, length: int) -> None:
        if length < self._mask.shape[1]:
            self._past = {
                name: cut(value, length) if name in self.past_names else value for name, value in self._past.items()
            }

    def _read_together(self, prompts: Sequence[NDArray[np.int32]]) -> None:
        width = max(prompt.size for prompt in prompts)
        ids, real = np.full((self.rows, width), self.model.config.model.pad_token_id, np.int32), []
        for row, prompt in enumerate(prompts):
            ids[row, width - prompt.size :] = prompt  # padded on the left: the last position is everyone's last token
            real.append([False] * (width - prompt.size) + [True] * prompt.size)
        self._run(ids, np.array(real))

    def _read_apart(self, prompts: Sequence[NDArray[np.int32]]) -> None:
        """Every row alone, then side by side with room in front of the shorter ones, or behind them."""
        sizes = np.array([prompt.size for prompt in prompts])
        width = int(sizes.max())
        alone = [self._alone(prompt) for prompt in prompts]
        for name in self._past:
            values = [state._past[name] for state in alone]
            if name in self.past_names:
                room = zip(values, width - sizes, strict=True)
                values = [widened(value, count, behind=self._from_front) for value, count in room]
            self._past[name] = np.concatenate(values, axis=row_axis(values[0].shape) if name in self.past_names else 0)
        mask = np.arange(width) < sizes[:, None]
        self._mask = mask if self._from_front else mask[:, ::-1]
        last = np.concatenate([state.last_logits() for state in alone])
        self._outputs = {self.model.config.model.decoder.outputs.logits: last[:, None]}
        self._feeds, self._in_prompt = alone[-1]._feeds, False

    def _alone(self, prompt: NDArray[np.int32]) -> GrowingState:
        """A row of its own that has read `prompt`."""
        state = GrowingState(self.model, 1, self.capacity, self.extras)
        state.prepare(prompt, 0)
        state.run()
        return state

    def _counts_from_front(self) -> bool:
        known = known_front(self.model)
        if known is not None or not self.past_names:
            return bool(known)
        state = self._alone(np.zeros(2, np.int32))
        return counts_from_front(self.model, state.graph, state._past, set(self.past_names), self.extras.used)

    def _inputs_of(self, ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> Arrays:
        """The inputs that follow from the tokens."""
        return token_feeds(self.graph, self.model.config, ids, mask)

    def _run(self, ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> None:
        """Run over new tokens `ids` [rows, S]; `mask` [rows, T] covers the past and them."""
        self.extras.check_complete()
        self._in_prompt = self._in_prompt and (ids.shape[1] > 1 or mask.shape[1] == 1)
        self._feeds = self._past | self._inputs_of(ids, mask) | self.extras.used
        extras = self.extras
        outputs = self.graph.run(self._feeds, extras.options, is_prompt=self._in_prompt, weights=extras.weights)
        names = self.past_names | self.fixed_names
        check_given(outputs, names, self.model.config.model.decoder.outputs.logits, self._in_prompt)
        self._past = {past: present_of(past, present, outputs) for past, present in names.items()}
        self._outputs, self._mask = outputs, mask


def check_given(outputs: Arrays, names: Mapping[str, str], logits: str, in_prompt: bool) -> None:
    """Raises StateError when stages left out the logits or a part of the cache."""
    wanted = [(logits,), *((present, past) for past, present in names.items())]
    missing = next((either[0] for either in wanted if not any(name in outputs for name in either)), None)
    if missing is not None:
        when = "the prompt" if in_prompt else "a generated token"
        raise StateError(
            f"no stage gave {missing!r} in the run over {when}; add it to the outputs of a stage that runs then "
            "(genai_config.json, model.decoder.pipeline: outputs, run_on_prompt, run_on_token_gen)"
        )


def present_of(past: str, present: str, outputs: Arrays) -> NDArray[Any]:
    """What the next run takes as `past`; a stage may also give it under that very name."""
    return outputs[present] if present in outputs else outputs[past]


def cut(past: NDArray[Any], length: int) -> NDArray[Any]:
    """The first `length` tokens of a past."""
    return np.ascontiguousarray(past[(slice(None),) * token_axis(past.shape) + (slice(length),)])
