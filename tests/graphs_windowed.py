"""Tiny decoders that read a prompt window by window, as exports for neural processors do: two stages of fixed sizes,
one for a window and one for a token, with a mask over the whole context.

    folder = windowed(tmp_path / "windowed")                        # keys and values grow
    folder = windowed(tmp_path / "sliding", sliding_cache=True)     # keys and values slide, in 8 bits

The logits depend on every id, place and number of the mask, and on every element of the past and its order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.graphs import VOCABULARY, Graph
from tests.graphs_stages import FLOAT, INT32, INT64, Signature, save, write_config

HEADS, HEAD_SIZE, CONTEXT, WINDOW = 2, 4, 32, 4


def windowed(
    path: Path,
    *,
    sliding_cache: bool = False,
    shared: bool = False,
    alignment: str | None = None,
    pad_value: int = 0,
    ids: int = INT32,
    mask: int | None = INT32,
    positions: int | None = INT32,
    lengths: bool = False,
    window: dict[str, Any] | None = None,
) -> Path:
    """Write a model folder at `path` and return it.

    Args:
        sliding_cache: keys and values of 8 bits that are as long as the context less what is new.
        shared: keys and values with room for max_length tokens; needs `lengths`.
        alignment: where the prompt's own tokens are in its windows; None leaves it out.
        mask, positions: types of these inputs, None for graphs without them.
        lengths: the graphs take past_sequence_length and total_sequence_length.
        window: more keys of sliding_window.
    """
    path.mkdir(parents=True)
    for name, size in (("context", WINDOW), ("iterator", 1)):
        _stage(path, name, size, sliding_cache, shared, ids, mask, positions, lengths)
    cache = [f"0.{part}" for part in ("key", "value")]
    inputs = ["input_ids", "attention_mask", "position_ids", "past_sequence_length", "total_sequence_length"]
    stage = {"inputs": [*inputs, *(f"past_key_values.{name}" for name in cache)]}
    stage["outputs"] = ["logits", *(f"present.{name}" for name in cache)]
    pipeline = {
        "context": stage | {"filename": "context.onnx", "run_on_token_gen": False},
        "iterator": stage | {"filename": "iterator.onnx", "run_on_prompt": False},
    }
    sliding = {"window_size": WINDOW, "pad_value": pad_value, "slide_inputs": True}
    sliding |= {"slide_key_value_cache": sliding_cache} | (window or {})
    sliding |= {} if alignment is None else {"alignment": alignment}
    decoder = {
        "hidden_size": HEADS * HEAD_SIZE,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "num_hidden_layers": 1,
        "head_size": HEAD_SIZE,
        "sliding_window": sliding,
        "pipeline": [pipeline],
    }
    model = {"type": "decoder-pipeline", "decoder": decoder, "context_length": CONTEXT}
    return write_config(path, model, past_present_share_buffer=shared)


def _stage(
    path: Path,
    name: str,
    size: int,
    sliding_cache: bool,
    shared: bool,
    ids: int,
    mask: int | None,
    positions: int | None,
    lengths: bool,
) -> None:
    g = Graph(0)
    inputs: Signature = [("input_ids", ids, [1, size])]
    x = g.op("Gather", g.weight(VOCABULARY, VOCABULARY, gain=4.0), "input_ids")  # [1, S, V]
    numbers = [("attention_mask", mask, [1, CONTEXT]), ("position_ids", positions, [1, size])]
    kind = INT32 if lengths else None
    numbers += [("past_sequence_length", kind, [1, 1]), ("total_sequence_length", kind, [1])]
    for each, dtype, shape in numbers:
        if dtype is not None:
            inputs.append((each, dtype, shape))
            x = g.op("Add", x, _seen(g, each, shape[-1]))
    outputs: Signature = [("logits", FLOAT, [1, size, VOCABULARY])]
    for part in ("key", "value"):
        past, present = f"past_key_values.0.{part}", f"present.0.{part}"
        x = g.op("Add", x, _cache(g, part, past, present, size, sliding_cache, shared, inputs, outputs))
    g.op("Identity", x, name="logits")
    save(path, name, g, inputs, outputs)


def _seen(g: Graph, name: str, size: int) -> str:
    """[1, 1, V]: all numbers of an input, in their order."""
    flat = g.op("Reshape", g.op("Cast", name, to=FLOAT), g.constant([1, 1, size]))
    weights = np.sin(np.arange(size)[:, None] * 1.3 + np.arange(VOCABULARY)[None] * 0.7)
    return g.op("MatMul", flat, g.constant(weights, np.float32))


def _cache(
    g: Graph,
    part: str,
    past: str,
    present: str,
    size: int,
    sliding: bool,
    shared: bool,
    inputs: Signature,
    outputs: Signature,
) -> str:
    """What the past adds to the logits; the new part of it is made of the ids."""
    row = g.op("Reshape", g.op("Cast", "input_ids", to=FLOAT), g.constant([1, 1, size, 1]))
    new = g.op("Tile", row, g.constant([1, HEADS, 1, HEAD_SIZE]))  # [1, heads, S, head_size]
    if shared:
        return _in_place(g, new, past, present, size, inputs, outputs)
    if not sliding:
        g.op("Concat", past, new, name=present, axis=2)
        inputs.append((past, FLOAT, [1, HEADS, "P", HEAD_SIZE]))
        outputs.append((present, FLOAT, [1, HEADS, "T", HEAD_SIZE]))
        total = g.op("ReduceMean", g.op("CumSum", present, g.constant(2)), keepdims=0)
        return g.op("Sin", total)
    order = [1, 0, 3, 2] if part == "key" else [1, 0, 2, 3]
    g.op("Cast", g.op("Transpose", new, perm=order), name=present, to=TensorProto.UINT8)
    inputs.append((past, TensorProto.UINT8, [f"{part}{n}" for n in range(4)]))
    outputs.append((present, TensorProto.UINT8, [f"{part}out{n}" for n in range(4)]))
    axis = g.constant(3 if part == "key" else 2)
    return g.op("Sin", g.op("ReduceMean", g.op("CumSum", g.op("Cast", past, to=FLOAT), axis), keepdims=0))


def _in_place(g: Graph, new: str, past: str, present: str, size: int, inputs: Signature, outputs: Signature) -> str:
    """A cache with room for all tokens; past_sequence_length says where the last of the new ones is written."""
    capacity = g.op("Gather", g.op("Shape", past), g.constant(2))
    columns = g.op("Range", g.constant(0), capacity, g.constant(1))  # [M]
    last = g.op("Cast", g.op("Reshape", "past_sequence_length", g.constant([1])), to=INT64)
    places = g.op("Add", last, g.constant(np.arange(size) - size + 1))  # [S]
    hits = g.op("Equal", g.op("Unsqueeze", columns, g.constant([1])), g.op("Unsqueeze", places, g.constant([0])))
    chosen = g.op("Cast", hits, to=FLOAT)  # [M, S]
    kept = g.op("Sub", g.constant(1.0, np.float32), g.op("ReduceSum", chosen, g.constant([1]), keepdims=1))
    g.op("Add", g.op("Mul", past, kept), g.op("MatMul", chosen, new), name=present)
    for name, side in ((past, inputs), (present, outputs)):
        side.append((name, FLOAT, [1, HEADS, "M", HEAD_SIZE]))
    return g.op("Sin", g.op("ReduceSum", g.op("CumSum", present, g.constant(2)), keepdims=0))
