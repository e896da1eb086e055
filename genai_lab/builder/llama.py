"""The graph of a llama: embedding, layers of grouped-query attention and gated MLP, a head.

slice 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from genai_lab.builder import blocks
from genai_lab.builder.blocks import Blocks4, Blocks8, Dense, FloatArray, Weight
from genai_lab.builder.gguf_file import GgufFile, GgufTensor
from genai_lab.builder.layers import Layers
from genai_lab.builder.onnx_file import MICROSOFT, OnnxWriter

FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


@dataclass(frozen=True)
class LlamaShape:
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    intermediate_size: int
    vocab_size: int
    context_length: int
    rope_base: float
    norm_epsilon: float


def read_shape(gguf: GgufFile) -> LlamaShape:
    m = gguf.metadata
    heads = m["llama.attention.head_count"]
    return LlamaShape(
        num_layers=m["llama.block_count"],
        hidden_size=m["llama.embedding_length"],
        num_heads=heads,
        num_kv_heads=m.get("llama.attention.head_count_kv", heads),
        head_size=m.get("llama.attention.key_length", m["llama.embedding_length"] // heads),
        intermediate_size=m["llama.feed_forward_length"],
        vocab_size=gguf.tensors["token_embd.weight"].shape[0],
        context_length=m["llama.context_length"],
        rope_base=m.get("llama.rope.freq_base", 10000.0),
        norm_epsilon=m["llama.attention.layer_norm_rms_epsilon"],
    )


def _take(w: Weight, rows) -> Weight:
    if isinstance(w, Dense):
        return Dense(w.values[rows])
    if isinstance(w, Blocks8):
        return Blocks8(w.codes[rows], w.scales[rows])
    return Blocks4(w.codes[rows], w.scales[rows], None if w.offsets is None else w.offsets[rows])


def _stack(ws: list[Weight]) -> Weight:
    if isinstance(ws[0], Dense):
        return Dense(np.concatenate([w.values for w in ws]))
    if isinstance(ws[0], Blocks8):
        return Blocks8(np.concatenate([w.codes for w in ws]), np.concatenate([w.scales for w in ws]))
    offs = [w.offsets if w.offsets is not None else np.zeros_like(w.scales) for w in ws]
    return Blocks4(np.concatenate([w.codes for w in ws]), np.concatenate([w.scales for w in ws]), np.concatenate(offs) if any(w.offsets is not None for w in ws) else None)


def unpermute(rows: int, heads: int):
    """GGUF interleaves the two rotary halves of each head; GroupQueryAttention wants them one after the other."""
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


class LlamaGraph:
    def __init__(self, gguf: GgufFile, shape: LlamaShape, writer: OnnxWriter, precision: str, prune_lm_head: bool) -> None:
        self.gguf, self.shape, self.w, self.precision, self.prune = gguf, shape, writer, precision, prune_lm_head
        self.layers = Layers(writer)

    def weight(self, name) -> Weight:
        t = self.gguf.tensors[name]
        if self.precision == "fp32":
            return Dense(blocks.as_floats(t))
        if self.precision == "int8":
            return blocks.as_blocks8(t)
        return blocks.as_blocks4(t)

    def norm_weight(self, name):
        return self.w.weight(name, blocks.as_floats(self.gguf.tensors[name]))

    def build(self) -> None:
        s, w = self.shape, self.w
        w.input("input_ids", INT64, ["batch_size", "sequence_length"])
        w.input("attention_mask", INT64, ["batch_size", "total_sequence_length"])
        for i in range(s.num_layers):
            for kind in ("key", "value"):
                w.input(f"past_key_values.{i}.{kind}", FLOAT, ["batch_size", s.num_kv_heads, "past_sequence_length", s.head_size])
        w.output("logits", FLOAT, ["batch_size", 1 if self.prune else "sequence_length", s.vocab_size])
        for i in range(s.num_layers):
            for kind in ("key", "value"):
                w.output(f"present.{i}.{kind}", FLOAT, ["batch_size", s.num_kv_heads, "total_sequence_length", s.head_size])
        self.lengths()
        self.rotary()
        h = self.embedding()
        x = w.node("SimplifiedLayerNormalization", [h, self.norm_weight("blk.0.attn_norm.weight")], "layers.0/attn_norm", axis=-1, epsilon=s.norm_epsilon)
        for i in range(s.num_layers):
            last = i == s.num_layers - 1
            a = self.attention(i, x)
            if last and self.prune:
                a, h = self.last_rows(a, "attention"), self.last_rows(h, "residual")
            a = self.layers.linear(f"layers.{i}/attn_output", a, self.weight(f"blk.{i}.attn_output.weight"))
            x, h = self.skip_norm(f"layers.{i}/ffn_norm", a, h, f"blk.{i}.ffn_norm.weight")
            y = self.mlp(i, x)
            nxt = "output_norm.weight" if last else f"blk.{i+1}.attn_norm.weight"
            x, h = self.skip_norm("final_norm" if last else f"layers.{i+1}/attn_norm", y, h, nxt)
        self.head(x)

    def skip_norm(self, name, y, h, weight):
        self.w.node("SkipSimplifiedLayerNormalization", [y, h, self.norm_weight(weight)], [name, "", "", f"{name}/residual"], domain=MICROSOFT, epsilon=self.shape.norm_epsilon)
        return name, f"{name}/residual"

    def lengths(self):
        w = self.w
        total = w.node("ReduceSum", ["attention_mask", w.constant([1])], "mask/sum", keepdims=0)
        w.node("Cast", [w.node("Sub", [total, w.constant([1])], "mask/last")], "seqlens_k", to=INT32)
        length = w.node("Gather", [w.node("Shape", ["attention_mask"], "mask/shape"), w.constant(1)], "mask/length")
        w.node("Cast", [length], "total_sequence_length", to=INT32)

    def rotary(self):
        s = self.shape
        inv = 1.0 / s.rope_base ** (np.arange(0, s.head_size, 2, dtype=np.float64) / s.head_size)
        angles = np.arange(s.context_length, dtype=np.float64)[:, None] * inv
        self.w.weight("cos_cache", np.cos(angles).astype(np.float32))
        self.w.weight("sin_cache", np.sin(angles).astype(np.float32))

    def embedding(self):
        s, w = self.shape, self.w
        t = self.gguf.tensors["token_embd.weight"]
        if self.precision == "fp32":
            w.weight("embedding", blocks.as_floats(t))
            return w.node("Gather", ["embedding", "input_ids"], "embedding/output")
        self.embed = blocks.as_blocks8(t)
        w.weight("embedding.codes", self.embed.codes.reshape(s.vocab_size, -1))
        w.weight("embedding.scales", self.embed.scales)
        return w.node("GatherBlockQuantized", ["embedding.codes", "input_ids", "embedding.scales"], "embedding/output", domain=MICROSOFT, bits=8, block_size=32, gather_axis=0, quantize_axis=1)

    def last_rows(self, x, name):
        """[B,S,H] -> [B,1,H], the last real row."""
        w = self.w
        if "last_row" not in {n.output[0] for n in w.nodes}:
            n = w.node("Shape", ["input_ids"], "sequence_length", start=1, end=2)
            start = w.node("Neg", [n], "minus_sequence_length")
            tail = w.node("Slice", ["attention_mask", start, w.constant([2**62]), w.constant([1])], "mask/tail")
            tail = w.node("Cast", [tail], "mask/tail32", to=INT32)
            w.node("ArgMax", [tail], "last_row", axis=1, keepdims=1, select_last_index=1)
        rows = w.node("GatherND", [x, "last_row"], f"last_row/{name}/flat", batch_dims=1)
        return w.node("Unsqueeze", [rows, w.constant([1])], f"last_row/{name}")

    def attention(self, i, x):
        s = self.shape
        qkv = _stack([
            _take(self.weight(f"blk.{i}.attn_q.weight"), unpermute(s.num_heads * s.head_size, s.num_heads)),
            _take(self.weight(f"blk.{i}.attn_k.weight"), unpermute(s.num_kv_heads * s.head_size, s.num_kv_heads)),
            self.weight(f"blk.{i}.attn_v.weight"),
        ])
        q = self.layers.linear(f"layers.{i}/qkv", x, qkv)
        return self.w.node(
            "GroupQueryAttention",
            [q, "", "", f"past_key_values.{i}.key", f"past_key_values.{i}.value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache"],
            [f"layers.{i}/attention", f"present.{i}.key", f"present.{i}.value"], domain=MICROSOFT,
            num_heads=s.num_heads, kv_num_heads=s.num_kv_heads, do_rotary=1, rotary_interleaved=0, scale=s.head_size**-0.5,
        )

    def mlp(self, i, x):
        w, n = self.w, self.shape.intermediate_size
        gu = self.layers.linear(f"layers.{i}/gate_up", x, _stack([self.weight(f"blk.{i}.ffn_gate.weight"), self.weight(f"blk.{i}.ffn_up.weight")]))
        w.node("Split", [gu], [f"layers.{i}/gate", f"layers.{i}/up"], axis=-1, num_outputs=2)
        g = w.node("QuickGelu", [f"layers.{i}/gate"], f"layers.{i}/silu", domain=MICROSOFT, alpha=1.0)
        y = w.node("Mul", [g, f"layers.{i}/up"], f"layers.{i}/gated")
        return self.layers.linear(f"layers.{i}/down", y, self.weight(f"blk.{i}.ffn_down.weight"))

    def head(self, x):
        w, s = self.w, self.shape
        if self.precision == "fp32":
            t = w.node("Transpose", ["embedding"], "head", perm=[1, 0])
            return w.node("MatMul", [x, t], "logits")
        w.same_bytes("head.codes", "embedding.codes", self.embed.codes.shape)
        return self.layers.matmul_nbits(x, self.embed, "head.codes", "embedding.scales", "logits")
