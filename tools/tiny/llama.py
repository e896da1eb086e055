"""A llama in numpy that can be trained: logits forwards, gradients backwards, both written out.

Receives weights and token ids. Returns the loss and adds to gradients. It does not know about files, optimisers or the
text. The weights have the names, shapes and row order of a GGUF file, so what is trained is what is written; the rows
of a layer's queries, keys and values, and of its gate and up projection, lie in one matrix until then.

    B rows, S positions, D hidden, H query heads that share one key-value head, d head size, F intermediate, V tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]
Weights = dict[str, Floats]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a llama; every row is a multiple of the 32 weights of a block."""

    vocab_size: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    head_size: int = 64
    context_length: int = 1024
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, in the order in which they lie in a flat array."""
        hidden, width, queries = self.hidden_size, self.intermediate_size, self.num_heads * self.head_size
        shapes: dict[str, tuple[int, ...]] = {"token_embd": (self.vocab_size, hidden), "output_norm": (hidden,)}
        for layer in range(self.num_layers):
            shapes |= {
                f"blk.{layer}.attn_norm": (hidden,),
                f"blk.{layer}.attn_qkv": (queries + 2 * self.head_size, hidden),
                f"blk.{layer}.attn_output": (hidden, queries),
                f"blk.{layer}.ffn_norm": (hidden,),
                f"blk.{layer}.ffn_gate_up": (2 * width, hidden),
                f"blk.{layer}.ffn_down": (hidden, width),
            }
        return shapes

    def num_weights(self) -> int:
        """How many numbers a model of this size has."""
        return sum(int(np.prod(shape)) for shape in self.shapes().values())


def views(flat: Floats, sizes: Sizes) -> Weights:
    """The weights by name, as views of one flat array."""
    named, at = {}, 0
    for name, shape in sizes.shapes().items():
        size = int(np.prod(shape))
        named[name] = flat[at : at + size].reshape(shape)
        at += size
    return named


def new_weights(sizes: Sizes, rng: np.random.Generator) -> Floats:
    """Fresh weights in a flat array. What writes into the residual stream starts small, as there are many of it."""
    flat = np.empty(sizes.num_weights(), np.float32)
    for name, view in views(flat, sizes).items():
        if name.endswith("norm"):
            view[...] = 1
        elif name == "token_embd":
            view[...] = 0.04 * rng.standard_normal(view.shape)
        else:
            gain = (2 * sizes.num_layers) ** -0.5 if name.endswith(("attn_output", "ffn_down")) else 1.0
            view[...] = gain * view.shape[1] ** -0.5 * rng.standard_normal(view.shape)
    return flat


class Normed(NamedTuple):
    """What a norm keeps for its way back."""

    unit: Floats  # [.., D]
    inverse: Floats  # [.., 1]


class Attended(NamedTuple):
    """What an attention keeps."""

    q: Floats  # [B, H * S, d]
    k: Floats  # [B, S, d]
    v: Floats  # [B, S, d]
    probs: Floats  # [B, H * S, S]
    out: Floats  # [B, H * S, d]


class Gated(NamedTuple):
    """What a gated SiLU keeps."""

    gate: Floats
    up: Floats
    sigmoid: Floats  # all [B, S, F]


class Layer(NamedTuple):
    """What a layer keeps."""

    norm_in: Normed
    x: Floats  # [B, S, D], the attention's input
    attended: Attended
    mixed: Floats  # [B, S, H * d], the attention's output
    norm_mid: Normed
    y: Floats  # [B, S, D], the MLP's input
    gated: Gated
    wide: Floats  # [B, S, F], the MLP's middle


class Llama:
    """A llama of some size; the weights are given with each call."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        frequencies = sizes.rope_base ** -(np.arange(0, sizes.head_size, 2) / sizes.head_size)
        angles = np.arange(sizes.context_length)[:, None] * frequencies
        self.turns = np.exp(1j * angles).astype(np.complex64)[:, None, :]  # [context, 1, d / 2]

    def logits(self, weights: Weights, tokens: Tokens) -> Floats:
        """[B, S] -> [B, S, V]."""
        hidden, _ = self._forward(weights, tokens)
        h, _ = _norm(hidden, weights["output_norm"], self.sizes.norm_epsilon)
        return np.asarray(h @ weights["token_embd"].T)

    def loss_and_gradient(self, weights: Weights, tokens: Tokens, wanted: Tokens | Floats, gradient: Weights) -> float:
        """The mean cross-entropy in nats, whose gradient is written to `gradient`.

        `wanted` is the right token of each position, [B, S], or the probabilities of all of them, [B, S, V].
        """
        embedding = weights["token_embd"]
        hidden, layers = self._forward(weights, tokens)
        h, final = _norm(hidden, weights["output_norm"], self.sizes.norm_epsilon)
        loss, d_logits = cross_entropy(h @ embedding.T, wanted)
        gradient["token_embd"][...] = _outer(d_logits, h)
        d = _norm_back(d_logits @ embedding, weights["output_norm"], final, gradient["output_norm"])
        for number in reversed(range(len(layers))):
            d = self._layer_back(weights, gradient, f"blk.{number}.", layers[number], d)
        np.add.at(gradient["token_embd"], tokens, d)
        return loss

    def _forward(self, weights: Weights, tokens: Tokens) -> tuple[Floats, list[Layer]]:
        """The residual stream after the last layer, [B, S, D], and what each layer kept."""
        hidden, layers = weights["token_embd"][tokens], []
        for number in range(self.sizes.num_layers):
            hidden, kept = self._layer(weights, f"blk.{number}.", hidden)
            layers.append(kept)
        return hidden, layers

    def _layer(self, weights: Weights, at: str, hidden: Floats) -> tuple[Floats, Layer]:
        epsilon = self.sizes.norm_epsilon
        x, norm_in = _norm(hidden, weights[at + "attn_norm"], epsilon)
        mixed, attended = self._attention(x @ weights[at + "attn_qkv"].T)
        hidden = hidden + mixed @ weights[at + "attn_output"].T
        y, norm_mid = _norm(hidden, weights[at + "ffn_norm"], epsilon)
        wide, gated = _gated_silu(y @ weights[at + "ffn_gate_up"].T)
        kept = Layer(norm_in, x, attended, mixed, norm_mid, y, gated, wide)
        return hidden + wide @ weights[at + "ffn_down"].T, kept

    def _layer_back(self, weights: Weights, gradient: Weights, at: str, kept: Layer, d: Floats) -> Floats:
        gradient[at + "ffn_down"][...] = _outer(d, kept.wide)
        d_wide = _gated_silu_back(d @ weights[at + "ffn_down"], kept.gated)
        gradient[at + "ffn_gate_up"][...] = _outer(d_wide, kept.y)
        d_y = d_wide @ weights[at + "ffn_gate_up"]
        d = d + _norm_back(d_y, weights[at + "ffn_norm"], kept.norm_mid, gradient[at + "ffn_norm"])
        gradient[at + "attn_output"][...] = _outer(d, kept.mixed)
        d_qkv = self._attention_back(d @ weights[at + "attn_output"], kept.attended)
        gradient[at + "attn_qkv"][...] = _outer(d_qkv, kept.x)
        d_x = d_qkv @ weights[at + "attn_qkv"]
        return d + _norm_back(d_x, weights[at + "attn_norm"], kept.norm_in, gradient[at + "attn_norm"])

    def _attention(self, qkv: Floats) -> tuple[Floats, Attended]:
        """Packed queries, keys and values, [B, S, (H + 2) * d], to what the heads say, [B, S, H * d]."""
        batch, length, _ = qkv.shape
        heads, size = self.sizes.num_heads, self.sizes.head_size
        turned = self._turn(qkv[..., : (heads + 1) * size], self.turns[:length])
        q = np.ascontiguousarray(turned[:, :, :heads].swapaxes(1, 2)).reshape(batch, heads * length, size)
        k = np.ascontiguousarray(turned[:, :, heads])
        v = np.ascontiguousarray(qkv[..., (heads + 1) * size :])
        q *= np.float32(size**-0.5)
        probs: Floats = q @ k.swapaxes(1, 2)
        scores = probs.reshape(batch, heads, length, length)
        scores += np.triu(np.full((length, length), -1e9, np.float32), 1)
        probs -= probs.max(axis=-1, keepdims=True)
        np.exp(probs, out=probs)
        probs /= probs.sum(axis=-1, keepdims=True)
        out: Floats = probs @ v
        mixed = out.reshape(batch, heads, length, size).swapaxes(1, 2).reshape(batch, length, heads * size)
        return mixed, Attended(q, k, v, probs, out)

    def _attention_back(self, d_mixed: Floats, kept: Attended) -> Floats:
        batch, length, _ = d_mixed.shape
        heads, size = self.sizes.num_heads, self.sizes.head_size
        d_out = d_mixed.reshape(batch, length, heads, size).swapaxes(1, 2).reshape(batch, heads * length, size)
        d_scores = d_out @ kept.v.swapaxes(1, 2)
        d_scores -= (d_out * kept.out).sum(axis=-1, keepdims=True)  # equals the sum over probs * d_probs
        d_scores *= kept.probs
        d_q = (d_scores @ kept.k) * np.float32(size**-0.5)
        d_turned = np.empty((batch, length, heads + 1, size), np.float32)
        d_turned[:, :, :heads] = d_q.reshape(batch, heads, length, size).swapaxes(1, 2)
        d_turned[:, :, heads] = d_scores.swapaxes(1, 2) @ kept.q
        d_qk = self._turn(d_turned.reshape(batch, length, -1), self.turns[:length].conj())
        d_v = kept.probs.swapaxes(1, 2) @ d_out
        return np.concatenate([d_qk.reshape(batch, length, -1), d_v], axis=-1)

    def _turn(self, x: Floats, turns: NDArray[np.complex64]) -> Floats:
        """Rotary embedding, [B, S, heads * d] -> [B, S, heads, d]: neighbouring numbers are one complex number."""
        pairs = np.ascontiguousarray(x).view(np.complex64).reshape(*x.shape[:2], -1, self.sizes.head_size // 2)
        return np.asarray((pairs * turns).view(np.float32))


def cross_entropy(logits: Floats, wanted: Tokens | Floats) -> tuple[float, Floats]:
    """The mean cross-entropy in nats, and its gradient in place of the logits."""
    are_tokens = wanted.ndim == 2
    right = wanted[..., None].astype(np.int64) if are_tokens else np.empty(0, np.int64)  # [B, S, 1]
    logits -= logits.max(axis=-1, keepdims=True)
    said = np.take_along_axis(logits, right, -1) if are_tokens else np.einsum("bsv,bsv->bs", logits, wanted)
    np.exp(logits, out=logits)
    total = logits.sum(axis=-1, keepdims=True)
    loss = float(np.log(total).sum() - said.sum()) / said.size
    logits /= total
    if are_tokens:
        np.put_along_axis(logits, right, np.take_along_axis(logits, right, -1) - 1, -1)
    else:
        logits -= wanted
    logits /= said.size
    return loss, logits


def _outer(d: Floats, x: Floats) -> Floats:
    """The gradient of W in x @ W.T."""
    return np.asarray(d.reshape(-1, d.shape[-1]).T @ x.reshape(-1, x.shape[-1]))


def _norm(x: Floats, weight: Floats, epsilon: float) -> tuple[Floats, Normed]:
    squares = np.einsum("bsd,bsd->bs", x, x)[..., None]
    inverse: Floats = np.reciprocal(np.sqrt(squares / np.float32(x.shape[-1]) + np.float32(epsilon)))
    unit = x * inverse
    return unit * weight, Normed(unit, inverse)


def _norm_back(d: Floats, weight: Floats, kept: Normed, gradient: Floats) -> Floats:
    gradient[...] = np.einsum("bsd,bsd->d", d, kept.unit)
    d_unit = d * weight
    d_unit -= kept.unit * (np.einsum("bsd,bsd->bs", d_unit, kept.unit)[..., None] / np.float32(d.shape[-1]))
    d_unit *= kept.inverse
    return d_unit


def _gated_silu(both: Floats) -> tuple[Floats, Gated]:
    """[B, S, 2 * F], gate and up -> [B, S, F]."""
    gate, up = np.split(both, 2, axis=-1)
    sigmoid: Floats = np.reciprocal(np.exp(-gate) + np.float32(1))
    return gate * sigmoid * up, Gated(gate, up, sigmoid)


def _gated_silu_back(d: Floats, kept: Gated) -> Floats:
    gate, up, sigmoid = kept
    both = np.empty((*d.shape[:-1], 2 * d.shape[-1]), np.float32)
    d_gate, d_up = np.split(both, 2, axis=-1)
    silu = gate * sigmoid
    np.multiply(d, silu, out=d_up)
    np.multiply(d * up, sigmoid + silu * (1 - sigmoid), out=d_gate)
    return both
