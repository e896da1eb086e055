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

from tests.graphs import HEAD_SIZE, HEADS, HIDDEN, LAYERS, POSITIONS, VOCABULARY, Graph

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
    count = g.op("ReduceSum", real, g.constant([1]), keepdims=0)  # [B, 1] tokens that are no padding

    def mean(name: str) -> str:
        return g.op("Div", g.op("ReduceSum", g.op("Mul", name, real), g.constant([1]), keepdims=0), count)

    seen = mean("encoder_hidden_states")
    for name in names:
        seen = g.op("Add", seen, g.op("MatMul", mean(name), g.weight(4, HIDDEN)))
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


def split_heads(g: Graph, x: str) -> str:
    """[B, S, hidden] through weights of its own -> [B, heads, S, head_size]."""
    flat = g.op("MatMul", x, g.weight(HIDDEN, HEADS * HEAD_SIZE, gain=2.0))
    return g.op("Transpose", g.op("Reshape", flat, g.constant([0, 0, HEADS, HEAD_SIZE])), perm=[0, 2, 1, 3])


def attend(g: Graph, queries: str, keys: str, values: str, real: str | None = None) -> str:
    """Attention over all of `keys`, or those that `real` [B, T] has 1 for -> [B, S, hidden]."""
    scores = g.op("MatMul", queries, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    if real is not None:
        hidden = g.op("Sub", g.op("Cast", real, to=FLOAT), g.constant(1.0, np.float32))
        bias = g.op("Unsqueeze", g.op("Mul", hidden, g.constant(1e4, np.float32)), g.constant([1, 2]))
        scores = g.op("Add", scores, bias)
    mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), values), perm=[0, 2, 1, 3])
    return g.op("MatMul", g.op("Reshape", mixed, g.constant([0, 0, HEADS * HEAD_SIZE])), g.weight(HIDDEN, HIDDEN))


CACHE = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
PRESENT = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
SIZES = {
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "head_size": HEAD_SIZE,
}


def encoder_decoder(path: Path, *, cross_cache: bool = True, seed: int = 0) -> Path:
    """An encoder and a decoder with a growing cache of its own, as T5 and BART have them.

    Args:
        cross_cache: the encoder gives keys and values of every decoder layer; else its hidden states alone.
    """
    path.mkdir(parents=True)
    g = Graph(seed)
    x = g.op("Gather", g.weight(VOCABULARY, HIDDEN, gain=4.0), "input_ids")
    queries, keys, values = (split_heads(g, x) for _ in range(3))
    x = g.op("Add", x, attend(g, queries, keys, values, "attention_mask"))
    given: Signature = []
    if cross_cache:
        for name in (f"cross.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")):
            g.op("Identity", split_heads(g, x), name=f"present_{name}")
            given.append((f"present_{name}", FLOAT, ["B", HEADS, "S", HEAD_SIZE]))
    else:
        g.op("Identity", x, name="encoder_hidden_states")
        given.append(("encoder_hidden_states", FLOAT, ["B", "S", HIDDEN]))
    save(path, "encoder", g, [("input_ids", INT64, ["B", "S"]), ("attention_mask", INT64, ["B", "S"])], given)

    g = Graph(seed + 1)
    x = g.op("Gather", g.weight(VOCABULARY, HIDDEN, gain=4.0), "input_ids")
    inputs: Signature = [("input_ids", INT64, ["B", "N"]), ("encoder_attention_mask", INT64, ["B", "S"])]
    outputs: Signature = [("logits", FLOAT, ["B", "N", VOCABULARY])]
    inputs += [] if cross_cache else [("encoder_hidden_states", FLOAT, ["B", "S", HIDDEN])]
    for layer in range(LAYERS):
        queries = split_heads(g, x)
        grown = []
        for part in ("key", "value"):
            past, present = f"past_key_values.{layer}.{part}", f"present.{layer}.{part}"
            grown.append(g.op("Concat", past, split_heads(g, x), name=present, axis=2))
            inputs.append((past, FLOAT, ["B", HEADS, "P", HEAD_SIZE]))
            outputs.append((present, FLOAT, ["B", HEADS, "T", HEAD_SIZE]))
        x = g.op("Add", x, attend(g, queries, *grown))
        if cross_cache:
            cross = [f"past_cross.{layer}.{part}" for part in ("key", "value")]
            inputs += [(name, FLOAT, ["B", HEADS, "S", HEAD_SIZE]) for name in cross]
        else:
            cross = [split_heads(g, "encoder_hidden_states") for _ in range(2)]
        x = g.op("Add", x, attend(g, split_heads(g, x), *cross, "encoder_attention_mask"))
    g.op("MatMul", x, g.weight(HIDDEN, VOCABULARY, gain=4.0), name="logits")
    save(path, "decoder", g, inputs, outputs)
    crossed = {
        f"cross_{when}_{part}_names": f"{when}_cross.%d.{part}"
        for when in ("past", "present")
        for part in ("key", "value")
    }
    encoder = {
        "filename": "encoder.onnx",
        "outputs": {n: v for n, v in crossed.items() if "present" in n and cross_cache},
    }
    takes = {n: v for n, v in crossed.items() if "past" in n and cross_cache} | CACHE
    decoder = {"filename": "decoder.onnx", **SIZES, "inputs": takes, "outputs": PRESENT}
    return write_config(path, {"type": "t5", "decoder_start_token_id": 3, "encoder": encoder, "decoder": decoder})


