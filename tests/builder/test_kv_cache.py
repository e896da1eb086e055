"""An 8-bit KV cache as a builder option: what the graph then takes, and scale files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from genai_lab.builder import build_model
from genai_lab.builder.cli import main
from genai_lab.builder.kv_cache import KvCacheScales, KvCacheType, parse_kv_cache, write_scales
from genai_lab.builder.options import parse_options
from genai_lab.errors import ArgumentError
from tests.tiny import TinySizes, write_tiny_gguf

SIZES = TinySizes(num_key_value_heads=2)
CHANNELS = SIZES.num_key_value_heads * SIZES.head_size
COUNTS = {KvCacheType.INT8_PER_TENSOR: 1, KvCacheType.INT8_PER_CHANNEL: CHANNELS}


def scale_file(folder: Path, kind: KvCacheType) -> Path:
    shape = (SIZES.num_layers, COUNTS[kind])
    keys = np.linspace(0.05, 0.1, shape[0] * shape[1], dtype=np.float32).reshape(shape)
    write_scales(folder / "scales.json", KvCacheScales(kind, keys, keys[::-1]))
    return folder / "scales.json"


@pytest.mark.parametrize("kind", COUNTS)
def test_the_graph_keeps_keys_and_values_in_8_bits_with_the_scales_given(tmp_path: Path, kind: KvCacheType) -> None:
    file = scale_file(tmp_path, kind)
    checkpoint = str(write_tiny_gguf(tmp_path / "tiny.gguf", sizes=SIZES))
    extra = [f"kv_cache_quant_type={kind}", f"kv_cache_scale_file={file}"]
    assert main(["-i", checkpoint, "-o", str(tmp_path / "out"), "-p", "fp32", "--extra_options", *extra]) == 0
    graph = onnx.load(str(tmp_path / "out" / "model.onnx")).graph
    kept = [v for v in (*graph.input, *graph.output) if v.name.startswith(("past_key_values.", "present."))]
    assert len(kept) == 4 * SIZES.num_layers
    assert {v.type.tensor_type.elem_type for v in kept} == {onnx.TensorProto.INT8}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    scales = parse_kv_cache(kind, str(file))
    assert scales is not None
    for layer, node in enumerate(n for n in graph.node if n.op_type == "GroupQueryAttention"):
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        assert attributes["kv_cache_bit_width"] == 8
        assert attributes["k_quant_type"].decode() == attributes["v_quant_type"].decode() == kind.attribute
        found = [onnx.numpy_helper.to_array(weights[name]) for name in node.input[12:14]]
        np.testing.assert_array_equal(found[0], scales.keys[layer])
        np.testing.assert_array_equal(found[1], scales.values[layer])


def test_none_is_the_default_and_the_same_graph(tmp_path: Path) -> None:
    checkpoint = write_tiny_gguf(tmp_path / "tiny.gguf")
    plain = build_model(checkpoint, tmp_path / "plain", "fp32")
    named = build_model(checkpoint, tmp_path / "named", "fp32", extra_options={"kv_cache_quant_type": "none"})
    assert (plain / "model.onnx").read_bytes() == (named / "model.onnx").read_bytes()


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"kv_cache_quant_type": "int4_per_tensor"}, "allowed are none, int8_per_tensor, int8_per_channel"),
        ({"kv_cache_quant_type": "int8_per_tensor"}, "needs kv_cache_scale_file; python -m genai_lab.workbench.kv_cal"),
        ({"kv_cache_scale_file": "x.json"}, "goes with kv_cache_quant_type int8_per_tensor or int8_per_channel"),
        ({"kv_cache_quant_type": "int8_per_tensor", "kv_cache_scale_file": "gone.json"}, "'gone.json': No such file"),
    ],
)
def test_options_that_do_not_go_together(extra: dict[str, str], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        parse_options("int4", "cpu", extra)


GOOD = [0.1, 0.2]


@pytest.mark.parametrize(
    ("kind", "content", "words"),
    [
        ("int8_per_tensor", "{", "is not JSON"),
        ("int8_per_tensor", "[" * 100_000, "is not JSON"),
        ("int8_per_tensor", [1], 'has no object "scales"'),
        ("int8_per_tensor", {"scales": {"k_scales": GOOD}}, "v_scales is None; a list with a positive number a layer"),
        ("int8_per_tensor", {"scales": {"k_scales": [0.1, 0], "v_scales": GOOD}}, "k_scales of layer 1 has 0;"),
        ("int8_per_tensor", {"scales": {"k_scales": GOOD, "v_scales": [0.1, True]}}, "layer 1 has True;"),
        ("int8_per_tensor", {"scales": {"k_scales": GOOD, "v_scales": [0.1, float("nan")]}}, "layer 1 has nan;"),
        ("int8_per_tensor", {"scales": {"k_scales": GOOD, "v_scales": [0.1, 10**400]}}, "layer 1 has 1000"),
        ("int8_per_tensor", {"scales": {"k_scales": [GOOD, GOOD], "v_scales": GOOD}}, "several scales a layer"),
        ("int8_per_channel", {"scales": {"k_scales": [GOOD, [1]], "v_scales": GOOD}}, "layer 1 has 1 numbers;"),
    ],
)
def test_scale_files_that_are_wrong(tmp_path: Path, kind: str, content: object, words: str) -> None:
    file = tmp_path / "scales.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ArgumentError, match=words):
        parse_kv_cache(kind, str(file))


@pytest.mark.parametrize(
    ("kind", "layers", "count", "words"),
    [
        (
            "int8_per_tensor",
            3,
            1,
            "k_scales has 3 layers of 1 scales; this model with int8_per_tensor needs 2 layers of 1",
        ),
        ("int8_per_channel", 2, 8, "k_scales has 2 layers of 8 scales; .* needs 2 layers of 64"),
    ],
)
def test_scales_of_another_model(tmp_path: Path, kind: str, layers: int, count: int, words: str) -> None:
    ones = np.ones((layers, count), np.float32)
    write_scales(tmp_path / "scales.json", KvCacheScales(KvCacheType(kind), ones, ones))
    checkpoint = write_tiny_gguf(tmp_path / "tiny.gguf", sizes=SIZES)
    extra = {"kv_cache_quant_type": kind, "kv_cache_scale_file": str(tmp_path / "scales.json")}
    with pytest.raises(ArgumentError, match=words):
        build_model(checkpoint, tmp_path / "out", "fp32", extra_options=extra)
    assert not (tmp_path / "out").exists()
