"""The parts a decoder is made of, each a few nodes: linear, embedding, norm, gated SiLU.

Receives an `OnnxWriter`, names of inputs, and weights. Returns names of outputs. It does not know the architecture that
puts the parts together (see `llama`).

A linear with a block-quantised weight goes two ways. The wide one, `MatMulNBits`, rounds its inputs to int8, each block
of 32 to its own largest value. What that would spoil goes the narrow way, a few float32 columns beside hundreds:

- the offsets of `blocks`, times the sum of each block of inputs;
- loud channels. A few channels of the residual stream are tens of times larger than the rest; their 31 neighbours in
  a block would drown in the rounding. A norm hands them on divided by LOUD (its weight is), so that the wide way hardly
  notices them, and the narrow way adds what is missing.

With exact arithmetic the two add up to the plain product: nothing about the weights is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from genai_lab.builder.blocks import BLOCK_SIZE, Blocks4, Blocks8, Dense, Weight, columns_as_floats
from genai_lab.builder.onnx_file import MICROSOFT, OnnxWriter

LOUD: Final = np.float32(4096)  # a power of two: scaling by it rounds nothing
INT8_INPUTS: Final = 4  # the accuracy_level of MatMulNBits that rounds its inputs to int8


class Layers:
    """Adds parts to one graph."""

    def __init__(
        self, writer: OnnxWriter, norm_epsilon: float, accuracy_level: int = INT8_INPUTS, loud: Sequence[int] = ()
    ) -> None:
        self.writer = writer
        self.norm_epsilon = norm_epsilon
        self.accuracy_level = accuracy_level
        self.loud = np.asarray(loud, dtype=np.intp)  # channels of the residual stream
        self._narrow_inputs: dict[tuple[str, bool], str] = {}  # made once for all linears that read the same input
        self._norms: set[str] = set()  # outputs whose loud channels are divided
        self._embedding: tuple[str, Dense | Blocks8] | None = None

    def linear(self, name: str, x: str, weight: Weight) -> str:
        """x [B, S, columns] times the weight's transpose: [B, S, rows]."""
        output = f"{name}/output"
        if isinstance(weight, Dense):
            return self._matmul(x, self.writer.weight(f"{name}.weight", weight.values), output)
        codes = self.writer.weight(f"{name}.codes", weight.codes)
        scales = self.writer.weight(f"{name}.scales", weight.scales)
        narrow_weight = self._narrow_weight(x, weight)  # [blocks + loud, rows]
        if narrow_weight is None:
            return self._matmul_nbits(x, weight, codes, scales, self.accuracy_level, output)
        wide = self._matmul_nbits(x, weight, codes, scales, self.accuracy_level, f"{name}/wide")
        right = self.writer.weight(f"{name}.narrow", narrow_weight)
        narrow = self.writer.node("MatMul", [self._narrow_input(x, weight), right], f"{name}/narrow")
        return self.writer.node("Add", [wide, narrow], output)

    def _narrow_weight(self, x: str, weight: Blocks4 | Blocks8) -> NDArray[np.float32] | None:
        parts = [weight.offsets.T] if isinstance(weight, Blocks4) and weight.offsets is not None else []
        if x in self._norms:
            parts.append((LOUD - 1) * columns_as_floats(weight, self.loud).T)
        return np.concatenate(parts) if parts else None

    def _narrow_input(self, x: str, weight: Blocks4 | Blocks8) -> str:
        """The sums of the blocks if there are offsets, then the loud channels if x has any: [B, S, narrow]."""
        num_blocks = weight.scales.shape[1]
        has_offsets = isinstance(weight, Blocks4) and weight.offsets is not None
        if (x, has_offsets) not in self._narrow_inputs:
            made = self._select(x, num_blocks, has_offsets) if x in self._norms else self._sum_blocks(x, num_blocks)
            self._narrow_inputs[x, has_offsets] = made
        return self._narrow_inputs[x, has_offsets]

    def _sum_blocks(self, x: str, num_blocks: int) -> str:
        shape = self.writer.constant([0, 0, num_blocks, BLOCK_SIZE])  # 0 keeps the size
        blocks = self.writer.node("Reshape", [x, shape], f"{x}/blocks")
        return self.writer.node("ReduceSum", [blocks, self.writer.constant([3])], f"{x}/block_sums", keepdims=0)

    def _select(self, x: str, num_blocks: int, with_sums: bool) -> str:
        """Loud channels, after the sums if asked for, by a product with zeros and ones that every layer shares."""
        name = "sum_and_select" if with_sums else "select"
        if name not in self.writer.initializers:
            selected = np.eye(num_blocks * BLOCK_SIZE, dtype=np.float32)[:, self.loud]  # [columns, loud]
            sums = np.repeat(np.eye(num_blocks, dtype=np.float32), BLOCK_SIZE, axis=0)  # [columns, blocks]
            self.writer.weight(name, np.concatenate([sums, selected], axis=1) if with_sums else selected)
        return self.writer.node("MatMul", [x, name], f"{x}/narrow")

    def _matmul(self, x: str, weight: str, output: str) -> str:
        return self.writer.node("FusedMatMul", [x, weight], output, domain=MICROSOFT, transB=1)

    def _matmul_nbits(
        self, x: str, weight: Blocks4 | Blocks8, codes: str, scales: str, accuracy_level: int, output: str
    ) -> str:
        return self.writer.node(
            "MatMulNBits",
            [x, codes, scales],
            output,
            domain=MICROSOFT,
            K=weight.scales.shape[1] * BLOCK_SIZE,
            N=weight.num_rows,
            bits=8 if isinstance(weight, Blocks8) else 4,
            block_size=BLOCK_SIZE,
            accuracy_level=accuracy_level,
        )

    def embedding(self, name: str, ids: str, weight: Dense | Blocks8) -> str:
        """Rows of the weight by id: [B, S] -> [B, S, columns]. `tied_head` can use the same bytes again."""
        self._embedding = name, weight
        if isinstance(weight, Dense):
            values = self.writer.weight(f"{name}.weight", weight.values)
            return self.writer.node("Gather", [values, ids], f"{name}/output")
        codes = self.writer.weight(f"{name}.codes", weight.codes.reshape(weight.num_rows, -1))  # [rows, columns]
        scales = self.writer.weight(f"{name}.scales", weight.scales)
        return self.writer.node(
            "GatherBlockQuantized",
            [codes, ids, scales],
            f"{name}/output",
            domain=MICROSOFT,
            bits=8,
            block_size=BLOCK_SIZE,
            gather_axis=0,
            quantize_axis=1,
        )

    def head(self, x: str, weight: Dense | Blocks8, output: str) -> str:
        """x [B, S, columns] times the weight's transpose: [B, S, rows]."""
        if isinstance(weight, Dense):
            return self._matmul(x, self.writer.weight("head.weight", weight.values), output)
        codes, scales = self.writer.weight("head.codes", weight.codes), self.writer.weight("head.scales", weight.scales)
        return self._matmul_nbits(x, weight, codes, scales, INT8_INPUTS, output)

    def tied_head(self, x: str, output: str) -> str:
        """The head whose weight is the embedding's: [B, S, columns] -> [B, S, rows of the embedding]."""
        if self._embedding is None:
            raise RuntimeError("tied_head comes after embedding")
        name, weight = self._embedding
        if isinstance(weight, Dense):
            return self._matmul(x, f"{name}.weight", output)
        codes = self.writer.same_bytes(f"{name}.codes_in_blocks", f"{name}.codes", weight.codes.shape)
        return self._matmul_nbits(x, weight, codes, f"{name}.scales", INT8_INPUTS, output)

    def norm(self, name: str, x: str, weight: NDArray[np.float32]) -> str:
        """RMS norm over the last axis, for linears to read: loud channels come divided by LOUD."""
        scale = self._norm_weight(name, weight)
        return self.writer.node("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=self.norm_epsilon)

    def add_and_norm(
        self, name: str, y: str, residual: str, weight: NDArray[np.float32], *, is_final: bool = False
    ) -> tuple[str, str]:
        """Add y to the residual stream; returns the norm of the sum, as `norm` gives it, and the sum.

        The final norm leaves loud channels as they are: with the head's 8 bits nothing is gained.
        """
        scale = self.writer.weight(f"{name}.weight", weight) if is_final else self._norm_weight(name, weight)
        outputs = [name, "", "", f"{name}/residual"]
        op, inputs = "SkipSimplifiedLayerNormalization", [y, residual, scale]
        self.writer.node(op, inputs, outputs, domain=MICROSOFT, epsilon=self.norm_epsilon)
        return outputs[0], outputs[3]

    def _norm_weight(self, name: str, weight: NDArray[np.float32]) -> str:
        if self.loud.size:
            self._norms.add(name)
            weight = weight.copy()
            weight[self.loud] /= LOUD
        return self.writer.weight(f"{name}.weight", weight)

    def gated_silu(self, name: str, gate_up: str) -> str:
        """silu(gate) * up, where the input holds gate, then up: [B, S, 2 * width] -> [B, S, width]."""
        gate, up = f"{name}/gate", f"{name}/up"
        self.writer.node("Split", [gate_up], [gate, up], axis=-1, num_outputs=2)
        silu = self.writer.node("QuickGelu", [gate], f"{name}/silu", domain=MICROSOFT, alpha=1.0)  # x * sigmoid(x)
        return self.writer.node("Mul", [silu, up], f"{name}/gated")

    def take_row(self, x: str, positions: str) -> str:
        """One position of each row of the batch: x [B, S, columns], positions [B, 1] -> [B, 1, columns]."""
        row = self.writer.node("GatherND", [x, positions], f"{x}/row", batch_dims=1)  # [B, columns]
        return self.writer.node("Unsqueeze", [row, self.writer.constant([1])], f"{x}/taken")
