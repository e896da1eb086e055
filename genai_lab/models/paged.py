"""A decoder whose graph reads its cache through block tables: what it keeps, in which sizes, and what it must be given.

Receives a loaded graph and its config. Returns facts, or an error that names what cannot be given here. It holds no
memory and runs nothing. Names and shapes are onnxruntime-genai's for folders with `engine.dynamic_batching`:
tokens of all sequences in one row [tokens], their ends [sequences + 1], the tokens each has already [sequences], and
its blocks [sequences, most blocks], -1 where it has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_lab.config import Config
from genai_lab.errors import ModelFolderError
from genai_lab.models.graph import fixed_names, past_names
from genai_lab.models.session import Graph, TensorInfo


@dataclass(frozen=True, slots=True)
class PoolTensor:
    """Keys, values or scales of one layer, [blocks, block_size, *shape]; read as `name`, written as `output`."""

    name: str
    output: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of one token, such as (kv_heads, head_dim)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class PagedGraph:
    """What a paged decoder keeps."""

    tensors: tuple[PoolTensor, ...]
    block_size: int | None  # tokens of a block, where the graph says it
    num_blocks: int | None

    @property
    def bytes_per_token(self) -> int:
        """Bytes that a token takes, over all layers."""
        return sum(tensor.bytes_per_token for tensor in self.tensors)


def is_paged(graph: Graph, config: Config) -> bool:
    """Whether the graph reads its cache through block tables, so that an Engine must hold the loop."""
    return config.model.decoder.inputs.block_table in graph.inputs


def paged_graph(graph: Graph, config: Config) -> PagedGraph:
    """The facts of a graph that `is_paged`.

    Raises:
        ModelFolderError: the graph wants an input that nothing here gives, or its cache is of a kind that no pool of
        blocks holds.
    """
    _check_inputs(graph, config)
    names = past_names(graph, config)
    sizes = [graph.inputs[name].shape[:2] for name in names]
    return PagedGraph(
        tensors=tuple(_tensor(graph, graph.inputs[name], output, config) for name, output in names.items()),
        block_size=_one(graph, "block_size", (size for _, size in sizes)),
        num_blocks=_one(graph, "num_blocks", (count for count, _ in sizes)),
    )


def packed_inputs(config: Config) -> Mapping[str, str]:
    """{what it is: its name in the graph} of the inputs that follow from the sequences of a run."""
    names = config.model.decoder.inputs
    kinds = (
        "input_ids",
        "position_ids",
        "cumulative_sequence_lengths",
        "past_sequence_lengths",
        "block_table",
        "attention_metadata",
        "logits_indices",
    )
    return {kind: getattr(names, kind) for kind in kinds if getattr(names, kind) is not None}


def _check_inputs(graph: Graph, config: Config) -> None:
    given = {*packed_inputs(config).values(), *past_names(graph, config)}
    unknown = [name for name in graph.inputs if name not in given]
    if unknown:
        why = "a state that does not grow with the text" if unknown[0] in fixed_names(graph, config) else "an input"
        raise ModelFolderError(
            f"{graph.filename!r} reads its cache through block tables and wants {unknown[0]!r}, {why} that an Engine "
            f"of this version does not give; it gives {', '.join(packed_inputs(config).values())}, and keys and values"
        )
    needed = ("input_ids", "cumulative_sequence_lengths", "past_sequence_lengths")
    missing = [packed_inputs(config)[kind] for kind in needed if packed_inputs(config)[kind] not in graph.inputs]
    if missing:
        raise ModelFolderError(
            f"{graph.filename!r} reads its cache through block tables but has no input {missing[0]!r}. Correct the "
            "names in genai_config.json, or export the graph for onnxruntime-genai's Engine"
        )


def _tensor(graph: Graph, info: TensorInfo, output: str, config: Config) -> PoolTensor:
    """[blocks, block_size, kv_heads, head_dim], or [blocks, block_size, kv_heads] of scales."""
    decoder = config.model.decoder
    stated = (decoder.num_key_value_heads or decoder.num_attention_heads, decoder.head_size)
    if info.is_bfloat16 or len(info.shape) not in (3, 4):
        kind = "bfloat16" if info.is_bfloat16 else f"the shape {list(info.shape)}"
        raise ModelFolderError(
            f"{graph.filename!r}: {info.name!r} has {kind}; a paged cache is [blocks, block_size, heads, head size], "
            "its scales [blocks, block_size, heads], in float32, float16 or 8 bits. Export the graph so"
        )
    shape = tuple(
        said if isinstance(said, int) and said > 0 else size
        for said, size in zip(info.shape[2:], stated[: len(info.shape) - 2], strict=True)
    )
    return PoolTensor(info.name, output, info.dtype, shape)


def _one(graph: Graph, what: str, sizes: Iterable[int | str | None]) -> int | None:
    """The size that all tensors state; None when none does."""
    stated = {size for size in sizes if isinstance(size, int) and size > 0}
    if len(stated) > 1:
        raise ModelFolderError(
            f"{graph.filename!r}: its layers have different sizes of {what}: {', '.join(map(str, sorted(stated)))}; "
            "one for all layers is allowed. Export the graph with the same, or leave that axis open"
        )
    return stated.pop() if stated else None
