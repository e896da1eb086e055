"""The inputs of a decoder's graph that follow from its tokens: ids, mask, places, lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.config import Config
from genai_lab.errors import StateError
from genai_lab.models.graph import token_inputs
from genai_lab.models.session import Arrays, Graph, TensorInfo


def token_feeds(graph: Graph, config: Config, ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> Arrays:
    """The token inputs by their names in the graph, in the types and with the axes that it wants.

    Args:
        ids: [rows, S] new tokens.
        mask: [rows, T] over the past and them; False is padding.

    Raises:
        StateError: several rows, where the graph takes lengths that only one row can have.
    """
    names, total, new = token_inputs(config), mask.shape[1], ids.shape[1]
    # beside current_sequence_length the past is what attention kernels call seqlens_k: the place of the last token
    seqlens = names["current_sequence_length"] in graph.inputs and names["past_sequence_length"] in graph.inputs
    if seqlens and ids.shape[0] > 1:
        raise StateError(
            f"Batch size must be 1 for current_sequence_length and past_sequence_length inputs; got {ids.shape[0]} "
            "rows (batch_size x num_beams). Make one generator per prompt, with num_beams=1"
        )
    values: dict[str, Any] = {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, total - new :],
        "total_sequence_length": total,
        "past_sequence_length": total - 1 if seqlens else total - new,
        "past_key_values_length": total - new,
        "current_sequence_length": total,
    }
    return {name: shaped(values[kind], graph.inputs[name]) for kind, name in names.items() if name in graph.inputs}


def shaped(value: Any, info: TensorInfo) -> NDArray[Any]:
    """A number, or an array [rows, S], in the type and with the number of axes that a graph wants: without the axis of
    the rows, or repeated along a first axis (the time, height and width of a place in a picture; alike in text)."""
    array, rank = np.asarray(value).astype(info.dtype), len(info.shape)
    if not array.ndim:
        return np.full((1,) * rank, array)
    if rank == 1:
        return array.reshape(-1)
    if rank == 3:
        times = info.shape[0] if isinstance(info.shape[0], int) and info.shape[0] > 0 else 3
        return np.ascontiguousarray(np.broadcast_to(array, (times, *array.shape)))
    return array
