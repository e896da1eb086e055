"""A GGUF file is hostile until proven otherwise: whatever its bytes, the answer is the truth or a ModelFolderError."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genai_lab.builder.gguf_file import read_gguf
from genai_lab.errors import ModelFolderError
from tests.tiny import TinySizes, tiny_tokens, tiny_weights, write_tiny_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_it_reads_what_was_written(tiny: Path) -> None:
    file = read_gguf(tiny)
    assert file.metadata["general.architecture"] == "llama"
    assert file.metadata["llama.attention.head_count"] == 2
    assert file.metadata["llama.rope.freq_base"] == 10000.0
    assert file.metadata["tokenizer.ggml.tokens"] == tiny_tokens()
    assert len(file.metadata["tokenizer.ggml.token_type"]) == len(tiny_tokens())
    weights = tiny_weights(TinySizes(), 0)
    assert file.tensors.keys() == weights.keys()
    for name, values in weights.items():
        assert file.tensors[name].shape == values.shape
        np.testing.assert_array_equal(file.tensors[name].data.view("<f4").reshape(values.shape), values)


def test_it_reads_every_metadata_type(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    values = {"u8": (writer.add_uint8, 200), "i8": (writer.add_int8, -5), "u16": (writer.add_uint16, 60000)}
    values |= {
        "i16": (writer.add_int16, -3),
        "u64": (writer.add_uint64, 1 << 60),
        "i64": (writer.add_int64, -(1 << 60)),
    }
    values |= {"f64": (writer.add_float64, 0.1), "yes": (writer.add_bool, True), "text": (writer.add_string, "é\\n")}
    values |= {"list": (writer.add_array, [1, 2, 3]), "words": (writer.add_array, ["a", ""])}
    for key, (add, value) in values.items():
        add(key, value)
    writer.add_tensor("t", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = read_gguf(path).metadata
    read["list"] = read["list"].tolist()
    assert {key: read[key] for key in values} == {key: value for key, (_, value) in values.items()}


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"nothing.gguf: no such file. Give the path of a .gguf file"):
        read_gguf(tmp_path / "nothing.gguf")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 bytes are too few"),
        (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), r"version 1; versions \(2, 3\)"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "tensor list: 1152921504606846976 items"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "metadata: 1152921504606846976 items"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + bytes(20), "a string: 4611686018427387904 items"),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 0, 1, 1, b"k", 99) + bytes(20), "'k' has the unknown value type 99"),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", 9, 8, 1 << 61), "k: 2305843009213693952 items"),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 0, 1, 1, b"k", 9, 9, 1), "array of value type 9"),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 1, 0, 1, b"t", 9) + bytes(90), "has 9 dimensions"),
        (b"GGUF" + struct.pack("<IQQQcIQIQ", 3, 1, 0, 1, b"t", 1, 1 << 62, 0, 0), "claims bytes"),
        (b"GGUF" + struct.pack("<IQQQcIQIQ", 3, 1, 0, 1, b"t", 1, 0, 0, 0), "empty shape"),
        (b"GGUF" + struct.pack("<IQQQcIQIQ", 3, 1, 0, 1, b"t", 1, 33, 2, 0), "do not divide into Q4_0 blocks of 32"),
        (b"GGUF" + struct.pack("<IQQQcIQIQ", 3, 1, 0, 1, b"t", 1, 32, 777, 0), "unknown tensor type 777"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * struct.pack("<QcIB", 1, b"k", 0, 5), "'k' appears twice"),
    ],
)
def test_broken_files_are_refused_before_memory_is_taken(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFolderError, match=words):
        read_gguf(path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cut_file_is_refused(tiny: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = tiny.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:cut])
    tensors = read_gguf(tiny).tensors.values()
    last_byte = max(tensor.data.ctypes.data + tensor.data.nbytes for tensor in tensors)
    first = min(tensor.data.ctypes.data for tensor in tensors)
    needed = len(whole) - (-(last_byte - first) % 32)  # the writer pads the end, which nobody reads
    if cut < needed:
        with pytest.raises(ModelFolderError):
            read_gguf(path)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_never_crash(tiny: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(tiny.read_bytes()[:8192])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 9))
        patch = data.draw(
            st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff" * 8), st.just(struct.pack("<Q", 1 << 40)))
        )
        content[at : at + len(patch)] = patch
    path = tmp_path / "changed.gguf"
    path.write_bytes(bytes(content) + tiny.read_bytes()[8192:])
    try:
        read_gguf(path)
    except ModelFolderError as error:
        assert str(path) in str(error)
