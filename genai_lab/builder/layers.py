"""The parts a decoder is made of, each a few nodes: linear, embedding, norm, gated SiLU.

Receives an `OnnxWriter`, names of inputs, and weights. Returns names of outputs. It does not know the architecture that
puts the parts together (see `llama`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genai_lab.builder.blocks import BLOCK_SIZE, Blocks4, Blocks8, Dense, Weight
from genai_lab.builder.onnx_file import MICROSOFT, OnnxWriter


class Layers:
    """Adds parts to one graph. Block sums of an input are made once and shared by every linear that reads it."""

    def __init__(self, writer: OnnxWriter, norm_epsilon: float, accuracy_level: int) -> None:
        self.writer = writer
        self.norm_epsilon = norm_epsilon
        self.accuracy_level = accuracy_level
        self._block_sums: dict[str, str] = {}
        self._embedding: tuple[str, Dense | Blocks8] | None = None

    def linear(self, name: str, x: str, weight: Weight, output: str | None = None) -> str:
        """x [B, S, columns] times the weight's transpose: [B, S, rows]."""
        output = output or f"{name}/output"
        if isinstance(weight, Dense):
            return self._matmul(x, self.writer.weight(f"{name}.weight", weight.values), output)
        codes = self.writer.weight(f"{name}.codes", weight.codes)
        scales = self.writer.weight(f"{name}.scales", weight.scales)
        if isinstance(weight, Blocks8) or weight.offsets is None:
            return self._matmul_nbits(x, weight, codes, scales, output)
        symmetric = self._matmul_nbits(x, weight, codes, scales, f"{name}/symmetric")
        offsets = self.writer.weight(f"{name}.offsets", weight.offsets.T)  # [blocks, rows]
        rest = self.writer.node("MatMul", [self.block_sums(x, len(weight.offsets.T)), offsets], f"{name}/rest")
        return self.writer.node("Add", [symmetric, rest], output)

    def block_sums(self, x: str, num_blocks: int) -> str:
        """The sum of each block of inputs: [B, S, columns] -> [B, S, blocks]."""
        if x not in self._block_sums:
            indicator = f"block_indicator.{num_blocks}"  # [columns, blocks]
            if indicator not in self.writer.initializers:
                self.writer.weight(indicator, np.repeat(np.eye(num_blocks, dtype=np.float32), BLOCK_SIZE, axis=0))
            self._block_sums[x] = self.writer.node("MatMul", [x, indicator], f"{x}/block_sums")
        return self._block_sums[x]

    def _matmul(self, x: str, weight: str, output: str) -> str:
        return self.writer.node("FusedMatMul", [x, weight], output, domain=MICROSOFT, transB=1)

    def _matmul_nbits(self, x: str, weight: Blocks4 | Blocks8, codes: str, scales: str, output: str) -> str:
        return self.writer.node(
            "MatMulNBits",
            [x, codes, scales],
            output,
            domain=MICROSOFT,
            K=weight.scales.shape[1] * BLOCK_SIZE,
            N=weight.num_rows,
            bits=8 if isinstance(weight, Blocks8) else 4,
            block_size=BLOCK_SIZE,
            accuracy_level=self.accuracy_level,
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

    def tied_head(self, x: str, output: str) -> str:
        """x times the embedding's transpose: [B, S, columns] -> [B, S, rows of the embedding]."""
        if self._embedding is None:
            raise RuntimeError("tied_head comes after embedding")
        name, weight = self._embedding
        if isinstance(weight, Dense):
            return self._matmul(x, f"{name}.weight", output)
        codes = self.writer.same_bytes(f"{name}.codes_in_blocks", f"{name}.codes", weight.codes.shape)
        return self._matmul_nbits(x, weight, codes, f"{name}.scales", output)

    def norm(self, name: str, x: str, weight: NDArray[np.float32]) -> str:
        """RMS norm over the last axis."""
        scale = self.writer.weight(f"{name}.weight", weight)
        return self.writer.node("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=self.norm_epsilon)

    def add_and_norm(self, name: str, y: str, residual: str, weight: NDArray[np.float32]) -> tuple[str, str]:
        """Add y to the residual stream; returns the RMS norm of the sum, and the sum."""
        scale = self.writer.weight(f"{name}.weight", weight)
        outputs = [name, "", "", f"{name}/residual"]
        op, inputs = "SkipSimplifiedLayerNormalization", [y, residual, scale]
        self.writer.node(op, inputs, outputs, domain=MICROSOFT, epsilon=self.norm_epsilon)
        return outputs[0], outputs[3]

    def gated_silu(self, name: str, gate_up: str) -> str:
        """silu(gate) * up, where x holds gate and up one after the other: [B, S, 2 * width] -> [B, S, width]."""
        gate, up = f"{name}/gate", f"{name}/up"
        self.writer.node("Split", [gate_up], [gate, up], axis=-1, num_outputs=2)
        silu = self.writer.node("QuickGelu", [gate], f"{name}/silu", domain=MICROSOFT, alpha=1.0)  # x * sigmoid(x)
        return self.writer.node("Mul", [silu, up], f"{name}/gated")

    def take_row(self, x: str, positions: str) -> str:
        """One position of each row of the batch: x [B, S, columns], positions [B, 1] -> [B, 1, columns]."""
        row = self.writer.node("GatherND", [x, positions], f"{x}/row", batch_dims=1)  # [B, columns]
        return self.writer.node("Unsqueeze", [row, self.writer.constant([1])], f"{x}/taken")
