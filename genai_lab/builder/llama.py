"""The llama family: what its GGUF file must hold, and its graph.

Receives a `Checkpoint` and an `OnnxWriter`. Returns nothing: the graph is in the writer. It does not know about files,
configs or tokenizers.

    input_ids -> embedding -> layers x [norm -> QKV -> attention -> out -> norm -> gate, up -> down] -> norm -> head

The names of inputs and outputs are those that onnxruntime-genai expects. Rows of a batch may have different lengths:
how many positions of a row are real is read from `attention_mask`, and a row's positions count from its own start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from genai_lab.builder.blocks import BLOCK_SIZE, Weight, stack_rows, take_rows
from genai_lab.builder.checkpoint import Checkpoint
from genai_lab.builder.decoder_shape import DecoderShape
from genai_lab.builder.layers import Layers
from genai_lab.builder.onnx_file import MICROSOFT, OnnxWriter
from genai_lab.builder.options import BuildOptions, Precision

MAX_CONTEXT, MAX_HEAD_SIZE = 1 << 18, 256  # the rotary tables hold 4 * head_size bytes for every position
LOUD_CHANNELS: Final = 4
HEAD_SIZE_STEP: Final = 16  # of GroupQueryAttention's rotary kernel on a CPU
FLOAT, INT8, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64


@dataclass(frozen=True)
class Llama:
    """A llama's sizes and constants."""

    shape: DecoderShape
    rope_base: float
    norm_epsilon: float


