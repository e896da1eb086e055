"""A tiny random llama with local attention: a token sees only the last few, in every layer or in some."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path

import onnx

from tests.tiny import TinySizes, tiny_model_folder


def local_folder(
    place: Path,
    window: int,
    *,
    layers: Container[int] = range(99),
    stated: int | None = None,
    context_length: int = 600,
) -> Path:
    """A folder whose attention in `layers` has the window; its config says `stated`, by default the same."""
    sizes = TinySizes(context_length=context_length)
    folder = tiny_model_folder(place, sizes=sizes, extra_options={"prune_lm_head": False})
    model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    attentions = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    for layer, node in enumerate(attentions):
        if layer in layers:
            node.attribute.append(onnx.helper.make_attribute("local_window_size", window))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    file = folder / "genai_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    section = {"window_size": stated or window, "slide_key_value_cache": False, "slide_inputs": False}
    config["model"]["decoder"]["sliding_window"] = section
    file.write_text(json.dumps(config), encoding="utf-8")
    return folder
