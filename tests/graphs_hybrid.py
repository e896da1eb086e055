"""Tiny decoders with a layer of convolution, perhaps one of recurrence, and one with keys and values; and an embedding
in a graph of its own. Random weights; every output depends on every token before it.

    folder = hybrid(tmp_path / "hybrid")                            # convolution, recurrence, attention
    folder = hybrid(tmp_path / "lfm2", recurrent=False)             # convolution, attention
    folder = hybrid(tmp_path / "embedded", embedded=True)           # ids -> embedding.onnx -> model.onnx
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.graphs import VOCABULARY, Graph
from tests.graphs_stages import FLOAT, INT64, Signature, save, write_config

HIDDEN, HEADS, HEAD_SIZE, KEPT = 8, 2, 4, 3


def hybrid(
    path: Path,
    *,
    model_type: str | None = None,
    recurrent: bool = True,
    embedded: bool = False,
    takes_ids_too: bool = False,
    positions: int | None = None,
    layers: int = 2,
    extra: dict[str, tuple[int, list[Any]]] | None = None,
    seed: int = 0,
    **search: Any,
) -> Path:
    """Write a model folder at `path` and return it.

    Args:
        model_type: of genai_config.json; None takes one of a model that has such layers.
        recurrent: the first layer keeps a recurrent state beside that of its convolution.
        embedded: the decoder takes inputs_embeds; `takes_ids_too`: and input_ids.
        positions: number of axes of position_ids, None for a graph without them.
        layers: what the config counts; some folders count the layers with attention only.
        extra: more inputs of the decoder, added to the logits.
        search: more of genai_config.json's search section.
    """
    path.mkdir(parents=True)
    g = Graph(seed)
    table = g.weight(VOCABULARY, HIDDEN, gain=3.0)
    tokens: Signature = [("input_ids", INT64, ["B", "S"])]
    x = "inputs_embeds" if embedded else g.op("Gather", table, "input_ids")
    inputs: Signature = [("inputs_embeds", FLOAT, ["B", "S", HIDDEN])] if embedded else list(tokens)
    inputs += list(tokens) if embedded and takes_ids_too else []
    inputs.append(("attention_mask", INT64, ["B", "T"]))
    if positions is not None:
        inputs.append(("position_ids", INT64, [3, "B", "S"][3 - positions :]))
        places = "position_ids" if positions == 2 else g.op("Gather", "position_ids", g.constant(2))
        places = g.op("Unsqueeze", g.op("Sin", g.op("Cast", places, to=FLOAT)), g.constant([2]))
        x = g.op("Add", x, places)
    outputs: Signature = []
    x = _convolution(g, x, "past_conv.0" if not recurrent else "past_key_values.0.conv_state", inputs, outputs)
    if recurrent:
        x = _recurrence(g, x, inputs, outputs)
    x = _attention(g, x, inputs, outputs)
    logits = g.op("MatMul", x, g.weight(HIDDEN, VOCABULARY, gain=4.0))
    for name, (kind, shape) in (extra or {}).items():
        inputs.append((name, kind, shape))
        total = g.op("ReduceSum", g.op("Cast", name, to=FLOAT), keepdims=0)
        logits = g.op("Mul", logits, g.op("Sin", total))
    g.op("Identity", logits, name="logits")
    save(path, "model", g, inputs, [("logits", FLOAT, ["B", "S", VOCABULARY]), *outputs])
    return _write(path, g, table, tokens, model_type, recurrent, embedded, positions, layers, search)


def _convolution(g: Graph, x: str, past: str, inputs: Signature, outputs: Signature) -> str:
    """Each token with the KEPT ones before it; the state is those."""
    present = past.replace("past_key_values", "present").replace("past_conv", "present_conv")
    row = g.op("Concat", past, g.op("Transpose", x, perm=[0, 2, 1]), axis=2)  # [B, hidden, KEPT + S]
    g.op("Slice", row, g.constant([-KEPT]), g.constant([2**31]), g.constant([2]), name=present)
    mixed = g.op("Conv", row, g.constant(np.ones((HIDDEN, 1, KEPT + 1)) * 0.3, np.float32), group=HIDDEN)
    for name, side in ((past, inputs), (present, outputs)):
        side.append((name, FLOAT, ["B", HIDDEN, KEPT]))
    return g.op("Add", x, g.op("Transpose", mixed, perm=[0, 2, 1]))


def _recurrence(g: Graph, x: str, inputs: Signature, outputs: Signature) -> str:
    """Each token with the sum of those before it; the state is that of all."""
    past, present = "past_key_values.0.recurrent_state", "present.0.recurrent_state"
    before = g.op("Reshape", past, g.constant([0, 1, HIDDEN]))
    sums = g.op("Add", g.op("CumSum", x, g.constant(1)), before)
    last = g.op("Slice", sums, g.constant([-1]), g.constant([2**31]), g.constant([1]))
    g.op("Reshape", last, g.constant([0, 2, 2, 2]), name=present)
    for name, side in ((past, inputs), (present, outputs)):
        side.append((name, FLOAT, ["B", 2, 2, 2]))
    return g.op("Add", x, g.op("Tanh", sums))


def _attention(g: Graph, x: str, inputs: Signature, outputs: Signature) -> str:
    """Each token with the mean of all keys up to it that are no padding, by a mask of the graph's own."""
    split = g.op("Transpose", g.op("Reshape", x, g.constant([0, 0, HEADS, HEAD_SIZE])), perm=[0, 2, 1, 3])
    for part in ("key", "value"):
        past, present = f"past_key_values.1.{part}", f"present.1.{part}"
        g.op("Concat", past, split, name=present, axis=2)
        inputs.append((past, FLOAT, ["B", HEADS, "P", HEAD_SIZE]))
        outputs.append((present, FLOAT, ["B", HEADS, "T", HEAD_SIZE]))
    keys = g.op("Transpose", "present.1.key", perm=[0, 2, 1, 3])
    keys = g.op("Reshape", keys, g.constant([0, -1, HIDDEN]))  # [B, T, hidden]
    real = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=FLOAT), g.constant([2]))
    sums = g.op("CumSum", g.op("Mul", keys, real), g.constant(1))
    means = g.op("Div", sums, g.op("Max", g.op("CumSum", real, g.constant(1)), g.constant(1.0, np.float32)))
    new = g.op("Gather", g.op("Shape", x), g.constant([1]))
    own = g.op("Slice", means, g.op("Neg", new), g.constant([2**31]), g.constant([1]))
    return g.op("Add", x, own)


