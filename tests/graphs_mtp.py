"""Tiny models with a multi-token prediction head: a main graph that gives hidden states, and a head that takes them.

main, head = mtp_tables(tmp_path, seed=0)         # without layers: what follows can be worked out by hand
main = mtp_llama(tmp_path)                        # a tiny llama and a head of one layer in its folder
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import DTypeLike
from onnx import TensorProto, helper, numpy_helper

from tests.tiny import TinySizes, tiny_model_folder

VOCABULARY, HIDDEN = 8, 6
HEAD = {
    "filename": "mtp.onnx",
    "main_hidden_states": "hidden_states",
    "inputs": {"hidden_states": "hidden_states"},
    "outputs": {"logits": "logits", "hidden_states": "hidden_states_out"},
}


def mtp_tables(
    path: Path,
    seed: int,
    *,
    noise: float = 0.1,
    dtype: DTypeLike = np.float32,
    feeds_back: bool = True,
    hidden: int = HIDDEN,
) -> tuple[Path, Path]:
    """A main model whose logits follow from the last token, and a head that guesses the same, the worse the more
    `noise` there is. The folders of both; the main one holds the head, too."""
    rng = np.random.default_rng(seed)
    embedding, mix = rng.standard_normal((VOCABULARY, hidden)), noise * rng.standard_normal((hidden, hidden))
    out = 2 * rng.standard_normal((hidden, VOCABULARY))
    out[:, -1] = 0  # the end token comes seldom
    main, head = path / "main", path / "head"
    for folder in (main, head):
        folder.mkdir(parents=True)
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["hidden_states"], axis=0),
        helper.make_node("MatMul", ["hidden_states", "out"], ["logits"]),
    ]
    _save(main / "model.onnx", nodes, {"embedding": embedding, "out": out}, [], ["hidden_states"], dtype)
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["of_token"], axis=0),
        helper.make_node("MatMul", ["hidden_states", "mix"], ["of_hidden"]),
        helper.make_node("Add", ["of_token", "of_hidden"], ["hidden_states_out"]),
        helper.make_node("MatMul", ["hidden_states_out", "out"], ["logits"]),
    ]
    given = ["hidden_states_out"] if feeds_back else []
    weights = {"embedding": embedding, "mix": mix, "out": out}
    for folder in (main, head):
        _save(folder / "mtp.onnx", nodes, weights, ["hidden_states"], given, dtype)
    own = HEAD | {"outputs": {"logits": "logits"} | ({"hidden_states": given[0]} if given else {})}
    _write_config(main, _section("model.onnx", [], ["hidden_states"]), {"mtp": own})
    _write_config(head, _section("mtp.onnx", ["hidden_states"], given), {})
    return main, head


def mtp_llama(path: Path, seed: int = 0) -> Path:
    """A tiny llama, whose folder holds a head of one layer with keys and values of its own."""
    main = tiny_model_folder(path / "main", seed=seed, extra_options={"prune_lm_head": False})
    head = tiny_model_folder(
        path / "head", seed=seed + 1, sizes=TinySizes(num_layers=1), extra_options={"prune_lm_head": False}
    )
    _change(main / "model.onnx", main / "model.onnx", taken=None, given="hidden_states")
    _change(head / "model.onnx", main / "mtp.onnx", taken="hidden_states", given="hidden_states_out")
    config = json.loads((main / "genai_config.json").read_text())
    config["model"]["mtp"] = HEAD | {"num_hidden_layers": 1, "num_key_value_heads": 1, "head_size": 32}
    config["model"]["decoder"]["outputs"]["hidden_states"] = "hidden_states"
    (main / "genai_config.json").write_text(json.dumps(config))
    return main


def _change(source: Path, target: Path, *, taken: str | None, given: str) -> None:
    """Add hidden states: to what the first layer reads, and as an output."""
    model = onnx.load(source)
    graph, size = model.graph, TinySizes().hidden_size
    shape = ["batch_size", "sequence_length", size]
    if taken is not None:
        place = next(i for i, node in enumerate(graph.node) if "embedding/output" in node.output)
        graph.node[place].output[0] = "embedding/alone"
        graph.node.insert(place + 1, helper.make_node("Add", ["embedding/alone", taken], ["embedding/output"]))
        graph.input.append(helper.make_tensor_value_info(taken, TensorProto.FLOAT, shape))
    graph.node.append(helper.make_node("Identity", ["final_norm"], [given]))
    graph.output.append(helper.make_tensor_value_info(given, TensorProto.FLOAT, shape))
    onnx.save(model, target)


def _save(
    path: Path, nodes: list[Any], weights: dict[str, Any], taken: list[str], given: list[str], dtype: DTypeLike
) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    hidden = len(weights["out"])
    graph = helper.make_graph(
        nodes,
        "mtp",
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT32, ["B", "S"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["B", "T"]),
            *(helper.make_tensor_value_info(name, kind, ["B", "S", hidden]) for name in taken),
        ],
        [
            helper.make_tensor_value_info("logits", kind, ["B", "S", VOCABULARY]),
            *(helper.make_tensor_value_info(name, kind, ["B", "S", hidden]) for name in given),
        ],
        [numpy_helper.from_array(value.astype(dtype), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    onnx.save(model, path)


def _section(filename: str, taken: list[str], given: list[str]) -> dict[str, Any]:
    return {
        "filename": filename,
        "head_size": 1,
        "hidden_size": HIDDEN,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": 0,
        "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"} | {name: name for name in taken},
        "outputs": {"logits": "logits"} | ({"hidden_states": given[0]} if given else {}),
    }


def _write_config(folder: Path, decoder: dict[str, Any], changes: dict[str, Any]) -> None:
    model = {
        "type": "llama",
        "vocab_size": VOCABULARY,
        "context_length": 128,
        "bos_token_id": 0,
        "eos_token_id": [VOCABULARY - 1],
        "pad_token_id": 0,
        "decoder": decoder,
    }
    (folder / "genai_config.json").write_text(json.dumps({"model": model | changes, "search": {"max_length": 128}}))
