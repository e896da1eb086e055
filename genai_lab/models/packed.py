"""Many sequences in one run of a paged decoder: their tokens in one row, their blocks in a table.

Receives parts (tokens, how many the sequence has already, its row) and the store that somebody else owns; returns
logits. The pool is bound once, as past and as present, so that the graph writes into the blocks it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, ModelFolderError
from genai_lab.kvcache import BlockStore
from genai_lab.kvcache.beside import Arrays, Rings, RowStates
from genai_lab.models.binding import bind_input, bind_output
from genai_lab.models.extras import RunExtras
from genai_lab.models.model import Model
from genai_lab.models.paged import PagedGraph, packed_inputs

NO_BLOCK = -1  # in a table, behind a sequence's last block
ONE_PER_SEQUENCE = "batch_size"  # how onnxruntime-genai names the first axis of logits with one row per sequence


@dataclass(frozen=True, slots=True)
class Part:
    """One sequence's part of a run."""

    tokens: NDArray[np.int32]  # [S], at least one
    past: int  # tokens it has in its blocks
    row: int  # of the store; its blocks are enough for past + S tokens
    wanted: int = 1  # of how many last tokens the logits are read


def make_pool(
    paged: PagedGraph, rows: int, num_blocks: int, block_size: int, most: int, sharing: bool = False
) -> BlockStore:
    """A store for the graph.

    Args:
        rows: sequences at a time.
        most: tokens of one sequence in a run.
        sharing: sequences may begin with what others read.

    Raises:
        CapacityError: it can never fit into this machine's memory.
    """
    tokens, last = ({t.name: (t.shape, t.dtype) for t in group} for group in (paged.tensors, paged.rings))
    rings = Rings(last, rows, block_size, paged.window, most) if last else None
    shapes, starts = {s.name: (s.shape, s.dtype) for s in paged.states}, {s.name: s.start for s in paged.states}
    states = RowStates(shapes, starts, rows, sharing=sharing) if shapes else None
    return BlockStore(tokens, rows, num_blocks, block_size, rings=rings, states=states)


