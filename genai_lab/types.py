"""Small values that several rooms share: what a token is, which phase a step is in, why a request ended, and the tensor
that crosses the public API.

Receives plain numbers and numpy arrays, returns named values. It knows no model, no session and no tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, IntFlag, StrEnum
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from genai_lab.errors import ArgumentError, ArgumentTypeError

TokenId: TypeAlias = int
"""Index of a token in the vocabulary, 0-based."""


class Phase(StrEnum):
    """What a model run does for a sequence."""

    PREFILL = "prefill"
    """Reads the prompt (or a chunk of it): many tokens in, one row of logits needed."""
    DECODE = "decode"
    """Continues by one token."""


Number = TypeVar("Number", bound=type[IntEnum] | type[IntFlag])


def named(kind: Number) -> Number:
    """An enum of numbers whose text is its name, as onnxruntime-genai's have it: "FinishReason.EOS"; several flags at
    once are "EngineEventFlags.TOKEN|TURN_FINISHED". In arithmetic and comparison they stay numbers.

    >>> f"{FinishReason.EOS}", FinishReason.EOS == 1, f"{FinishReason.EOS:d}"
    ('FinishReason.EOS', True, '1')
    """

    def text(self: IntEnum | IntFlag) -> str:
        return f"{kind.__name__}.{self.name or int(self)}"

    def formatted(self: IntEnum | IntFlag, spec: str) -> str:
        return format(int(self), spec) if spec[-1:] in tuple("bcdoxXneEfFgG%") else format(text(self), spec)

    kind.__str__ = text  # type: ignore[method-assign,assignment]
    kind.__format__ = formatted  # type: ignore[method-assign,assignment]
    return kind


@named
class FinishReason(IntEnum):
    """Why a turn ended. Names and numbers are onnxruntime-genai's; STOPPING_CRITERION is ours."""

    NONE = 0
    EOS = 1
    STOP_STRING = 2
    MAX_GENERATED_TOKENS = 3
    MAX_SESSION_TOKENS = 4
    CANCELLED = 5
    FAILED = 6
    STOPPING_CRITERION = 7
    """A person's own stopping rule said so."""


class Tensor:
    """A numeric array with the methods of onnxruntime-genai's `Tensor`.

    The constructor copies its array, so the tensor never changes behind its holder; `np.asarray(tensor)` looks at the
    data without a copy and cannot write to it.

    Args:
        array: any array of booleans, integers or floats; any shape.

    Raises:
        ArgumentTypeError: not an array of numbers.

    Example:
        >>> tensor = Tensor(np.array([[1, 2, 3]], dtype=np.int32))
        >>> tensor.shape()
        [1, 3]
        >>> tensor.type()
        dtype('int32')
    """

    __slots__ = ("_array",)

    def __init__(self, array: NDArray[Any]) -> None:
        if not isinstance(array, np.ndarray):
            raise ArgumentTypeError(
                f"array is {type(array).__name__}; a numpy array is allowed. Wrap it: np.asarray(...)."
            )
        if array.dtype.kind not in "biuf":
            raise ArgumentTypeError(
                f"Unsupported numpy type: array has dtype {array.dtype}; booleans, integers and floats are allowed."
            )
        self._array = array.copy(order="C")
        self._array.flags.writeable = False

    def as_numpy(self) -> NDArray[Any]:
        """A writable copy of the data."""
        return self._array.copy()

    def shape(self) -> list[int]:
        """The length of each axis."""
        return list(self._array.shape)

    def type(self) -> np.dtype[Any]:
        """The element type."""
        return self._array.dtype

    def data(self) -> memoryview:
        """The raw bytes, read-only, C order."""
        return self._array.data.cast("B") if self._array.size else memoryview(b"")

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        wanted = self._array.dtype if dtype is None else np.dtype(dtype)
        if copy is False and wanted != self._array.dtype:
            raise ArgumentError(f"dtype {wanted} needs a copy of a {self._array.dtype} tensor; allow copying.")
        return self._array.astype(wanted, copy=bool(copy) or wanted != self._array.dtype)

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape()}, dtype={self._array.dtype})"


class NamedTensors:
    """Tensors by name, in the order in which they were set (og class NamedTensors).

    >>> tensors = NamedTensors()
    >>> tensors["input_ids"] = np.array([[1, 2]], np.int32)
    >>> tensors.keys(), len(tensors), tensors["input_ids"].shape()
    (['input_ids'], 1, [1, 2])
    """

    __slots__ = ("_tensors",)

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def keys(self) -> list[str]:
        """The names, a copy: one may delete while looping over them."""
        return list(self._tensors)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            known = ", ".join(map(repr, self._tensors)) or "none"
            raise ArgumentError(f"Tensor with name: {name} not found. There are: {known}.")
        return self._tensors[name]

    def __setitem__(self, name: str, value: Tensor | NDArray[Any]) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"a tensor's name is {type(name).__name__}; a string is allowed.")
        self._tensors[name] = value if isinstance(value, Tensor) else Tensor(value)

    def __delitem__(self, name: str) -> None:
        self._tensors.pop(name, None)  # as in onnxruntime-genai, deleting what is not there is no error

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __repr__(self) -> str:
        return f"NamedTensors({', '.join(f'{name}: {tensor!r}' for name, tensor in self._tensors.items())})"
