"""A llama in plain numpy, written from GGUF's own conventions and sharing nothing with the builder.

Receives weights under GGUF's names and token ids. Returns logits. Rotary pairs are neighbouring rows (2i, 2i + 1), as
GGUF stores them, where the built graph works on halves; agreement of the two proves the reordering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.tiny import TinySizes

Array = NDArray[np.float64]


def llama_logits(weights: Mapping[str, NDArray[np.float32]], sizes: TinySizes, ids: Sequence[int]) -> Array:
    """Logits of every position: [len(ids), vocabulary]."""
    head = weights.get("output.weight", weights["token_embd.weight"])
    logits: Array = final_norm(weights, sizes, ids) @ head.astype(np.float64).T
    return logits


def final_norm(weights: Mapping[str, NDArray[np.float32]], sizes: TinySizes, ids: Sequence[int]) -> Array:
    """What the head reads: [len(ids), hidden]."""
    w = {name: values.astype(np.float64) for name, values in weights.items()}
    x = w["token_embd.weight"][np.asarray(ids)]  # [S, hidden]
    for layer in range(sizes.num_layers):
        p = f"blk.{layer}."
        h = rms_norm(x, w[p + "attn_norm.weight"], sizes)
        heads = attention(
            h @ w[p + "attn_q.weight"].T, h @ w[p + "attn_k.weight"].T, h @ w[p + "attn_v.weight"].T, sizes
        )
        x = x + heads @ w[p + "attn_output.weight"].T
        h = rms_norm(x, w[p + "ffn_norm.weight"], sizes)
        gate, up = h @ w[p + "ffn_gate.weight"].T, h @ w[p + "ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "ffn_down.weight"].T
    return rms_norm(x, w["output_norm.weight"], sizes)


def rms_norm(x: Array, weight: Array, sizes: TinySizes) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + sizes.norm_epsilon) * weight


def attention(q: Array, k: Array, v: Array, sizes: TinySizes) -> Array:
    """Causal grouped-query attention: q [S, heads * size], k and v [S, kv_heads * size] -> [S, heads * size]."""
    length, size = len(q), sizes.head_size
    group = sizes.num_attention_heads // sizes.num_key_value_heads
    outputs = []
    for head in range(sizes.num_attention_heads):
        shared = head // group
        qh = rotate(q[:, head * size : (head + 1) * size], sizes)
        kh = rotate(k[:, shared * size : (shared + 1) * size], sizes)
        scores = qh @ kh.T / np.sqrt(size)  # [S, S]
        scores[np.triu_indices(length, 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        outputs.append(weights / weights.sum(axis=-1, keepdims=True) @ v[:, shared * size : (shared + 1) * size])
    return np.concatenate(outputs, axis=-1)


def rotate(x: Array, sizes: TinySizes) -> Array:
    """Turn each pair of neighbours of row `position` by position * base^(-2i / size)."""
    size = x.shape[1]
    angles = np.arange(len(x))[:, None] * sizes.rope_base ** -(np.arange(0, size, 2) / size)
    even, odd = x[:, 0::2], x[:, 1::2]
    turned = np.empty_like(x)
    turned[:, 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    turned[:, 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return turned
