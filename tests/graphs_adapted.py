"""Model folders that an adapter can change, and adapter files.

folder = adapted(tiny_model_folder(tmp_path / "model"))         # takes "adapter_a"
file = export_adapter(tmp_path / "a.onnx_adapter", values)      # gives it
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper


def adapted(path: Path, filename: str = "model.onnx") -> Path:
    """Let the logits of a folder's graph have the input "adapter_a" [V] added, which is zeros when nobody gives it."""
    model = onnx.load(path / filename)
    graph = model.graph
    logits = next(output for output in graph.output if output.name == "logits")
    size = logits.type.tensor_type.shape.dim[2].dim_value
    last = next(node for node in graph.node if "logits" in node.output)
    last.output[0] = "logits/plain"
    graph.node.append(helper.make_node("Add", ["logits/plain", "adapter_a"], ["logits"]))
    graph.initializer.append(numpy_helper.from_array(np.zeros(size, np.float32), "adapter_a"))
    graph.input.append(helper.make_tensor_value_info("adapter_a", TensorProto.FLOAT, [size]))
    onnx.save(model, path / filename)
    return path


def export_adapter(path: Path, values: NDArray[np.float32]) -> Path:
    """Write an adapter file that gives `values` as "adapter_a"."""
    adapter = onnxruntime.AdapterFormat()
    adapter.set_adapter_version(1)
    adapter.set_model_version(1)
    adapter.set_parameters({"adapter_a": onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(values, 1)})
    adapter.export_adapter(str(path))
    return path
