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
from genai_lab.models.graph import fixed_names, fixed_shape, layers_of, past_names, starting_values
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
class StateTensor:
    """A state of one size, [sequences, *shape]; read as `name`, written as `output`."""

    name: str
    output: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of one sequence
    start: int  # what fills it at the beginning


@dataclass(frozen=True, slots=True)
class PagedGraph:
    """What a paged decoder keeps."""

    tensors: tuple[PoolTensor, ...]  # of layers that see everything
    block_size: int | None  # tokens of a block, where the graph says it
    num_blocks: int | None
    rings: tuple[PoolTensor, ...] = ()  # of layers that see a window, in blocks that are written round and round
    window: int = 0  # tokens that those layers see, itself included
    num_ring_blocks: int | None = None  # of all sequences, where the graph says it
    states: tuple[StateTensor, ...] = ()

    @property
    def bytes_per_token(self) -> int:
        """Bytes that a token takes in the pool, over all layers that see everything."""
        return sum(tensor.bytes_per_token for tensor in self.tensors)

    @property
    def shares_prefixes(self) -> bool:
        """Whether a sequence can begin with blocks that another filled: no layer keeps its last tokens in a ring."""
        return not self.rings


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
    names, windowed = past_names(graph, config), _windowed_names(graph, config)
    tensors = {name: _tensor(graph, graph.inputs[name], output, config) for name, output in names.items()}
    if not set(names) - windowed:
        raise ModelFolderError(
            f"{graph.filename!r} has no layer that sees everything; a model that reads block tables needs one, whose "
            "blocks an Engine counts. Correct model.decoder.sliding_window.layers in genai_config.json"
        )
    counts = {name: graph.inputs[name].shape[0] for name in names}
    section = config.model.decoder.sliding_window or {}
    return PagedGraph(
        tensors=tuple(tensors[name] for name in names if name not in windowed),
        block_size=_one(graph, "block_size", (graph.inputs[name].shape[1] for name in names)),
        num_blocks=_one(graph, "num_blocks", (counts[name] for name in names if name not in windowed)),
        rings=tuple(tensors[name] for name in names if name in windowed),
        window=section["window_size"] if windowed else 0,
        num_ring_blocks=_one(graph, "num_blocks", (counts[name] for name in names if name in windowed)),
        states=_states(graph, config),
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
        "block_table_windowed",
        "attention_metadata",
        "logits_indices",
        "state_update_capture_count",
        "state_update_active",
    )
    return {kind: getattr(names, kind) for kind in kinds if getattr(names, kind) is not None}


def _check_inputs(graph: Graph, config: Config) -> None:
    given = {*packed_inputs(config).values(), *past_names(graph, config), *fixed_names(graph, config)}
    unknown = [name for name in graph.inputs if name not in given]
    if unknown:
        raise ModelFolderError(
            f"{graph.filename!r} reads its cache through block tables and wants {unknown[0]!r}, an input that an "
            f"Engine of this version does not give; it gives {', '.join(packed_inputs(config).values())}, keys, values "
            "and states. A model whose drafter runs inside of onnxruntime-genai wants more; export it without"
        )
    needed = ("input_ids", "cumulative_sequence_lengths", "past_sequence_lengths")
    missing = [packed_inputs(config)[kind] for kind in needed if packed_inputs(config)[kind] not in graph.inputs]
    if missing:
        raise ModelFolderError(
            f"{graph.filename!r} reads its cache through block tables but has no input {missing[0]!r}. Correct the "
            "names in genai_config.json, or export the graph for onnxruntime-genai's Engine"
        )


def _windowed_names(graph: Graph, config: Config) -> set[str]:
    """The pasts of layers that see a window, if the graph has a table of its own for them."""
    decoder = config.model.decoder
    section, names = decoder.sliding_window or {}, decoder.inputs
    if names.block_table_windowed not in graph.inputs:
        return set()
    layers, window = section.get("layers", ()), section.get("window_size", 0)
    patterns = (
        names.past_key_names,
        names.past_value_names,
        names.past_key_scale_names,
        names.past_value_scale_names,
    )
    if window < 1 or not set(layers) <= set(layers_of(names.past_key_names, graph)):
        raise ModelFolderError(
            f"{graph.filename!r} wants {names.block_table_windowed!r}, but model.decoder.sliding_window of "
            f"genai_config.json is {dict(section)!r:.120}; a window_size of at least 1 and the numbers of layers that "
            "the graph has are needed"
        )
    return {pattern % layer for pattern in patterns if pattern for layer in layers}


def _states(graph: Graph, config: Config) -> tuple[StateTensor, ...]:
    names = fixed_names(graph, config)
    starts = starting_values(names, config)
    infos = [graph.inputs[name] for name in names]
    return tuple(
        StateTensor(i.name, names[i.name], i.dtype, fixed_shape(i, 1, graph.filename)[1:], starts.get(i.name, 0))
        for i in infos
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
