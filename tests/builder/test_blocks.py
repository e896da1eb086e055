"""Weights in 4 and 8 bits: what is exact is exact, what is rounded is rounded no further than the bits allow."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from genai_lab.builder import blocks
from genai_lab.builder.blocks import Blocks4, Blocks8, Dense
from genai_lab.builder.gguf_file import GgufTensor
from genai_lab.errors import ModelFolderError

GgmlType = gguf.GGMLQuantizationType


def tensor_of(values: NDArray[np.float32], kind: GgmlType) -> GgufTensor:
    raw = gguf.quants.quantize(values, kind)
    return GgufTensor("w", kind, values.shape, np.ascontiguousarray(raw).view(np.uint8).reshape(-1))


def random_values(seed: int, rows: int = 6, columns: int = 96) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((rows, columns)) * 10.0 ** generator.integers(-4, 3, (rows, 1))
    return values.astype(np.float32)


def floats_of(weight: Blocks4 | Blocks8) -> NDArray[np.float32]:
    """The weight's values, from the layouts that onnxruntime documents."""
    if isinstance(weight, Blocks8):
        values = (weight.codes.astype(np.float32) - 128) * weight.scales[..., None]
    else:
        codes = np.stack([weight.codes & 15, weight.codes >> 4], axis=-1).reshape(*weight.scales.shape, 32)
        values = (codes.astype(np.float32) - 8) * weight.scales[..., None]
        values = values if weight.offsets is None else values + weight.offsets[..., None]
    return values.reshape(weight.num_rows, -1)


@pytest.mark.slow
@given(st.integers(0, 1000))
def test_q4_1_q4_0_and_q8_0_are_exact(seed: int) -> None:
    values = random_values(seed)
    for kind, form in (
        (GgmlType.Q4_1, blocks.as_blocks4),
        (GgmlType.Q4_0, blocks.as_blocks4),
        (GgmlType.Q8_0, blocks.as_blocks8),
    ):
        tensor = tensor_of(values, kind)
        expected = gguf.quants.dequantize(tensor.data.reshape(len(values), -1), kind)
        np.testing.assert_allclose(floats_of(form(tensor)), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_q4_0_needs_no_offsets() -> None:
    weight = blocks.as_blocks4(tensor_of(random_values(0), GgmlType.Q4_0))
    assert weight.offsets is None


@given(st.integers(0, 1000))
def test_rounding_floats_errs_by_at_most_half_a_step(seed: int) -> None:
    values = random_values(seed)
    tensor = tensor_of(values, GgmlType.F32)
    for weight in (blocks.as_blocks4(tensor), blocks.as_blocks8(tensor)):
        error = np.abs(floats_of(weight) - values).reshape(*weight.scales.shape, 32)
        assert (error <= 0.5001 * weight.scales[..., None]).all()


def test_a_block_of_equal_weights_is_exact() -> None:
    values = np.repeat(np.float32([[0.0, 0.7, -3.0]]), 32, axis=1)
    tensor = tensor_of(values, GgmlType.F32)
    np.testing.assert_array_equal(floats_of(blocks.as_blocks4(tensor)), values)
    np.testing.assert_allclose(floats_of(blocks.as_blocks8(tensor)), values, rtol=1e-6)


@pytest.mark.parametrize("kind", [GgmlType.Q4_1, GgmlType.Q4_0, GgmlType.Q8_0])
def test_columns_are_those_of_the_whole(kind: GgmlType) -> None:
    tensor = tensor_of(random_values(1), kind)
    weight = blocks.as_blocks8(tensor) if kind == GgmlType.Q8_0 else blocks.as_blocks4(tensor)
    columns = np.asarray([0, 1, 31, 32, 77, 95])
    np.testing.assert_array_equal(blocks.columns_as_floats(weight, columns), floats_of(weight)[:, columns])


def test_rows_are_stacked_and_reordered_in_every_form() -> None:
    values, order = random_values(2), np.asarray([3, 1, 5, 0, 4, 2])
    fours = [blocks.as_blocks4(tensor_of(values, kind)) for kind in (GgmlType.Q4_1, GgmlType.Q4_0)]
    eights = [blocks.as_blocks8(tensor_of(values, kind)) for kind in (GgmlType.Q8_0, GgmlType.F32)]
    for pair in (fours, eights):
        stacked = blocks.stack_rows(pair)
        assert not isinstance(stacked, Dense)
        whole = np.concatenate([floats_of(weight) for weight in pair])
        np.testing.assert_array_equal(floats_of(stacked), whole)
        taken = blocks.take_rows(pair[0], order)
        assert not isinstance(taken, Dense)
        np.testing.assert_array_equal(floats_of(taken), floats_of(pair[0])[order])


def test_forms_do_not_mix() -> None:
    four = blocks.as_blocks4(tensor_of(random_values(0), GgmlType.Q4_0))
    with pytest.raises(TypeError, match=r"Blocks4.*Dense"):
        blocks.stack_rows([four, Dense(random_values(0))])


def test_rows_that_do_not_divide_into_blocks_are_an_error() -> None:
    tensor = tensor_of(random_values(0, columns=40), GgmlType.F32)
    with pytest.raises(ModelFolderError, match=r"rows of 40 do not divide into blocks of 32\. Use precision fp32"):
        blocks.as_blocks4(tensor)


@pytest.mark.parametrize("kind", [GgmlType.Q4_1, GgmlType.Q4_0, GgmlType.Q8_0, GgmlType.F32, GgmlType.F16])
def test_weights_that_are_not_numbers_are_refused(kind: GgmlType) -> None:
    tensor = tensor_of(random_values(0), kind)
    tensor.data[0:4] = [0xFF, 0x7F, 0xFF, 0x7F]  # NaN, as float16 and as float32
    form = blocks.as_blocks8 if kind == GgmlType.Q8_0 else blocks.as_blocks4
    with pytest.raises(ModelFolderError, match="tensor 'w' holds values that are not numbers"):
        form(tensor)


def test_a_type_that_is_not_read_is_named_with_those_that_are() -> None:
    tensor = GgufTensor("w", GgmlType.IQ2_XXS, (1, 256), np.zeros(66, dtype=np.uint8))
    with pytest.raises(ModelFolderError, match=r"'w' has the type IQ2_XXS; these are read: F32, .*Q4_1"):
        blocks.as_floats(tensor)
