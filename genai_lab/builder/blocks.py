"""Weights as the graph stores them: 4-bit blocks, 8-bit blocks, or plain floats.

Receives tensors of a GGUF file. Returns arrays in the layout of onnxruntime's operators. It does not know which layer a
weight belongs to, nor how a graph is written.

A block is 32 neighbouring weights of one output row that share a scale:

    Q4_0   weight = scale * (code - 8)                 code in 0..15
    Q4_1   weight = scale * code + minimum             code in 0..15
    Q8_0   weight = scale * code                       code in -128..127

`MatMulNBits` computes `scale * (code - 8)` (4 bits) and `scale * (code - 128)` (8 bits) exactly, so Q4_0 and Q8_0 go in
as they are. Its integer zero points cannot say what Q4_1's minimum says, and rounding the minimum to one ruins the
model. But

    scale * code + minimum  =  scale * (code - 8)  +  (minimum + 8 * scale)

and the last bracket, `offset`, is one number a block: its part of the product is `offset` times the sum of the block's
inputs, which is a small float product of its own (`layers.linear`). Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from gguf.constants import GGMLQuantizationType as GgmlType
from gguf.quants import dequantize as ggml_dequantize
from numpy.typing import NDArray

from genai_lab.builder.gguf_file import GgufTensor
from genai_lab.errors import ModelFolderError

BLOCK_SIZE: Final = 32
FloatArray = NDArray[np.float32]

READABLE_TYPES: Final = tuple(
    GgmlType[name]
    for name in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
)


@dataclass(frozen=True)
class Dense:
    """Plain floats."""

    values: FloatArray  # [rows, columns]

    @property
    def num_rows(self) -> int:
        """Output rows."""
        return int(self.values.shape[0])


@dataclass(frozen=True)
class Blocks4:
    """4-bit codes, two a byte (the even weight in the low half): weight = scale * (code - 8) + offset."""

    codes: NDArray[np.uint8]  # [rows, blocks, 16]
    scales: FloatArray  # [rows, blocks]
    offsets: FloatArray | None  # [rows, blocks]; None when every offset is zero

    @property
    def num_rows(self) -> int:
        """Output rows."""
        return int(self.scales.shape[0])


@dataclass(frozen=True)
class Blocks8:
    """8-bit codes: weight = scale * (code - 128)."""

    codes: NDArray[np.uint8]  # [rows, blocks, 32]
    scales: FloatArray  # [rows, blocks]

    @property
    def num_rows(self) -> int:
        """Output rows."""
        return int(self.scales.shape[0])


Weight = Dense | Blocks4 | Blocks8


def as_floats(tensor: GgufTensor) -> FloatArray:
    """The tensor's values as float32, in its shape."""
    if tensor.type not in READABLE_TYPES:
        names = ", ".join(kind.name for kind in READABLE_TYPES)
        raise ModelFolderError(f"tensor {tensor.name!r} has the type {tensor.type.name}; these are read: {names}.")
    rows = tensor.data.reshape(tensor.shape[0], -1) if len(tensor.shape) > 1 else tensor.data
    with np.errstate(invalid="ignore", over="ignore"):  # `_finite` says it in words
        values = np.ascontiguousarray(ggml_dequantize(rows, tensor.type), dtype=np.float32)
    return _finite(tensor, values).reshape(tensor.shape)


def as_blocks4(tensor: GgufTensor) -> Blocks4:
    """The weight in 4 bits: exact from Q4_0 and Q4_1, rounded to Q4_1's form from anything else."""
    rows = tensor.shape[0]
    if tensor.type == GgmlType.Q4_1:
        block = tensor.data.reshape(rows, -1, 20)
        scales, minima = _halves(tensor, block[..., 0:2]), _halves(tensor, block[..., 2:4])
        return Blocks4(_neighbours_together(block[..., 4:]), scales, minima + 8 * scales)
    if tensor.type == GgmlType.Q4_0:
        block = tensor.data.reshape(rows, -1, 18)
        return Blocks4(_neighbours_together(block[..., 2:]), _halves(tensor, block[..., 0:2]), None)
    return _round_to_4_bits(_in_blocks(tensor))


def as_blocks8(tensor: GgufTensor) -> Blocks8:
    """The weight in 8 bits: exact from Q8_0, rounded from anything else."""
    if tensor.type == GgmlType.Q8_0:
        block = tensor.data.reshape(tensor.shape[0], -1, 34)
        codes = block[..., 2:] ^ np.uint8(0x80)  # adding 128 to a signed byte turns its highest bit
        return Blocks8(codes, _halves(tensor, block[..., 0:2]))
    values = _in_blocks(tensor)  # [rows, blocks, 32]
    scales = np.abs(values).max(axis=-1) / np.float32(127)
    codes = np.rint(values * _reciprocal(scales)[..., None]) + 128
    return Blocks8(codes.astype(np.uint8), scales)


