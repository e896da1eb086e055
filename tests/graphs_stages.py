"""Tiny models of several graphs: an encoder and a decoder, a decoder cut into stages, an embedding before a decoder.
Random weights; what matters is which input reaches which graph.

    folder = marian(tmp_path / "marian")                            # encoder, recurrent decoder
    folder = encoder_decoder(tmp_path / "t5")                       # encoder, decoder with a cross cache
    folder = pipeline(tmp_path / "stages")                          # embeddings, prompt / token transformer, head
    folder = embedded(tmp_path / "embedded")                        # embedding, decoder that takes inputs_embeds
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.graphs import HIDDEN, POSITIONS, VOCABULARY, Graph

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
Signature = list[tuple[str, int, list[Any]]]


def save(path: Path, name: str, g: Graph, inputs: Signature, outputs: Signature) -> None:
    """Write one graph of a folder."""
    values = [[helper.make_tensor_value_info(n, kind, shape) for n, kind, shape in side] for side in (inputs, outputs)]
    model = helper.make_model(
        helper.make_graph(g.nodes, name, *values, g.constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    onnx.save(model, path / f"{name}.onnx")


def write_config(path: Path, model: dict[str, Any], **search: Any) -> Path:
    """genai_config.json around the `model` section's own keys."""
    common = {"vocab_size": VOCABULARY, "context_length": POSITIONS, "pad_token_id": 0, "eos_token_id": 1}
    config = {"model": common | {"bos_token_id": 2} | model, "search": {"max_length": 24} | search}
    (path / "genai_config.json").write_text(json.dumps(config))
    return path


def marian(path: Path, *, ids: int = INT32, projections: int = 0, layers: int = 3, seed: int = 0) -> Path:
    """An encoder and a recurrent decoder as Marian's SSRU models have them; the prompt is the encoder's.

    Args:
        ids: type of both input_ids.
        projections: outputs of the encoder that the decoder takes unchanged in every step.
    """
    path.mkdir(parents=True)
    names = [f"cached_source_projection_{i}" for i in range(projections)]
    g = Graph(seed)
    x = g.op("Gather", g.weight(VOCABULARY, HIDDEN, gain=4.0), "input_ids")
    real = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=FLOAT), g.constant([2]))
    g.op("Mul", g.op("CumSum", x, g.constant(1)), real, name="encoder_outputs")
    for name in names:
        g.op("MatMul", x, g.weight(HIDDEN, 4, gain=3.0), name=name)
    sized: Signature = [(name, FLOAT, ["B", "S", 4]) for name in names]
    inputs: Signature = [("input_ids", ids, ["B", "S"]), ("attention_mask", INT32, ["B", "S"])]
    save(path, "encoder", g, inputs, [("encoder_outputs", FLOAT, ["B", "S", HIDDEN]), *sized])

    g = Graph(seed + 1)
    x = g.op("Gather", g.weight(VOCABULARY, HIDDEN, gain=4.0), "input_ids")  # [B, H]
    real = g.op("Unsqueeze", g.op("Cast", "encoder_attention_mask", to=FLOAT), g.constant([2]))
    seen = g.op("ReduceMean", g.op("Mul", "encoder_hidden_states", real), axes=[1], keepdims=0)
    for name in names:
        seen = g.op("Add", seen, g.op("MatMul", g.op("ReduceMean", name, axes=[1], keepdims=0), g.weight(4, HIDDEN)))
    kept = g.op("Mul", "rnn_states_prev", g.constant(0.7, np.float32))
    g.op("Tanh", g.op("Add", kept, g.op("Add", x, seen)), name="rnn_states")
    flat = g.op("Add", g.op("ReduceSum", "rnn_states", g.constant([0]), keepdims=0), x)
    step = g.op("Sin", g.op("Cast", "past_key_values_length", to=FLOAT))
    g.op("MatMul", g.op("Add", flat, step), g.weight(HIDDEN, VOCABULARY, gain=6.0), name="logits")
    decoder_inputs: Signature = [
        ("input_ids", ids, ["B"]),
        ("encoder_hidden_states", FLOAT, ["B", "S", HIDDEN]),
        ("encoder_attention_mask", INT32, ["B", "S"]),
        ("rnn_states_prev", FLOAT, [layers, "B", HIDDEN]),
        ("past_key_values_length", INT64, [1]),
        *sized,
    ]
    save(
        path,
        "decoder",
        g,
        decoder_inputs,
        [("logits", FLOAT, ["B", VOCABULARY]), ("rnn_states", FLOAT, [layers, "B", HIDDEN])],
    )
    encoder = {
        "filename": "encoder.onnx",
        "hidden_size": HIDDEN,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"},
        "outputs": {"encoder_outputs": "encoder_outputs"},
    }
    takes = ("input_ids", "encoder_hidden_states", "encoder_attention_mask", "rnn_states_prev")
    decoder = {
        "filename": "decoder.onnx",
        "hidden_size": HIDDEN,
        "inputs": {name: name for name in (*takes, "past_key_values_length")},
        "outputs": {"logits": "logits", "rnn_states": "rnn_states"},
    }
    return write_config(path, {"type": "marian-ssru", "encoder": encoder, "decoder": decoder})
