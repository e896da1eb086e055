"""Caches of any type and of other sizes in every layer; bfloat16, which numpy does not have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import genai_lab
from genai_lab.models.bfloat16 import from_bits, to_bits
from tests.graphs_cache import cached, numbers

KINDS = ("FLOAT", "FLOAT16", "BFLOAT16", "INT8", "UINT8")


def generator(folder: Path, prompt: list[int]) -> genai_lab.Generator:
    model = genai_lab.Model(folder)
    made = genai_lab.Generator(model, genai_lab.GeneratorParams(model))
    made.append_tokens(prompt)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_step_by_step_is_at_once_and_back(tmp_path: Path, kind: str) -> None:
    folder = cached(tmp_path / "model", getattr(TensorProto, kind), [(2, 4), (1, 8)])
    made = generator(folder, [5, 6, 7])
    made.append_tokens([8])
    made.append_tokens([9, 10])
    np.testing.assert_array_equal(made.get_logits(), generator(folder, [5, 6, 7, 8, 9, 10]).get_logits())
    made.rewind_to(2)
    made.append_tokens([11])
    np.testing.assert_array_equal(made.get_logits(), generator(folder, [5, 6, 11]).get_logits())
    assert made.get_output("present.1.key").shape == (1, 1, 3, 8)


def test_a_token_costs_what_all_layers_take(tmp_path: Path) -> None:
    folder = cached(tmp_path / "model", TensorProto.FLOAT16, [(2, 4), (1, 16)])
    assert genai_lab.Model(folder).describe()["kv_bytes_per_token"] == 2 * (2 * 4 + 1 * 16) * 2


def test_scales_grow_with_their_cache(tmp_path: Path) -> None:
    folder = cached(tmp_path / "model", TensorProto.INT8, [(2, 4), (2, 4)], scales=True)
    made = generator(folder, [5, 6, 7])
    made.append_tokens([8])
    np.testing.assert_array_equal(made.get_logits(), generator(folder, [5, 6, 7, 8]).get_logits())
    made.rewind_to(2)
    made.append_tokens([9])
    np.testing.assert_array_equal(made.get_logits(), generator(folder, [5, 6, 9]).get_logits())
    assert made.get_output("present.0.key_scale").shape == (1, 2, 3)


def test_bfloat16_reads_as_numbers(tmp_path: Path) -> None:
    folder = cached(tmp_path / "model", TensorProto.BFLOAT16, logits=TensorProto.BFLOAT16)
    made = generator(folder, [5, 6])
    plain = generator(cached(tmp_path / "plain", TensorProto.FLOAT), [5, 6])
    assert made.get_output("present.0.key")[0, 0, :, 0].tolist() == [5.0, 6.0]
    np.testing.assert_allclose(made.get_logits(), plain.get_logits(), rtol=1e-2, atol=1e-3)


def test_numbers_may_be_given_as_bfloat16(tmp_path: Path) -> None:
    model = genai_lab.Model(cached(tmp_path / "model", TensorProto.FLOAT, extra=TensorProto.BFLOAT16))
    once, twice = (genai_lab.Generator(model, genai_lab.GeneratorParams(model)) for _ in range(2))
    for made, factor in ((once, 1.0), (twice, 2.0)):
        made.set_model_input("factor", np.array([factor], np.float32))
        made.append_tokens([5, 6])
    np.testing.assert_array_equal(twice.get_logits(), 2 * once.get_logits())


def test_bits_are_the_upper_half_of_a_float() -> None:
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * 1e3
    bits = to_bits(values)
    np.testing.assert_array_equal(from_bits(bits), numbers(bits))
    steps = np.abs(numbers(bits + 1) - numbers(bits))
    assert (np.abs(from_bits(bits) - values) <= steps / 2 + 1e-6).all()
    assert np.isnan(from_bits(to_bits(np.array([np.nan], np.float32)))).all()
    assert from_bits(to_bits(np.array([np.inf, -0.0], np.float32))).tolist() == [np.inf, -0.0]
