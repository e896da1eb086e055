"""bfloat16, which numpy does not have: its bits as uint16, to and from float32, and onnxruntime values of them.

Only the type of a cache or of inputs and outputs is meant; onnxruntime computes with it where it can.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

ONNX_TYPE = 16  # TensorProto.BFLOAT16
BITS = np.dtype(np.uint16)


def to_bits(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The nearest bfloat16 of each number, ties to even.

    >>> to_bits(np.array([1.0, -2.5], np.float32))
    array([16256, 49184], dtype=uint16)
    """
    wide = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded: NDArray[np.uint16] = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    rounded[np.isnan(values)] = 0x7FC0
    return rounded


def from_bits(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers that `bits` stand for, exactly.

    >>> from_bits(np.array([16256, 49184], np.uint16))
    array([ 1. , -2.5], dtype=float32)
    """
    numbers: NDArray[np.float32] = (bits.astype(np.uint32) << 16).view(np.float32)
    return numbers


def as_wanted(array: NDArray[Any], dtype: np.dtype[Any], is_bfloat16: bool) -> NDArray[Any]:
    """An array in the type that a graph wants; bits are bfloat16, for no graph takes uint16."""
    if is_bfloat16:
        return array if array.dtype == BITS else to_bits(array)
    numbers = from_bits(array) if array.dtype == BITS else array
    return numbers.astype(dtype, copy=False)


def value_of(array: NDArray[Any], is_bfloat16: bool) -> ort.OrtValue:
    """An array for onnxruntime; bfloat16 comes as bits, or as numbers that are rounded."""
    if not is_bfloat16:
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = array if array.dtype == BITS else to_bits(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(bits), ONNX_TYPE)


def array_of(value: ort.OrtValue, is_bfloat16: bool) -> NDArray[Any]:
    """An array of onnxruntime's value; of bfloat16 the bits."""
    if not is_bfloat16:
        plain: NDArray[Any] = value.numpy()
        return plain
    shape = value.shape()
    if 0 in shape:
        return np.zeros(shape, BITS)
    address = ctypes.cast(value.data_ptr(), ctypes.POINTER(ctypes.c_uint16))
    bits: NDArray[np.uint16] = np.ctypeslib.as_array(address, shape=tuple(shape)).copy()
    return bits