class PackedExecutor:
    """Runs a paged decoder.

    Args:
        model: a loaded model whose graph reads block tables.
        paged: the facts of its graph.
        store: what `make_pool` made.
    """

    def __init__(self, model: Model, paged: PagedGraph, store: BlockStore) -> None:
        self.model, self.paged, self.store = model, paged, store
        self._names, session = packed_inputs(model.config), model.session
        self._logits = model.config.model.decoder.outputs.logits
        self._options = RunExtras(session, model.config, self._names.values()).options
        self._binding = session.inference.io_binding()
        self._binding.bind_output(self._logits, "cpu")  # the first output: the first of `get_outputs`
        pool = store.pool | (store.rings.arrays if store.rings is not None else {})
        for tensor in (*paged.tensors, *paged.rings):
            memory = pool[tensor.name]
            bind_input(self._binding, tensor.name, memory)
            bind_output(self._binding, tensor.output, memory)

    @property
    def has_all_logits(self) -> bool:
        """Whether several last tokens of a sequence can be read to choose after each: their logits can be had, and no
        state has seen those that prove wrong."""
        shape = self.model.session.outputs[self._logits].shape
        return not self.paged.states and (self._selects or shape[0] != ONE_PER_SEQUENCE)

    def run(self, parts: Sequence[Part]) -> list[NDArray[np.float32]]:
        """Read every part's tokens; for each the logits [wanted, V] of its last ones."""
        feeds, states = self._feeds(parts), self.store.states
        if states is not None:
            feeds |= states.of([part.row for part in parts])
        left = self._bind_states(len(parts))
        for name, value in feeds.items():
            bind_input(self._binding, name, value)
        self._binding.bind_output(self._logits, "cpu")
        self.model.session.inference.run_with_iobinding(self._binding, self._options)
        if states is not None:
            for place, part in enumerate(parts):
                states.offer(part.row, {name: value[place] for name, value in left.items()})
        logits = self._binding.get_outputs()[0].numpy()
        return self._rows(logits.reshape(-1, logits.shape[-1]), parts)

    def _bind_states(self, count: int) -> Arrays:
        """New memory for the states that a run of `count` sequences leaves behind, by the names they are read by."""
        left: Arrays = {}
        for state in self.paged.states:
            left[state.name] = memory = np.empty((count, *state.shape), state.dtype)
            bind_output(self._binding, state.output, memory)
        return left

    @property
    def _selects(self) -> bool:
        return self._names.get("logits_indices") in self.model.session.inputs

    def _feeds(self, parts: Sequence[Part]) -> dict[str, NDArray[Any]]:
        """What follows from the parts, by the graph's names and in its types."""
        lengths, past = np.array([part.tokens.size for part in parts]), np.array([part.past for part in parts])
        positions = np.concatenate([np.arange(part.past, part.past + part.tokens.size) for part in parts])
        longest = int((past + lengths).max())
        values = {
            "input_ids": np.concatenate([part.tokens for part in parts]),
            "position_ids": positions,
            "cumulative_sequence_lengths": np.concatenate([[0], np.cumsum(lengths)]),
            "past_sequence_lengths": past,
            "block_table": _table([self.store.block_table(part.row) for part in parts]),
            "state_update_capture_count": np.zeros(len(parts)),  # nothing has to be taken back
            "state_update_active": np.zeros(1),
            "attention_metadata": np.array([lengths.max(), longest, longest]),  # bounds: query, keys above and below
            "logits_indices": _wanted(parts),
        }
        if self.store.rings is not None:
            columns, rings = values["block_table"].shape[1], [self.store.rings.blocks(part.row) for part in parts]
            values["block_table_windowed"] = np.array([np.resize(ring, columns) for ring in rings])
        inputs = self.model.session.inputs
        feeds = {
            self._names[kind]: np.ascontiguousarray(value, inputs[self._names[kind]].dtype)
            for kind, value in values.items()
            if self._names.get(kind) in inputs
        }
        name = self._names["position_ids"]
        if name in feeds and len(inputs[name].shape) == 2:  # time, height and width of a picture's parts: text has one
            feeds[name] = np.tile(feeds[name], (int(inputs[name].shape[0] or 1), 1))
        return feeds

    def _rows(self, logits: NDArray[Any], parts: Sequence[Part]) -> list[NDArray[np.float32]]:
        """The rows of each part, whether the graph gives one per token, per wanted token or per sequence."""
        tokens, wanted = sum(part.tokens.size for part in parts), sum(part.wanted for part in parts)
        if self._selects and logits.shape[0] == wanted:
            ends = np.cumsum([part.wanted for part in parts])
        elif logits.shape[0] == tokens:
            ends = np.cumsum([part.tokens.size for part in parts])
        elif logits.shape[0] == len(parts):
            ends = np.arange(1, len(parts) + 1)
            if any(part.wanted > 1 for part in parts):
                raise ArgumentError(f"{self._logits!r} has one row per sequence; wanted is 1 only")
        else:
            raise ModelFolderError(
                f"{self.model.session.filename!r} gave {logits.shape[0]} rows of {self._logits!r} for {len(parts)} "
                f"sequences of {tokens} tokens; one row per sequence or per token is allowed"
            )
        return [
            logits[end - part.wanted : end].astype(np.float32) for end, part in zip(ends.tolist(), parts, strict=True)
        ]


def _table(tables: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """[sequences, most blocks]."""
    padded = np.full((len(tables), max(map(len, tables))), NO_BLOCK)
    for row, blocks in zip(padded, tables, strict=True):
        row[: len(blocks)] = blocks
    return padded


def _wanted(parts: Sequence[Part]) -> NDArray[np.int64]:
    """Which of all tokens the logits are read of."""
    ends = np.cumsum([part.tokens.size for part in parts])
    return np.concatenate([np.arange(end - part.wanted, end) for end, part in zip(ends, parts, strict=True)])
