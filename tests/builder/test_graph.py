"""The graph computes a llama: against a numpy pass, in every precision, alone and in a batch, whole and in chunks."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from genai_lab.builder import build_model
from tests.builder.reference import final_norm, llama_logits
from tests.builder.run import Runner, intermediate, logits_of
from tests.tiny import TinySizes, tiny_model_folder, tiny_weights, write_tiny_gguf

SIZES = TinySizes()
IDS = [1, 72, 101, 263, 38, 266, 9, 120, 200, 45, 7, 3]
ALL_POSITIONS = {"prune_lm_head": False}


def as_stored(weight_type: str, tied: bool = True) -> dict[str, NDArray[np.float32]]:
    """The tiny weights after GGUF's own rounding to `weight_type`; the embedding and head go to 8 bits."""

    def stored(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        kind = gguf.GGMLQuantizationType["Q8_0" if name in ("token_embd.weight", "output.weight") else weight_type]
        return values if values.ndim == 1 else gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)

    return {name: stored(name, values) for name, values in tiny_weights(SIZES, 0, tied).items()}


@pytest.mark.parametrize("tied", [True, False])
def test_fp32_is_the_reference(tmp_path: Path, tied: bool) -> None:
    checkpoint = write_tiny_gguf(tmp_path / "tiny.gguf", tied=tied)
    folder = build_model(checkpoint, tmp_path / "model", "fp32", extra_options=ALL_POSITIONS)
    expected = llama_logits(tiny_weights(SIZES, 0, tied), SIZES, IDS)
    np.testing.assert_allclose(logits_of(folder, IDS), expected, atol=2e-4)


@pytest.mark.parametrize("weight_type", ["Q4_0", "Q4_1"])
@pytest.mark.parametrize("tied", [True, False])
def test_int4_imports_4_bit_weights_exactly(tmp_path: Path, weight_type: str, tied: bool) -> None:
    """With float32 inputs in the layers nothing is rounded before the head: it reads what dequantised weights give."""
    checkpoint = write_tiny_gguf(tmp_path / "tiny.gguf", weight_type=weight_type, tied=tied)
    options = {**ALL_POSITIONS, "accuracy_level": 1}
    folder = build_model(checkpoint, tmp_path / "model", "int4", extra_options=options)
    expected = final_norm(as_stored(weight_type, tied), SIZES, IDS)
    np.testing.assert_allclose(intermediate(folder, "final_norm", IDS), expected, atol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_of_int4_is_exact_8_bits_of_rounded_inputs(tmp_path: Path, tied: bool) -> None:
    checkpoint = write_tiny_gguf(tmp_path / "tiny.gguf", weight_type="Q4_1", tied=tied)
    folder = build_model(checkpoint, tmp_path / "model", "int4", extra_options=ALL_POSITIONS)
    weights = as_stored("Q4_1", tied)
    blocks = intermediate(folder, "final_norm", IDS).reshape(len(IDS), -1, 32)
    steps = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    rounded = (np.rint(blocks / steps) * steps).reshape(len(IDS), -1)
    expected = rounded @ weights.get("output.weight", weights["token_embd.weight"]).T
    np.testing.assert_allclose(logits_of(folder, IDS), expected, atol=1e-4)


def test_int4_of_4_bit_weights_differs_from_fp32_of_them_only_by_int8_inputs(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "int4", "int4", extra_options=ALL_POSITIONS)
    expected = llama_logits(as_stored("Q4_1"), SIZES, IDS)
    error = logits_of(folder, IDS) - expected
    assert error.std() < 0.03 * expected.std()


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_float_weights_are_rounded_no_further_than_the_precision(tmp_path: Path, precision: str) -> None:
    folder = tiny_model_folder(tmp_path / "model", precision, weight_type="F32", extra_options=ALL_POSITIONS)
    expected = llama_logits(tiny_weights(SIZES, 0), SIZES, IDS)
    error = logits_of(folder, IDS) - expected
    assert error.std() < {"int8": 0.04, "int4": 0.35}[precision] * expected.std()


@pytest.mark.parametrize("weight_type", ["Q8_0", "F16", "BF16", "Q5_0", "Q5_1"])
def test_other_tensor_types_are_read(tmp_path: Path, weight_type: str) -> None:
    folder = tiny_model_folder(tmp_path / "model", "fp32", weight_type=weight_type, extra_options=ALL_POSITIONS)
    np.testing.assert_allclose(logits_of(folder, IDS), llama_logits(as_stored(weight_type), SIZES, IDS), atol=2e-4)


@pytest.mark.parametrize("precision", ["fp32", "int4", "int8"])
def test_pruned_logits_are_those_of_the_last_position(tmp_path: Path, precision: str) -> None:
    pruned = tiny_model_folder(tmp_path / "pruned", precision)
    whole = tiny_model_folder(tmp_path / "whole", precision, extra_options=ALL_POSITIONS)
    last = logits_of(pruned, IDS)
    assert last.shape[0] == 1
    np.testing.assert_allclose(last[0], logits_of(whole, IDS)[-1], atol=0.05 if precision != "fp32" else 1e-5)


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_a_ragged_batch_is_each_row_alone(tmp_path: Path, precision: str) -> None:
    """Prompts padded on the right, then a decode step: each row counts its positions from its own start."""
    folder = tiny_model_folder(tmp_path / "model", precision)
    prompts, following = [IDS[:4], IDS[:9], IDS[3:6]], [11, 12, 13]
    ids = np.full((3, 9), 2, dtype=np.int64)
    mask = np.zeros((3, 9), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)], mask[row, : len(prompt)] = prompt, 1
    batch = Runner(folder)
    first = batch.step(ids, mask)
    second = batch.step(np.asarray(following)[:, None], np.concatenate([mask, np.ones((3, 1), np.int64)], axis=1))
    for row, prompt in enumerate(prompts):
        alone = Runner(folder)
        np.testing.assert_allclose(first[row], alone.step(np.asarray([prompt]))[0], atol=1e-4)
        np.testing.assert_allclose(second[row], alone.step(np.asarray([[following[row]]]))[0], atol=1e-4)