def _write(
    path: Path,
    g: Graph,
    table: str,
    tokens: Signature,
    model_type: str | None,
    recurrent: bool,
    embedded: bool,
    positions: int | None,
    layers: int,
    search: dict[str, Any],
) -> Path:
    given = {"attention_mask": "attention_mask"} | ({} if positions is None else {"position_ids": "position_ids"})
    decoder: dict[str, Any] = {
        "filename": "model.onnx",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "num_hidden_layers": layers,
        "head_size": HEAD_SIZE,
        "inputs": given | {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
        "outputs": {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
    }
    if not recurrent:
        decoder["layer_types"] = ["conv", "full_attention"]
        decoder["inputs"]["past_conv_names"], decoder["outputs"]["present_conv_names"] = (
            "past_conv.%d",
            "present_conv.%d",
        )
    model: dict[str, Any] = {"type": model_type or ("qwen3_5_text" if recurrent else "lfm2"), "decoder": decoder}
    if embedded:
        model |= _embedding(path, g, table, tokens)
    return write_config(path, model, **search)


def _embedding(path: Path, g: Graph, table: str, tokens: Signature) -> dict[str, Any]:
    """Graphs around a decoder that takes inputs_embeds: one that makes them, and one for images that no test runs."""
    own, unused = Graph(0), Graph(0)
    own.constants = [constant for constant in g.constants if constant.name == table]
    rows = own.op("Gather", table, "input_ids")
    none = own.op("ReduceSum", "image_features", keepdims=0)  # of no images: 0
    own.op("Add", rows, none, name="inputs_embeds")
    features: Signature = [("image_features", FLOAT, ["N", HIDDEN])]
    save(path, "embedding", own, [*tokens, *features], [("inputs_embeds", FLOAT, ["B", "S", HIDDEN])])
    unused.op("Identity", unused.constant(np.zeros((1, HIDDEN)), np.float32), name="image_features")
    pictures: Signature = [("pixel_values", FLOAT, ["N", "P"]), ("image_sizes", INT64, ["N", 2])]
    save(path, "vision", unused, pictures, [("image_features", FLOAT, [1, HIDDEN])])
    names = {name: name for name, _kind, _shape in pictures}
    return {
        "embedding": {"filename": "embedding.onnx", "inputs": {"input_ids": "input_ids"}},
        "vision": {"filename": "vision.onnx", "inputs": names, "outputs": {"image_features": "image_features"}},
    }
