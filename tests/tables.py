"""The tiniest language models: the next token's logits are a row of a table, chosen by the last token. No layers, no
cache; what a test expects can be read off the table.

    folder = table_model(tmp_path / "model", follow({1: 2, 2: 1}))
    folder = table_pair(tmp_path / "pair", target, draft)              # a model with a draft
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Table = NDArray[np.float32]  # [V, V] logits of the next token by the last one; the last token of the vocabulary ends


def follow(next_of: dict[int, int], vocabulary: int = 10) -> Table:
    """A table in which each token is surely followed by the given one, others by the next number."""
    table = np.full((vocabulary, vocabulary), -20.0, np.float32)
    for token in range(vocabulary):
        table[token, next_of.get(token, (token + 1) % (vocabulary - 1))] = 20.0
    return table


def random_table(seed: int, vocabulary: int = 8, *, ends: bool = False) -> Table:
    """Any token may follow any other; the end token seldom, unless `ends`."""
    table = (np.random.default_rng(seed).standard_normal((vocabulary, vocabulary)) * 3).astype(np.float32)
    if not ends:
        table[:, -1] -= 20
    return table


def table_model(path: Path, table: Table, *, last_only: bool = False) -> Path:
    """A model folder. `last_only`: the graph gives the last position's logits only."""
    path.mkdir(parents=True)
    _save(path / "model.onnx", table, last_only)
    _write_config(path, len(table), {})
    return path


def table_pair(path: Path, target: Table, draft: Table, *, last_only: bool = False) -> Path:
    """A model folder with a draft."""
    path.mkdir(parents=True)
    _save(path / "model.onnx", target, last_only)
    _save(path / "draft.onnx", draft, last_only)
    _write_config(path, len(target), {"type": "speculative", "draft": _decoder("draft.onnx")})
    return path


def _save(path: Path, table: Table, last_only: bool) -> None:
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["rows"], axis=0)]
    constants = [numpy_helper.from_array(table, "table")]
    if last_only:
        constants.append(numpy_helper.from_array(np.array([-1]), "last"))
        nodes.append(helper.make_node("Gather", ["rows", "last"], ["logits"], axis=1))
    else:
        nodes.append(helper.make_node("Identity", ["rows"], ["logits"]))
    graph = helper.make_graph(
        nodes,
        "table",
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["B", "S"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["B", "T"]),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", 1 if last_only else "S", len(table)])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    onnx.save(model, path)


def _decoder(filename: str) -> dict[str, Any]:
    return {
        "filename": filename,
        "head_size": 1,
        "hidden_size": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": 0,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"},
        "outputs": {"logits": "logits"},
    }


def _write_config(path: Path, vocabulary: int, changes: dict[str, Any]) -> None:
    model = {
        "type": "llama",
        "vocab_size": vocabulary,
        "context_length": 128,
        "bos_token_id": 0,
        "eos_token_id": [vocabulary - 1],
        "pad_token_id": 0,
        "decoder": _decoder("model.onnx"),
    }
    (path / "genai_config.json").write_text(json.dumps({"model": model | changes, "search": {"max_length": 128}}))
