"""Many sequences in one run of a paged decoder: their tokens in one row, their blocks in a table.

Receives parts (tokens, how many the sequence has already, its blocks) and the pool that somebody else owns; returns
logits. The pool is bound once, as past and as present, so that the graph writes into the blocks it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, ModelFolderError
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
    blocks: Sequence[int]  # enough for past + S tokens
    wanted: int = 1  # of how many last tokens the logits are read


class PackedExecutor:
    """Runs a paged decoder.

    Args:
        model: a loaded model whose graph reads block tables.
        paged: the facts of its graph.
        pool: by input name, [blocks, block_size, *shape of a token].
    """

    def __init__(self, model: Model, paged: PagedGraph, pool: Mapping[str, NDArray[Any]]) -> None:
        self.model, self.paged, self.pool = model, paged, pool
        self._names, session = packed_inputs(model.config), model.session
        self._logits = model.config.model.decoder.outputs.logits
        self._options = RunExtras(session, model.config, [*self._names.values(), *pool]).options
        self._binding = session.inference.io_binding()
        self._binding.bind_output(self._logits, "cpu")  # the first output: the first of `get_outputs`
        for tensor in paged.tensors:
            memory = pool[tensor.name]
            _bind_input(self._binding, tensor.name, memory)
            self._binding.bind_output(
                tensor.output, "cpu", 0, memory.dtype.type, list(memory.shape), memory.ctypes.data
            )

    @property
    def has_all_logits(self) -> bool:
        """Whether the logits of other tokens than a sequence's last can be had."""
        shape = self.model.session.outputs[self._logits].shape
        return self._selects or shape[0] != ONE_PER_SEQUENCE

    def run(self, parts: Sequence[Part]) -> list[NDArray[np.float32]]:
        """Read every part's tokens; for each the logits [wanted, V] of its last ones."""
        feeds = self._feeds(parts)
        for name, value in feeds.items():
            _bind_input(self._binding, name, value)
        self._binding.bind_output(self._logits, "cpu")
        self.model.session.inference.run_with_iobinding(self._binding, self._options)
        logits = self._binding.get_outputs()[0].numpy()
        return self._rows(logits.reshape(-1, logits.shape[-1]), parts)

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
            "block_table": _table(parts),
            "attention_metadata": np.array([lengths.max(), longest, longest]),  # bounds: query, keys above and below
            "logits_indices": _wanted(parts),
        }
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


def _table(parts: Sequence[Part]) -> NDArray[np.int64]:
    """[sequences, most blocks]."""
    table = np.full((len(parts), max(len(part.blocks) for part in parts)), NO_BLOCK)
    for row, part in zip(table, parts, strict=True):
        row[: len(part.blocks)] = part.blocks
    return table


def _wanted(parts: Sequence[Part]) -> NDArray[np.int64]:
    """Which of all tokens the logits are read of."""
    ends = np.cumsum([part.tokens.size for part in parts])
    return np.concatenate([np.arange(end - part.wanted, end) for end, part in zip(ends, parts, strict=True)])


def _bind_input(binding: Any, name: str, array: NDArray[Any]) -> None:
    binding.bind_input(name, "cpu", 0, array.dtype.type, list(array.shape), array.ctypes.data)
