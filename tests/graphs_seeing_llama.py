"""The tiny llama with an embedding in a file of its own and a graph for images: fused attention behind features.

folder = llama_that_sees(tmp_path / "model", shares=True)       # past and present are one memory there
inputs = llama_inputs(library, [0.5])
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.graphs import Graph
from tests.graphs_seeing import CHANNELS, named
from tests.graphs_split import EMBEDDED, SIZES
from tests.graphs_stages import FLOAT, save
from tests.tiny import tiny_model_folder

IMAGE = 3


def llama_that_sees(path: Path, *, shares: bool) -> Path:
    """A Gemma 3 folder, whose images have one feature each, at the places of token IMAGE."""
    model = onnx.load(tiny_model_folder(path, extra_options={"prune_lm_head": False}) / "model.onnx")
    for node in model.graph.node:  # the length of the new tokens is taken from their embeddings
        if node.op_type == "Shape" and node.input[0] == "input_ids":
            node.input[0] = EMBEDDED
    hidden: list[str | int | None] = ["batch_size", "sequence_length", SIZES.hidden_size]
    model.graph.value_info.append(helper.make_tensor_value_info(EMBEDDED, TensorProto.FLOAT, hidden))
    cache = [f"{layer}.{part}" for layer in range(SIZES.num_layers) for part in ("key", "value")]
    past, present = [f"past_key_values.{name}" for name in cache], [f"present.{name}" for name in cache]
    taken = onnx.utils.Extractor(model)
    onnx.save(taken.extract_model([EMBEDDED, "attention_mask", *past], ["logits", *present]), path / "decoder.onnx")
    onnx.save(_with_features(taken.extract_model(["input_ids"], [EMBEDDED])), path / "embedding.onnx")
    (path / "model.onnx").unlink()
    g = Graph(5)
    pixels = g.op("Reshape", "pixel_values", g.constant([-1, CHANNELS]))
    g.op("Tanh", g.op("MatMul", pixels, g.weight(CHANNELS, SIZES.hidden_size)), name="image_features")
    features = [("image_features", FLOAT, ["N", SIZES.hidden_size])]
    save(path, "vision", g, [("pixel_values", FLOAT, ["I", CHANNELS, 1, 1])], features)
    config = json.loads((path / "genai_config.json").read_text())
    sections = config["model"]
    sections |= {"type": "gemma3", "image_token_id": IMAGE}
    sections["decoder"]["filename"] = "decoder.onnx"
    sections["decoder"]["inputs"]["inputs_embeds"] = EMBEDDED
    names = {"input_ids": "input_ids", "image_features": "image_features"}
    given = {"inputs_embeds": "inputs_embeds"}
    sections["embedding"] = {"filename": "embedding.onnx", "inputs": names, "outputs": given}
    sections["vision"] = {"filename": "vision.onnx", "inputs": {"pixel_values": "pixel_values"}}
    config["search"]["past_present_share_buffer"] = shares
    (path / "genai_config.json").write_text(json.dumps(config))
    return path


def _with_features(model: onnx.ModelProto) -> onnx.ModelProto:
    """The embedding, with features in the places of token IMAGE."""
    graph, size = model.graph, SIZES.hidden_size
    next(node for node in graph.node if EMBEDDED in node.output).output[0] = "rows"
    constants: dict[str, Any] = {"image": IMAGE, "one": 1, "last": [2], "none": np.zeros((1, size), np.float32)}
    graph.initializer.extend(numpy_helper.from_array(np.array(value), name) for name, value in constants.items())
    make = helper.make_node
    graph.node.extend(
        [
            make("Equal", ["input_ids", "image"], ["here"]),
            make("Cast", ["here"], ["counted"], to=TensorProto.INT64),
            make("CumSum", ["counted", "one"], ["sums"]),
            make("Mul", ["sums", "counted"], ["index"]),
            make("Concat", ["none", "image_features"], ["features"], axis=0),
            make("Gather", ["features", "index"], ["seen"]),
            make("Unsqueeze", ["here", "last"], ["wide"]),
            make("Where", ["wide", "seen", "rows"], ["inputs_embeds"]),
        ]
    )
    graph.input.append(helper.make_tensor_value_info("image_features", TensorProto.FLOAT, ["N", size]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("inputs_embeds", TensorProto.FLOAT, ["B", "S", size]))
    return model


def llama_inputs(library: Any, values: list[float]) -> Any:
    """A prompt with an image for each of `values`, as `library`'s NamedTensors."""
    ids = [5, *(token for _ in values for token in (IMAGE, 6)), 7]
    pixels = np.sin(np.arange(len(values) * CHANNELS, dtype=np.float32) + np.repeat(values, CHANNELS))
    return named(
        library,
        {
            "input_ids": np.array([ids], np.int32),
            "pixel_values": pixels.astype(np.float32).reshape(-1, CHANNELS, 1, 1),
            "num_image_tokens": np.ones(len(values), np.int64),
        },
    )
