"""Tiny decoders whose cache is of any type and of other sizes in every layer.

folder = cached(tmp_path / "model", TensorProto.BFLOAT16, [(2, 4), (1, 8)])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.graphs import VOCABULARY, Graph
from tests.graphs_stages import FLOAT, INT64, Signature, save, write_config


def cached(
    path: Path,
    kind: int,
    layers: Sequence[tuple[int, int]] = ((2, 4),),
    *,
    logits: int = FLOAT,
    scales: bool = False,
    extra: int | None = None,
) -> Path:
    """Write a model folder at `path` and return it.

    Args:
        kind: element type of keys and values.
        layers: heads and head size of each; the config has those of the first.
        logits: their element type.
        scales: a scale of every token and head beside the keys and the values.
        extra: type of an input "factor" that the logits are multiplied with.
    """
    path.mkdir(parents=True)
    g = Graph(0)
    x = g.op("Gather", g.weight(VOCABULARY, VOCABULARY, gain=4.0), "input_ids")
    ids = g.op("Unsqueeze", g.op("Cast", "input_ids", to=FLOAT), g.constant([1, 3]))  # [B, 1, S, 1]
    inputs: Signature = [("input_ids", INT64, ["B", "S"]), ("attention_mask", INT64, ["B", "T"])]
    outputs: Signature = [("logits", logits, ["B", "S", VOCABULARY])]
    for layer, (heads, size) in enumerate(layers):
        new = g.op("Cast", g.op("Tile", ids, g.constant([1, heads, 1, size])), to=kind)
        for part in ("key", "value"):
            past, present = f"past_key_values.{layer}.{part}", f"present.{layer}.{part}"
            g.op("Concat", past, new, name=present, axis=2)
            inputs.append((past, kind, ["B", heads, "P", size]))
            outputs.append((present, kind, ["B", heads, "T", size]))
            if scales:
                past, present = f"past_key_values.{layer}.{part}_scale", f"present.{layer}.{part}_scale"
                own = g.op("Squeeze", g.op("Tile", ids, g.constant([1, heads, 1, 1])), g.constant([3]))
                g.op("Concat", past, own, name=present, axis=2)
                inputs.append((past, FLOAT, ["B", heads, "P"]))
                outputs.append((present, FLOAT, ["B", heads, "T"]))
        numbers = g.op("Cast", f"present.{layer}.key", to=FLOAT)
        if scales:
            numbers = g.op("Mul", numbers, g.op("Unsqueeze", f"present.{layer}.key_scale", g.constant([3])))
        mean = g.op("ReduceMean", numbers, axes=[1, 2, 3], keepdims=1)
        x = g.op("Mul", x, g.op("Sin", g.op("Squeeze", mean, g.constant([3]))))
    if extra is not None:
        inputs.append(("factor", extra, [1]))
        x = g.op("Mul", x, g.op("Cast", "factor", to=FLOAT))
    g.op("Cast", x, name="logits", to=logits)
    save(path, "model", g, inputs, outputs)
    heads, size = layers[0]
    decoder = {
        "filename": "model.onnx",
        "hidden_size": heads * size,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "num_hidden_layers": len(layers),
        "head_size": size,
    }
    parts = ("key", "value")
    if scales:
        decoder["inputs"] = {f"past_{part}_scale_names": f"past_key_values.%d.{part}_scale" for part in parts}
        decoder["outputs"] = {f"present_{part}_scale_names": f"present.%d.{part}_scale" for part in parts}
    return write_config(path, {"type": "phi", "decoder": decoder})


def numbers(bits: np.ndarray) -> np.ndarray:
    """bfloat16 by its definition: the upper half of a float32."""
    return np.frombuffer(b"".join(b"\0\0" + int(b).to_bytes(2, "little") for b in bits.ravel()), np.float32)