def read_llama(source: Checkpoint) -> Llama:
    """Read and check the metadata of a llama."""
    heads = source.integer("llama.attention.head_count")
    hidden_size = source.integer("llama.embedding_length")
    shape = DecoderShape(
        model_type="llama",
        num_layers=source.integer("llama.block_count", high=len(source.gguf.tensors)),
        hidden_size=hidden_size,
        intermediate_size=source.integer("llama.feed_forward_length"),
        num_attention_heads=heads,
        num_key_value_heads=source.integer("llama.attention.head_count_kv", heads),
        head_size=source.integer("llama.attention.key_length", hidden_size // heads, high=MAX_HEAD_SIZE),
        vocab_size=source.num_rows("token_embd.weight"),
        context_length=source.integer("llama.context_length", high=MAX_CONTEXT),
    )
    _check_attention(source, shape)
    base = source.number("llama.rope.freq_base", 10000.0)
    return Llama(shape, base, source.number("llama.attention.layer_norm_rms_epsilon"))


def _check_attention(source: Checkpoint, shape: DecoderShape) -> None:
    if shape.num_attention_heads % shape.num_key_value_heads:
        raise source.fail(
            f"{shape.num_attention_heads} heads cannot share {shape.num_key_value_heads} key-value heads evenly."
        )
    if shape.head_size % HEAD_SIZE_STEP:
        raise source.fail(f"head size {shape.head_size}: onnxruntime's attention needs a multiple of {HEAD_SIZE_STEP}.")
    rotary = source.integer("llama.rope.dimension_count", shape.head_size)
    if rotary != shape.head_size:
        raise source.fail(f"rotary embedding of {rotary} dimensions of a head of {shape.head_size} is not supported.")
    scaling = source.gguf.metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise source.fail(f"metadata llama.rope.scaling.type is {scaling!r}; only 'none' is supported.")


def write_llama(model: Llama, source: Checkpoint, writer: OnnxWriter, options: BuildOptions) -> None:
    """Write the whole graph."""
    _LlamaGraph(model, source, writer, options).write()
    source.check_all_used()


class _LlamaGraph:
    """The graph being written; its methods stand in the order of the data's way."""

    def __init__(self, model: Llama, source: Checkpoint, writer: OnnxWriter, options: BuildOptions) -> None:
        self.model, self.shape, self.source, self.writer, self.options = model, model.shape, source, writer, options
        if options.kv_cache is not None:
            options.kv_cache.check_fits(model.shape)
        loud = () if options.precision is Precision.FP32 else _loud_channels(source, model.shape)
        self.layers = Layers(writer, model.norm_epsilon, options.accuracy_level, loud)

    def write(self) -> None:
        self.declare_inputs_and_outputs()
        self.row_lengths()
        self.rotary_tables()
        residual = self.embedding()  # [B, S, hidden]
        x = self.layers.norm("layers.0/attn_norm", residual, self.norm_weight("blk.0.attn_norm.weight"))
        for layer in range(self.shape.num_layers):
            x, residual = self.decoder_layer(layer, x, residual)
        self.head(x)

    def decoder_layer(self, layer: int, x: str, residual: str) -> tuple[str, str]:
        """One layer; returns the following norm's output and the residual stream."""
        is_last = layer == self.shape.num_layers - 1
        y = self.attention(layer, x)
        if is_last and self.options.prune_lm_head:  # after the last attention no position looks at another
            y, residual = self.layers.take_row(y, "last_position"), self.layers.take_row(residual, "last_position")
        y = self.output_projection(layer, y)
        norm = self.norm_weight(f"blk.{layer}.ffn_norm.weight")
        x, residual = self.layers.add_and_norm(f"layers.{layer}/ffn_norm", y, residual, norm)
        y = self.mlp(layer, x)
        if is_last:
            norm = self.norm_weight("output_norm.weight")
            return self.layers.add_and_norm("final_norm", y, residual, norm, is_final=True)
        norm = self.norm_weight(f"blk.{layer + 1}.attn_norm.weight")
        return self.layers.add_and_norm(f"layers.{layer + 1}/attn_norm", y, residual, norm)

    def declare_inputs_and_outputs(self) -> None:
        writer, shape = self.writer, self.shape
        writer.input("input_ids", INT64, ["batch_size", "sequence_length"])
        writer.input("attention_mask", INT64, ["batch_size", "total_sequence_length"])
        positions = 1 if self.options.prune_lm_head else "sequence_length"
        writer.output("logits", FLOAT, ["batch_size", positions, shape.vocab_size])
        kept = FLOAT if self.options.kv_cache is None else INT8
        for layer in range(shape.num_layers):
            for half in ("key", "value"):
                heads, width = shape.num_key_value_heads, shape.head_size
                past: list[int | str] = ["batch_size", heads, "past_sequence_length", width]
                present: list[int | str] = ["batch_size", heads, "total_sequence_length", width]
                writer.input(f"past_key_values.{layer}.{half}", kept, past)
                writer.output(f"present.{layer}.{half}", kept, present)

    def row_lengths(self) -> None:
        """What GroupQueryAttention asks for: the index of each row's last position, and the longest row's length."""
        node, constant = self.writer.node, self.writer.constant
        lengths = node("ReduceSum", ["attention_mask", constant([1])], "mask/row_lengths", keepdims=0)  # [B]
        node("Cast", [node("Sub", [lengths, constant([1])], "mask/last_positions")], "seqlens_k", to=INT32)
        width = node("Shape", ["attention_mask"], "mask/width", start=1, end=2)
        scalar = node("Squeeze", [width, constant([0])], "mask/width_scalar")
        node("Cast", [scalar], "total_sequence_length", to=INT32)
        if self.options.prune_lm_head:
            self.last_positions(width)

    def last_positions(self, width: str) -> None:
        """The last real position of each row inside this run's input: [B, 1]. Rows may be padded on either side."""
        node, constant = self.writer.node, self.writer.constant
        length = node("Shape", ["input_ids"], "input_length", start=1, end=2)
        start = node("Sub", [width, length], "mask/past_width")
        tail = node("Slice", ["attention_mask", start, width, constant([1])], "mask/tail")  # [B, S]
        tail = node("Cast", [tail], "mask/tail_int32", to=INT32)
        node("ArgMax", [tail], "last_position", axis=1, keepdims=1, select_last_index=1)

    def rotary_tables(self) -> None:
        shape = self.shape
        frequencies = self.model.rope_base ** -(np.arange(0, shape.head_size, 2) / shape.head_size)
        angles = np.arange(shape.context_length)[:, None] * frequencies  # [context, head_size / 2]
        self.writer.weight("cos_cache", np.cos(angles).astype(np.float32))
        self.writer.weight("sin_cache", np.sin(angles).astype(np.float32))

    def embedding(self) -> str:
        weight = self.source.ends("token_embd.weight", self.shape.vocab_size, self.shape.hidden_size)
        return self.layers.embedding("embedding", "input_ids", weight)

    def attention(self, layer: int, x: str) -> str:
        shape, hidden = self.shape, self.shape.hidden_size
        queries, keys = shape.num_attention_heads * shape.head_size, shape.num_key_value_heads * shape.head_size
        q = self.source.body(f"blk.{layer}.attn_q.weight", queries, hidden)
        k = self.source.body(f"blk.{layer}.attn_k.weight", keys, hidden)
        v = self.source.body(f"blk.{layer}.attn_v.weight", keys, hidden)
        packed = stack_rows([_halves_apart(q, shape.head_size), _halves_apart(k, shape.head_size), v])
        qkv = [self.layers.linear(f"layers.{layer}/qkv", x, packed), "", ""]  # [B, S, queries + 2 * keys], packed
        past = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        scales, quantized = self.cache_scales(layer)
        return self.writer.node(
            "GroupQueryAttention",
            [*qkv, *past, "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache", *scales],
            [f"layers.{layer}/attention", f"present.{layer}.key", f"present.{layer}.value"],
            domain=MICROSOFT,
            num_heads=shape.num_attention_heads,
            kv_num_heads=shape.num_key_value_heads,
            scale=shape.head_size**-0.5,
            do_rotary=1,
            rotary_interleaved=0,
            **quantized,
        )

    def cache_scales(self, layer: int) -> tuple[list[str], dict[str, str | int]]:
        """Inputs and attributes of an attention whose cache has 8 bits; none for float32."""
        cache = self.options.kv_cache
        if cache is None:
            return [], {}
        key = self.writer.weight(f"layers.{layer}/k_scale", cache.keys[layer])
        value = self.writer.weight(f"layers.{layer}/v_scale", cache.values[layer])
        word = cache.kind.attribute
        unused = [""] * 3  # position_ids, attention_bias, head_sink
        return [*unused, key, value], {"k_quant_type": word, "v_quant_type": word, "kv_cache_bit_width": 8}

    def output_projection(self, layer: int, y: str) -> str:
        columns = self.shape.num_attention_heads * self.shape.head_size
        weight = self.source.body(f"blk.{layer}.attn_output.weight", self.shape.hidden_size, columns)
        return self.layers.linear(f"layers.{layer}/attn_output", y, weight)

    def mlp(self, layer: int, x: str) -> str:
        hidden, width = self.shape.hidden_size, self.shape.intermediate_size
        gate = self.source.body(f"blk.{layer}.ffn_gate.weight", width, hidden)
        up = self.source.body(f"blk.{layer}.ffn_up.weight", width, hidden)
        both = self.layers.linear(f"layers.{layer}/gate_up", x, stack_rows([gate, up]))
        down = self.source.body(f"blk.{layer}.ffn_down.weight", hidden, width)
        return self.layers.linear(f"layers.{layer}/down", self.layers.gated_silu(f"layers.{layer}", both), down)

    def head(self, x: str) -> None:
        if self.source.has("output.weight"):
            weight = self.source.ends("output.weight", self.shape.vocab_size, self.shape.hidden_size)
            self.layers.head(x, weight, "logits")
        else:
            self.layers.tied_head(x, "logits")

    def norm_weight(self, name: str) -> NDArray[np.float32]:
        return self.source.vector(name, self.shape.hidden_size)


def _loud_channels(source: Checkpoint, shape: DecoderShape) -> list[int]:
    """The channels of the residual stream that some neuron writes to with the largest weights, in ascending order.

    Nothing is run to find them: in a trained llama a channel is loud because a few neurons of the MLPs make it so.
    """
    largest = np.zeros(shape.hidden_size, dtype=np.float32)
    for layer in range(shape.num_layers):
        down = source.floats(f"blk.{layer}.ffn_down.weight", shape.hidden_size, shape.intermediate_size)
        np.maximum(largest, np.abs(down).max(axis=1), out=largest)
    count = min(LOUD_CHANNELS, shape.hidden_size // BLOCK_SIZE)
    return sorted(np.argsort(-largest, kind="stable")[:count].tolist())


def _halves_apart(weight: Weight, head_size: int) -> Weight:
    """GGUF interleaves the two rotary halves of each head's rows; the attention kernel wants one after the other."""
    rows = np.arange(weight.num_rows).reshape(-1, head_size // 2, 2)
    return take_rows(weight, rows.swapaxes(1, 2).reshape(-1))