def pipeline(
    path: Path,
    *,
    split: bool = True,
    forwarded: bool = True,
    ids: int = INT64,
    mask: int | None = INT64,
    uint8_cache: tuple[int, int] | None = None,
    stages: dict[str, dict[str, Any]] | None = None,
    decoder: dict[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """A decoder in stages: embeddings, a transformer, a head.

    Args:
        split: a transformer for the prompt and one for tokens, with the same weights.
        forwarded: the transformer's output has another name than the head's input, and is forwarded to it.
        mask: type of attention_mask, None for a graph without it.
        stages: changes to the stages' sections, by name.
        decoder: more keys of the decoder section.
    """
    path.mkdir(parents=True)
    g = Graph(seed)
    g.op("Gather", g.weight(VOCABULARY, HIDDEN, gain=8.0), "input_ids", name="embedded")
    save(path, "embeddings", g, [("input_ids", ids, ["B", "S"])], [("embedded", FLOAT, ["B", "S", HIDDEN])])
    output = "hidden_out" if forwarded else "hidden"
    for name in ("context", "iterator"):
        _transformer(path, name, output, mask, seed)
    g = Graph(seed + 2)
    g.op("MatMul", "hidden", g.weight(HIDDEN, VOCABULARY, gain=4.0), name="logits")
    save(path, "head", g, [("hidden", FLOAT, ["B", "S", HIDDEN])], [("logits", FLOAT, ["B", "S", VOCABULARY])])
    cache = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    inner = {
        "inputs": ["embedded", *(["attention_mask"] if mask else []), *(f"past_key_values.{name}" for name in cache)],
        "outputs": [output, *(f"present.{name}" for name in cache)],
    }
    inner |= {"output_names_forwarder": {output: "hidden"}} if forwarded else {}
    sections: dict[str, dict[str, Any]] = {"embeddings": {"inputs": ["input_ids"], "outputs": ["embedded"]}}
    if split:
        sections["context"] = inner | {"run_on_token_gen": False}
        sections["iterator"] = inner | {"run_on_prompt": False}
    else:
        sections["context"] = dict(inner)
    sections["head"] = {"inputs": ["hidden"], "outputs": ["logits"]}
    for name, section in sections.items():
        section |= {"filename": f"{name}.onnx"} | (stages or {}).get(name, {})
    inputs = CACHE | ({"attention_mask": "attention_mask"} if mask else {})
    body = SIZES | {"inputs": inputs, "outputs": PRESENT, "pipeline": [sections]} | (decoder or {})
    return write_config(path, {"type": "decoder-pipeline", "decoder": body})


def _transformer(path: Path, name: str, output: str, mask: int | None, seed: int) -> None:
    g = Graph(seed + 1)
    x, inputs, outputs = "embedded", [("embedded", FLOAT, ["B", "S", HIDDEN])], [(output, FLOAT, ["B", "S", HIDDEN])]
    inputs += [("attention_mask", mask, ["B", "T"])] if mask else []
    for layer in range(LAYERS):
        queries, grown = split_heads(g, x), []
        for part in ("key", "value"):
            past, present = f"past_key_values.{layer}.{part}", f"present.{layer}.{part}"
            grown.append(g.op("Concat", past, split_heads(g, x), name=present, axis=2))
            inputs.append((past, FLOAT, ["B", HEADS, "P", HEAD_SIZE]))
            outputs.append((present, FLOAT, ["B", HEADS, "T", HEAD_SIZE]))
        x = g.op("Add", x, attend(g, queries, *grown, "attention_mask" if mask else None))
    g.op("Tanh", x, name=output)
    save(path, name, g, inputs, outputs)


FRAMES, MELS = 3000, 2  # the number of frames is what onnxruntime-genai wants


def hearing(path: Path, *, seed: int = 0) -> Path:
    """An encoder of sounds and a decoder whose text begins with the prompt, as Whisper has them."""
    path.mkdir(parents=True)
    g = Graph(seed)
    frames = g.op("Transpose", "audio_features", perm=[0, 2, 1])
    halves = g.op("Reshape", frames, g.constant([0, FRAMES // 2, 2 * MELS]))
    x = g.op("MatMul", halves, g.weight(2 * MELS, HIDDEN, gain=4.0), name="encoder_hidden_states")
    names = [f"{part}_cross_{layer}" for layer in range(LAYERS) for part in ("key", "value")]
    for name in names:
        g.op("Identity", split_heads(g, x), name=f"present_{name}")
    crossed: Signature = [(f"present_{name}", FLOAT, ["B", HEADS, "F", HEAD_SIZE]) for name in names]
    hidden: Signature = [("encoder_hidden_states", FLOAT, ["B", "F", HIDDEN])]
    save(path, "encoder", g, [("audio_features", FLOAT, ["B", MELS, FRAMES])], [*hidden, *crossed])

    g = Graph(seed + 1)
    x = g.op("Gather", g.weight(VOCABULARY, HIDDEN, gain=4.0), "input_ids")
    inputs: Signature = [("input_ids", INT32, ["B", "N"])]
    outputs: Signature = [("logits", FLOAT, ["B", "N", VOCABULARY])]
    new = g.op("Gather", g.op("Shape", "input_ids"), g.constant(1))
    past = g.op("Gather", g.op("Shape", "past_key_self_0"), g.constant(2))
    total = g.op("Add", past, new)
    columns = g.op("Unsqueeze", g.op("Range", g.constant(0), total, g.constant(1)), g.constant([0]))
    rows = g.op("Unsqueeze", g.op("Range", past, total, g.constant(1)), g.constant([1]))
    seen = g.op("Cast", g.op("LessOrEqual", columns, rows), to=FLOAT)  # [S, T]
    bias = g.op("Mul", g.op("Sub", seen, g.constant(1.0, np.float32)), g.constant(1e4, np.float32))
    for layer in range(LAYERS):
        queries, grown = split_heads(g, x), []
        for part in ("key", "value"):
            before, after = f"past_{part}_self_{layer}", f"present_{part}_self_{layer}"
            grown.append(g.op("Concat", before, split_heads(g, x), name=after, axis=2))
            inputs.append((before, FLOAT, ["B", HEADS, "P", HEAD_SIZE]))
            outputs.append((after, FLOAT, ["B", HEADS, "T", HEAD_SIZE]))
        scores = g.op("Add", g.op("MatMul", queries, g.op("Transpose", grown[0], perm=[0, 1, 3, 2])), bias)
        mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), grown[1])
        flat = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.constant([0, 0, HEADS * HEAD_SIZE]))
        x = g.op("Add", x, g.op("MatMul", flat, g.weight(HEADS * HEAD_SIZE, HIDDEN)))
        cross = [f"past_{part}_cross_{layer}" for part in ("key", "value")]
        inputs += [(name, FLOAT, ["B", HEADS, "F", HEAD_SIZE]) for name in cross]
        x = g.op("Add", x, attend(g, split_heads(g, x), *cross))
    g.op("MatMul", x, g.weight(HIDDEN, VOCABULARY, gain=4.0), name="logits")
    save(path, "decoder", g, inputs, outputs)

    def patterns(when: str, kind: str) -> dict[str, str]:
        prefix = "cross_" if kind == "cross" else ""
        return {f"{prefix}{when}_{part}_names": f"{when}_{part}_{kind}_%d" for part in ("key", "value")}

    encoder = {"filename": "encoder.onnx", **SIZES, "inputs": {"audio_features": "audio_features"}}
    encoder["outputs"] = {"encoder_hidden_states": "encoder_hidden_states"} | patterns("present", "cross")
    decoder = {"filename": "decoder.onnx", **SIZES}
    decoder["inputs"] = {"input_ids": "input_ids"} | patterns("past", "self") | patterns("past", "cross")
    decoder["outputs"] = {"logits": "logits"} | patterns("present", "self")
    return write_config(path, {"type": "whisper", "encoder": encoder, "decoder": decoder})
