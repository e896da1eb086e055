"""The parts a decoder is made of, each a few nodes: linear, embedding, norm, gated MLP.

Receives an `OnnxWriter` and weights. Returns names of node outputs. It does not know the architecture that puts the parts
together (see `llama`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from genai_lab.builder.blocks import BLOCK_SIZE, Blocks4, Blocks8, Dense, FloatArray, Weight
from genai_lab.builder.onnx_file import MICROSOFT, OnnxWriter

INT8_ACTIVATIONS: Final = 4  # MatMulNBits accuracy_level: activations are rounded to int8 a block


class Layers:
    """Adds parts to one graph. Block sums of an input are made once and shared by every linear that reads it."""

    def __init__(self, writer: OnnxWriter, accuracy_level: int = INT8_ACTIVATIONS) -> None:
        self.writer = writer
        self.accuracy_level = accuracy_level
        self._block_sums: dict[str, str] = {}
        self._block_indicator: dict[int, str] = {}

    def linear(self, name: str, x: str, weight: Weight) -> str:
        """x [B, S, columns] times the weight's transpose: [B, S, rows]."""
        if isinstance(weight, Dense):
            values = self.writer.weight(f"{name}.weight", weight.values.T)
            return self.writer.node("MatMul", [x, values], f"{name}/output")
        if isinstance(weight, Blocks8) or weight.offsets is None:
            return self._matmul_nbits(name, x, weight, f"{name}/output")
        symmetric = self._matmul_nbits(name, x, weight, f"{name}/symmetric")
        offsets = self.writer.weight(f"{name}.offsets", weight.offsets.T)  # [blocks, rows]
        rest = self.writer.node("MatMul", [self.block_sums(x, weight.offsets.shape[1]), offsets], f"{name}/rest")
        return self.writer.node("Add", [symmetric, rest], f"{name}/output")

    def block_sums(self, x: str, num_blocks: int) -> str:
        """The sum of each block of inputs: [B, S, columns] -> [B, S, blocks]."""
        if x not in self._block_sums:
            if num_blocks not in self._block_indicator:
                indicator = np.repeat(np.eye(num_blocks, dtype=np.float32), BLOCK_SIZE, axis=0)  # [columns, blocks]
                self._block_indicator[num_blocks] = self.writer.weight(f"block_indicator.{num_blocks}", indicator)
            self._block_sums[x] = self.writer.node(
                "MatMul", [x, self._block_indicator[num_blocks]], f"{x}/block_sums"
            )
        return self._block_sums[x]

    def _matmul_nbits(self, name: str, x: str, weight: Blocks4 | Blocks8, output: str) -> str:
        codes = self.writer.weight(f"{name}.codes", weight.codes)
        scales = self.writer.weight(f"{name}.scales", weight.scales)
        return self.matmul_nbits(x, weight, codes, scales, output)

    def matmul_nbits(self, x: str, weight: Blocks4 | Blocks8, codes: str, scales: str, output: str) -> str:
        rows, blocks = weight.scales.shape
        return self.writer.node(
            "MatMulNBits",
            [x, codes, scales],
            output,
            domain=MICROSOFT,
            K=blocks * BLOCK_SIZE,
            N=rows,
            bits=4 if isinstance(weight, Blocks4) else 8,
            block_size=BLOCK_SIZE,
            accuracy_level=self.accuracy_level,
        )
