"""Arrays of ours as inputs and outputs of a binding: a run reads and writes them where they are, so they outlive it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def bind_input(binding: Any, name: str, array: NDArray[Any]) -> None:
    """The run reads `array`, C-contiguous."""
    binding.bind_input(name, "cpu", 0, array.dtype.type, list(array.shape), array.ctypes.data)


def bind_output(binding: Any, name: str, array: NDArray[Any]) -> None:
    """The run writes into `array`, C-contiguous and of the shape that it gives."""
    binding.bind_output(name, "cpu", 0, array.dtype.type, list(array.shape), array.ctypes.data)