@pytest.mark.parametrize("padding", [[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
def test_the_last_real_position_is_taken_whichever_side_is_padded(tmp_path: Path, padding: list[int]) -> None:
    """Which position is taken, not what attention makes of padding on the left: that kernel cannot mask it."""
    folders = {
        prune: tiny_model_folder(tmp_path / str(prune), extra_options={"prune_lm_head": prune})
        for prune in (True, False)
    }
    ids, mask = np.asarray([IDS[:5]]), np.asarray([padding])
    taken, every = (Runner(folders[prune]).step(ids, mask)[0] for prune in (True, False))
    last = max(index for index, real in enumerate(padding) if real)
    np.testing.assert_allclose(taken[0], every[last], atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_chunks_are_the_whole(tmp_path: Path, precision: str) -> None:
    folder = tiny_model_folder(tmp_path / "model", precision)
    chunked = Runner(folder)
    for chunk in (IDS[:5], IDS[5:8], IDS[8:]):
        logits = chunked.step(np.asarray([chunk]))
    np.testing.assert_allclose(logits, Runner(folder).step(np.asarray([IDS])), atol=1e-4)


def test_token_by_token_is_the_reference(tmp_path: Path) -> None:
    runner = Runner(tiny_model_folder(tmp_path / "model"))
    stepped = np.concatenate([runner.step(np.asarray([[token]]))[0] for token in IDS])
    np.testing.assert_allclose(stepped, llama_logits(tiny_weights(SIZES, 0), SIZES, IDS), atol=2e-4)


def test_head_count_equal_to_key_value_heads_and_larger_groups(tmp_path: Path) -> None:
    for heads, kv_heads in ((2, 2), (6, 2)):
        sizes = TinySizes(num_attention_heads=heads, num_key_value_heads=kv_heads, head_size=16, hidden_size=96)
        folder = tiny_model_folder(tmp_path / f"{heads}-{kv_heads}", sizes=sizes, extra_options=ALL_POSITIONS)
        np.testing.assert_allclose(logits_of(folder, IDS), llama_logits(tiny_weights(sizes, 0), sizes, IDS), atol=2e-4)


def test_the_embedding_is_stored_once(tmp_path: Path) -> None:
    """The tied head reads the embedding's bytes under another shape."""
    model = onnx.load(tiny_model_folder(tmp_path / "m", "int4") / "model.onnx", load_external_data=False)
    place = {t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer}
    assert place["embedding.codes"] == place["embedding.codes_in_blocks"]


@pytest.mark.parametrize("precision", ["fp32", "int4", "int8"])
def test_nodes_have_names_of_their_own_and_no_weight_is_idle(tmp_path: Path, precision: str) -> None:
    graph = onnx.load(tiny_model_folder(tmp_path / "m", precision) / "model.onnx", load_external_data=False).graph
    names = [node.name for node in graph.node]
    assert len(set(names)) == len(names)
    read = {name for node in graph.node for name in node.input}
    assert {tensor.name for tensor in graph.initializer} <= read
    made = {name for node in graph.node for name in node.output if name}
    shown = {output.name for output in graph.output}
    idle = made - read - shown
    assert idle == {"final_norm/residual"}  # the fused norm always gives its sum