def _halves(tensor: GgufTensor, raw: NDArray[np.uint8]) -> FloatArray:
    """Float16 pairs of bytes [..., 2] as float32 [...]."""
    return _finite(tensor, np.ascontiguousarray(raw).view("<f2")[..., 0].astype(np.float32))


def _finite(tensor: GgufTensor, values: FloatArray) -> FloatArray:
    if not np.isfinite(values).all():
        raise ModelFolderError(
            f"tensor {tensor.name!r} holds values that are not numbers. The file is broken: fetch it again."
        )
    return values


def _neighbours_together(raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """GGUF's byte i holds weights i and i + 16; `MatMulNBits` wants weights 2i and 2i + 1."""
    low, high = raw & 0x0F, raw >> 4  # weights 0..15, weights 16..31
    return _two_a_byte(np.concatenate([low, high], axis=-1))


def _two_a_byte(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes [..., 32] as bytes [..., 16], the even one in the low half."""
    return np.bitwise_or(codes[..., 0::2], np.left_shift(codes[..., 1::2], np.uint8(4)), dtype=np.uint8)


def _in_blocks(tensor: GgufTensor) -> FloatArray:
    rows, columns = tensor.shape
    if columns % BLOCK_SIZE:
        raise ModelFolderError(
            f"tensor {tensor.name!r}: rows of {columns} do not divide into blocks of {BLOCK_SIZE}. Use precision fp32."
        )
    return as_floats(tensor).reshape(rows, columns // BLOCK_SIZE, BLOCK_SIZE)


def _round_to_4_bits(values: FloatArray) -> Blocks4:
    minima, maxima = values.min(axis=-1), values.max(axis=-1)
    scales = (maxima - minima) / np.float32(15)
    codes = np.rint((values - minima[..., None]) * _reciprocal(scales)[..., None]).astype(np.uint8)
    return Blocks4(_two_a_byte(codes), scales, minima + 8 * scales)


def _reciprocal(scales: FloatArray) -> FloatArray:
    """1 / scale, and 0 for a block whose weights are all alike."""
    return np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)


def columns_as_floats(weight: Blocks4 | Blocks8, columns: NDArray[np.intp]) -> FloatArray:
    """Some columns of the weight as float32: [rows, len(columns)]."""
    block, place = columns // BLOCK_SIZE, columns % BLOCK_SIZE
    scales = weight.scales[:, block]
    if isinstance(weight, Blocks8):
        return scales * (weight.codes[:, block, place].astype(np.float32) - 128)
    pair = weight.codes[:, block, place // 2]
    codes = np.where(place % 2 == 0, pair & 0x0F, pair >> 4).astype(np.float32)
    symmetric = scales * (codes - 8)
    return symmetric if weight.offsets is None else symmetric + weight.offsets[:, block]


def take_rows(weight: Weight, order: NDArray[np.intp]) -> Weight:
    """The weight with its output rows in another order."""
    if isinstance(weight, Dense):
        return Dense(weight.values[order])
    if isinstance(weight, Blocks8):
        return Blocks8(weight.codes[order], weight.scales[order])
    return Blocks4(weight.codes[order], weight.scales[order], None if weight.offsets is None else weight.offsets[order])


def stack_rows(weights: Sequence[Weight]) -> Weight:
    """Several weights that read the same input, as one."""
    if all(isinstance(weight, Dense) for weight in weights):
        return Dense(np.concatenate([weight.values for weight in weights if isinstance(weight, Dense)]))
    if all(isinstance(weight, Blocks8) for weight in weights):
        eights = [weight for weight in weights if isinstance(weight, Blocks8)]
        return Blocks8(np.concatenate([w.codes for w in eights]), np.concatenate([w.scales for w in eights]))
    fours = [weight for weight in weights if isinstance(weight, Blocks4)]
    if len(fours) != len(weights):
        raise TypeError(f"cannot stack weights of different forms: {[type(weight).__name__ for weight in weights]}")
    offsets = None
    if any(w.offsets is not None for w in fours):
        offsets = np.concatenate([np.zeros_like(w.scales) if w.offsets is None else w.offsets for w in fours])
    return Blocks4(np.concatenate([w.codes for w in fours]), np.concatenate([w.scales for w in fours]), offsets)
