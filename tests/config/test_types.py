"""The small values of `genai_lab.types`."""

from __future__ import annotations

import numpy as np
import pytest

from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.types import FinishReason, Phase, Tensor


def test_a_tensor_keeps_its_own_copy() -> None:
    source = np.arange(6, dtype=np.int32).reshape(2, 3)
    tensor = Tensor(source)
    source[0, 0] = 9
    copied = tensor.as_numpy()
    copied[0, 1] = 9
    assert tensor.as_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (tensor.shape(), tensor.type(), len(tensor)) == ([2, 3], np.dtype(np.int32), 2)
    assert repr(tensor) == "Tensor(shape=[2, 3], dtype=int32)"


def test_looking_at_a_tensor_copies_nothing_and_cannot_write() -> None:
    tensor = Tensor(np.zeros((2, 2), np.float32))
    view = np.asarray(tensor)
    assert np.shares_memory(view, np.asarray(tensor))
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    assert np.asarray(tensor, dtype=np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(tensor), view)
    with pytest.raises(ArgumentError, match="needs a copy"):
        np.asarray(tensor, dtype=np.float64, copy=False)


@pytest.mark.parametrize("array", [np.array(3), np.zeros((2, 0)), np.zeros(3, np.float16), np.eye(4)[::2, ::2]])
def test_raw_bytes_of_a_tensor(array: np.ndarray) -> None:
    data = Tensor(array).data()
    assert bytes(data) == array.tobytes()
    assert data.readonly or not data.nbytes


@pytest.mark.parametrize("wrong", [[1, 2], "x", np.array(["a"]), np.array([1j]), np.array([None])])
def test_only_arrays_of_numbers(wrong: object) -> None:
    with pytest.raises(ArgumentTypeError, match="array "):
        Tensor(wrong)  # type: ignore[arg-type]


def test_names_are_ogs() -> None:
    assert [reason.name for reason in sorted(FinishReason)] == [
        "NONE", "EOS", "STOP_STRING", "MAX_GENERATED_TOKENS", "MAX_SESSION_TOKENS", "CANCELLED", "FAILED",
        "STOPPING_CRITERION",  # ours
    ]  # fmt: skip
    assert (Phase.PREFILL, Phase.DECODE) == ("prefill", "decode")
