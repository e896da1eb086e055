"""Ask a GGUF file for what a model family needs, with each answer checked.

Receives a `GgufFile` and the precision. Returns numbers of the metadata and weights in the form the precision asks for.
It does not know any architecture.

It remembers which tensors were asked for, so that a checkpoint with a tensor that nobody understood is refused instead
of being built into a model that is quietly wrong.
"""

from __future__ import annotations

from typing import Any

from genai_lab.builder import blocks
from genai_lab.builder.blocks import Blocks8, Dense, FloatArray, Weight
from genai_lab.builder.gguf_file import GgufFile, GgufTensor
from genai_lab.builder.options import Precision
from genai_lab.errors import ModelFolderError


class Checkpoint:
    """One GGUF file as a source of numbers and weights."""

    def __init__(self, gguf: GgufFile, precision: Precision) -> None:
        self.gguf = gguf
        self.precision = precision
        self._used: set[str] = set()

    def fail(self, what: str) -> ModelFolderError:
        return ModelFolderError(f"{self.gguf.path}: {what}")

    def has(self, name: str) -> bool:
        """Whether the file holds the tensor."""
        return name in self.gguf.tensors

    def num_rows(self, name: str) -> int:
        """Rows of a weight matrix."""
        if not self.has(name):
            raise self.fail(f"tensor {name!r} is missing.")
        return self.gguf.tensors[name].shape[0]

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = 1 << 31) -> int:
        """A whole number of the metadata."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.fail(f"metadata {key} is {value!r}; a whole number from {low} to {high} is needed.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number of the metadata."""
        value = self._value(key, default)
        if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise self.fail(f"metadata {key} is {value!r}; a positive number is needed.")
        return float(value)

    def _value(self, key: str, default: Any) -> Any:
        value = self.gguf.metadata.get(key, default)
        if value is None:
            raise self.fail(f"metadata {key} is missing.")
        return value

    def vector(self, name: str, size: int) -> FloatArray:
        """A float vector, such as a norm's weight."""
        return blocks.as_floats(self._tensor(name, (size,)))

    def floats(self, name: str, rows: int, columns: int) -> FloatArray:
        """The float values of a weight matrix, to look at: [rows, columns]."""
        return blocks.as_floats(self._tensor(name, (rows, columns)))

    def body(self, name: str, rows: int, columns: int) -> Weight:
        """A weight matrix of a layer: [rows, columns]."""
        tensor = self._tensor(name, (rows, columns))
        if self.precision is Precision.FP32:
            return Dense(blocks.as_floats(tensor))
        return blocks.as_blocks8(tensor) if self.precision is Precision.INT8 else blocks.as_blocks4(tensor)

    def ends(self, name: str, rows: int, columns: int) -> Dense | Blocks8:
        """The embedding or the head: [rows, columns]. Never below 8 bits: logits are too sensitive to it."""
        tensor = self._tensor(name, (rows, columns))
        return Dense(blocks.as_floats(tensor)) if self.precision is Precision.FP32 else blocks.as_blocks8(tensor)

    def _tensor(self, name: str, shape: tuple[int, ...]) -> GgufTensor:
        tensor = self.gguf.tensors.get(name)
        if tensor is None:
            raise self.fail(f"tensor {name!r} is missing.")
        if tensor.shape != shape:
            raise self.fail(f"tensor {name!r} has the shape {tensor.shape}; the metadata asks for {shape}.")
        self._used.add(name)
        return tensor

    def check_all_used(self) -> None:
        unused = sorted(self.gguf.tensors.keys() - self._used)
        if unused:
            raise self.fail(
                f"{len(unused)} tensors are not understood, such as {', '.join(unused[:3])}: this is a variant of the "
                "architecture that the builder does not know. Try onnxruntime-genai's own builder."
            )
