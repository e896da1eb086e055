"""The tiny llama, whose attention counts the mask's ones (GroupQueryAttention), in shapes that keep its keys and values
out of one slab: in several files, or with a state of one size beside them.

    folder = llama_in_stages(tmp_path / "stages")                   # embeddings, transformer, head
    folder = llama_with_convolution(tmp_path / "hybrid")            # a layer of convolution before the first
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.tiny import TinySizes, tiny_model_folder

KEPT = 3  # tokens that the convolution looks back
EMBEDDED, NORMED = "embedding/output", "final_norm"
SIZES = TinySizes()


def llama_in_stages(path: Path) -> Path:
    """A decoder-pipeline of three files; the head reads every position."""
    model = _tiny(path)
    for node in model.graph.node:  # the length of the new tokens is taken from what the transformer is given
        if node.op_type == "Shape" and node.input[0] == "input_ids":
            node.input[0] = EMBEDDED
    hidden: list[str | int | None] = ["batch_size", "sequence_length", SIZES.hidden_size]
    for name in (EMBEDDED, NORMED):
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, hidden))
    cache = [f"{layer}.{part}" for layer in range(SIZES.num_layers) for part in ("key", "value")]
    past, present = [f"past_key_values.{name}" for name in cache], [f"present.{name}" for name in cache]
    parts = {
        "embeddings": (["input_ids"], [EMBEDDED]),
        "transformer": ([EMBEDDED, "attention_mask", *past], [NORMED, *present]),
        "head": ([NORMED], ["logits"]),
    }
    taken = onnx.utils.Extractor(model)
    for name, (inputs, outputs) in parts.items():
        onnx.save(taken.extract_model(inputs, outputs), path / f"{name}.onnx")
    (path / "model.onnx").unlink()
    stages = {
        name: {"filename": f"{name}.onnx", "inputs": inputs, "outputs": outputs}
        for name, (inputs, outputs) in parts.items()
    }

    def change(sections: dict[str, Any]) -> None:
        sections["type"] = "decoder-pipeline"
        sections["decoder"].pop("filename")
        sections["decoder"]["pipeline"] = [stages]

    return _config(path, change)


def llama_with_convolution(path: Path) -> Path:
    """Each embedding with the KEPT ones before it, which are a state of one size."""
    model = _tiny(path)
    graph = model.graph
    place = next(i for i, node in enumerate(graph.node) if EMBEDDED in node.output)
    graph.node[place].output[0] = "embedding/alone"
    ends = {"from": [-KEPT], "to": [2**31], "axis": [2]}
    graph.initializer.extend(numpy_helper.from_array(np.array(value), f"conv/{name}") for name, value in ends.items())
    weights = np.full((SIZES.hidden_size, 1, KEPT + 1), 0.3, np.float32)
    graph.initializer.append(numpy_helper.from_array(weights, "conv/weights"))
    nodes = [
        helper.make_node("Transpose", ["embedding/alone"], ["conv/new"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["past_conv.2", "conv/new"], ["conv/row"], axis=2),
        helper.make_node("Slice", ["conv/row", "conv/from", "conv/to", "conv/axis"], ["present_conv.2"]),
        helper.make_node("Conv", ["conv/row", "conv/weights"], ["conv/mixed"], group=SIZES.hidden_size),
        helper.make_node("Transpose", ["conv/mixed"], ["conv/back"], perm=[0, 2, 1]),
        helper.make_node("Add", ["embedding/alone", "conv/back"], [EMBEDDED]),
    ]
    for offset, node in enumerate(nodes):
        graph.node.insert(place + 1 + offset, node)
    state: list[str | int | None] = ["batch_size", SIZES.hidden_size, KEPT]
    graph.input.append(helper.make_tensor_value_info("past_conv.2", TensorProto.FLOAT, state))
    graph.output.append(helper.make_tensor_value_info("present_conv.2", TensorProto.FLOAT, state))
    onnx.save(model, path / "model.onnx")

    def change(sections: dict[str, Any]) -> None:
        sections["type"] = "lfm2"
        decoder = sections["decoder"]
        decoder["num_hidden_layers"] = SIZES.num_layers + 1
        decoder["layer_types"] = ["full_attention"] * SIZES.num_layers + ["conv"]
        decoder["inputs"]["past_conv_names"] = "past_conv.%d"
        decoder["outputs"]["present_conv_names"] = "present_conv.%d"

    return _config(path, change)


def _tiny(path: Path) -> onnx.ModelProto:
    return onnx.load(tiny_model_folder(path, extra_options={"prune_lm_head": False}) / "model.onnx")


def _config(path: Path, change: Any) -> Path:
    config = json.loads((path / "genai_config.json").read_text())
    change(config["model"])
    config["search"]["past_present_share_buffer"] = False
    (path / "genai_config.json").write_text(json.dumps(config))
    return path
