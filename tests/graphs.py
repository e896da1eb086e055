"""Tiny decoders as graphs of plain operators: keys and values grow by concatenation, as exporters without fused
attention write them. Random weights; what matters is the shape of the graph.

    folder = plain_decoder(tmp_path / "plain")                      # past_key_values.%d.key and .value
    folder = plain_decoder(tmp_path / "gpt2", combined=True)        # past_%d: keys and values in one tensor
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HIDDEN, HEADS, HEAD_SIZE, LAYERS, POSITIONS = 40, 16, 2, 8, 2, 64
_NAMES = {np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64}


class Graph:
    """Collects nodes and constants; `op` returns the name of a node's output."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)

    def op(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        output = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def weight(self, *shape: int, gain: float = 1.0) -> str:
        values: NDArray[np.float64] = self._random.standard_normal(shape) * gain / np.sqrt(shape[0])
        return self.constant(values, np.float32)


def plain_decoder(
    path: Path,
    *,
    combined: bool = False,
    positions: bool = True,
    ids_dtype: type[np.integer[Any]] = np.int64,
    float16_logits: bool = False,
    all_logits: bool = True,
    layers: int = LAYERS,
    extra_input: str | None = None,
    adapted: bool = False,
    hidden_states: bool = False,
    seed: int = 0,
) -> Path:
    """Write a model folder at `path` and return it.

    Args:
        combined: keys and values of a layer in one past, [2, B, heads, T, head_size].
        positions: the graph takes position_ids; else it has no notion of place but the causal mask.
        ids_dtype: of input_ids, attention_mask and position_ids.
        all_logits: logits of every position, else of the last only.
        extra_input: an int64 number that is added to every logit.
        adapted: "adapter_a" [V] is added to the logits, zeros unless an adapter gives it.
        hidden_states: an output of that name.
    """
    g = Graph(seed)
    x = g.op("Gather", g.weight(VOCABULARY, HIDDEN, gain=8.0), "input_ids")
    if positions:
        x = g.op("Add", x, g.op("Gather", g.weight(POSITIONS, HIDDEN, gain=4.0), "position_ids"))
    bias = _attention_bias(g)
    for layer in range(layers):
        x = g.op("Add", x, _attention(g, x, bias, layer, combined))
        x = g.op("Add", x, g.op("Tanh", g.op("MatMul", x, g.weight(HIDDEN, HIDDEN, gain=2.0))))
    if not all_logits:
        x = g.op("Slice", x, g.constant([-1]), g.constant([2**31]), g.constant([1]))
    if hidden_states:
        g.op("Identity", x, name="hidden_states")
    logits = g.op("MatMul", x, g.weight(HIDDEN, VOCABULARY, gain=4.0))
    if extra_input is not None:
        logits = g.op("Add", logits, g.op("Cast", extra_input, to=TensorProto.FLOAT))
    if adapted:
        g.constants.append(numpy_helper.from_array(np.zeros(VOCABULARY, np.float32), "adapter_a"))
        logits = g.op("Add", logits, "adapter_a")
    g.op("Cast", logits, name="logits", to=TensorProto.FLOAT16 if float16_logits else TensorProto.FLOAT)
    path.mkdir(parents=True)
    model = _model(g, combined, positions, np.dtype(ids_dtype), float16_logits, layers)
    graph = model.graph
    if extra_input is not None:
        graph.input.append(helper.make_tensor_value_info(extra_input, TensorProto.INT64, []))
    if adapted:
        graph.input.append(helper.make_tensor_value_info("adapter_a", TensorProto.FLOAT, [VOCABULARY]))
    if hidden_states:
        graph.output.append(helper.make_tensor_value_info("hidden_states", TensorProto.FLOAT, ["B", "S", HIDDEN]))
    onnx.save(model, path / "model.onnx")
    (path / "genai_config.json").write_text(json.dumps(_config(combined, positions, layers)))
    return path


def _attention_bias(g: Graph) -> str:
    """[B, 1, S, T]: 0 where a new token may look, -1e4 where it may not (the future, padding)."""
    new = g.op("Gather", g.op("Shape", "input_ids"), g.constant(1))
    total = g.op("Gather", g.op("Shape", "attention_mask"), g.constant(1))
    columns = g.op("Range", g.constant(0), total, g.constant(1))  # [T]
    rows = g.op("Range", g.op("Sub", total, new), total, g.constant(1))  # [S]
    seen = g.op("LessOrEqual", g.op("Unsqueeze", columns, g.constant([0])), g.op("Unsqueeze", rows, g.constant([1])))
    real = g.op("Cast", "attention_mask", to=TensorProto.BOOL)
    real = g.op("Unsqueeze", real, g.constant([1, 2]))  # [B, 1, 1, T]
    allowed = g.op("And", real, seen)
    return g.op("Where", allowed, g.constant(0.0, np.float32), g.constant(-1e4, np.float32))


def _attention(g: Graph, x: str, bias: str, layer: int, combined: bool) -> str:
    def heads(name: str) -> str:  # [B, heads, S, head_size]
        flat = g.op("MatMul", x, g.weight(HIDDEN, HEADS * HEAD_SIZE, gain=2.0))
        split = g.op("Reshape", flat, g.constant([0, 0, HEADS, HEAD_SIZE]))
        return g.op("Transpose", split, perm=[0, 2, 1, 3])

    queries, keys, values = heads("q"), heads("k"), heads("v")
    if combined:
        past = [
            g.op("Gather", f"past_{layer}", g.constant(0), axis=0),
            g.op("Gather", f"past_{layer}", g.constant(1), axis=0),
        ]
        keys, values = g.op("Concat", past[0], keys, axis=2), g.op("Concat", past[1], values, axis=2)
        both = [g.op("Unsqueeze", each, g.constant([0])) for each in (keys, values)]
        g.op("Concat", *both, name=f"present_{layer}", axis=0)
    else:
        keys = g.op("Concat", f"past_key_values.{layer}.key", keys, name=f"present.{layer}.key", axis=2)
        values = g.op("Concat", f"past_key_values.{layer}.value", values, name=f"present.{layer}.value", axis=2)
    scores = g.op("MatMul", queries, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scaled = g.op("Mul", scores, g.constant(HEAD_SIZE**-0.5, np.float32))
    weights = g.op("Softmax", g.op("Add", scaled, bias), axis=-1)
    mixed = g.op("Transpose", g.op("MatMul", weights, values), perm=[0, 2, 1, 3])
    return g.op("MatMul", g.op("Reshape", mixed, g.constant([0, 0, HEADS * HEAD_SIZE])), g.weight(HIDDEN, HIDDEN))


def _model(
    g: Graph, combined: bool, positions: bool, ids: np.dtype[Any], float16_logits: bool, layers: int
) -> onnx.ModelProto:
    def value(name: str, kind: int, *shape: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, list(shape))

    kind = _NAMES[ids]
    inputs = [value("input_ids", kind, "B", "S"), value("attention_mask", kind, "B", "T")]
    inputs += [value("position_ids", kind, "B", "S")] if positions else []
    outputs = [value("logits", TensorProto.FLOAT16 if float16_logits else TensorProto.FLOAT, "B", "N", VOCABULARY)]
    for layer in range(layers):
        if combined:
            inputs.append(value(f"past_{layer}", TensorProto.FLOAT, 2, "B", HEADS, "P", HEAD_SIZE))
            outputs.append(value(f"present_{layer}", TensorProto.FLOAT, 2, "B", HEADS, "T", HEAD_SIZE))
            continue
        for part in ("key", "value"):
            inputs.append(value(f"past_key_values.{layer}.{part}", TensorProto.FLOAT, "B", HEADS, "P", HEAD_SIZE))
            outputs.append(value(f"present.{layer}.{part}", TensorProto.FLOAT, "B", HEADS, "T", HEAD_SIZE))
    graph = helper.make_graph(g.nodes, "plain", inputs, outputs, g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


def _config(combined: bool, positions: bool, layers: int) -> dict[str, Any]:
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    inputs |= {"position_ids": "position_ids"} if positions else {}
    apart = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    outputs: dict[str, str] = {"logits": "logits"}
    inputs |= {"past_names": "past_%d"} if combined else apart
    together = {"present_names": "present_%d"}
    outputs |= (
        together if combined else {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    )
    return {
        "model": {
            "type": "gpt2" if combined else "phi",
            "vocab_size": VOCABULARY,
            "context_length": POSITIONS,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 1,
            "decoder": {
                "filename": "model.onnx",
                "hidden_size": HIDDEN,
                "num_attention_heads": HEADS,
                "num_key_value_heads": HEADS,
                "num_hidden_layers": layers,
                "head_size": HEAD_SIZE,
                "inputs": inputs,
                "outputs": outputs,
            },
        },
        "search": {"max_length": POSITIONS},
    }
