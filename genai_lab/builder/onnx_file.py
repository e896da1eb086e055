"""Write an ONNX model whose weights stream into a file beside it.

Receives nodes, constants and weights one by one. Returns nothing: `save` leaves `model.onnx` and `model.onnx.data` in
the folder. It does not know what the nodes compute.

Weights are written as they arrive and then forgotten, so that the whole model is never in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

OPSET: Final = 21
MICROSOFT: Final = "com.microsoft"
IR_VERSION: Final = 10
ALIGNMENT: Final = 64  # bytes; enough for any vector load from the mapped file

Shape = Sequence[int | str]


class OnnxWriter:
    """One graph being written; a context manager that closes the weights' file."""

    def __init__(self, folder: Path, filename: str = "model.onnx") -> None:
        self.path = folder / filename
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.initializers: dict[str, TensorProto] = {}
        self._data_name = filename + ".data"
        self._data: BinaryIO = open(folder / self._data_name, "wb")  # noqa: SIM115  closed by __exit__

    def __enter__(self) -> OnnxWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()

    def input(self, name: str, dtype: int, shape: Shape) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: int, shape: Shape) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def node(
        self, op: str, inputs: Sequence[str], output: str | Sequence[str], domain: str = "", **attributes: Any
    ) -> str:
        """Add a node and return the name of its first output. The node is named after that output."""
        outputs = [output] if isinstance(output, str) else list(output)
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def constant(self, value: int | list[int] | NDArray[Any]) -> str:
        """A small integer constant, kept inside the graph; equal ones are stored once."""
        array = np.asarray(value, dtype=np.int64)
        name = "/constants/" + str(array.tolist()).replace(" ", "")
        if name not in self.initializers:
            self.initializers[name] = onnx.numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str, values: NDArray[Any]) -> str:
        """Append a weight to the data file."""
        values = np.ascontiguousarray(values)
        self._data.write(b"\0" * (-self._data.tell() % ALIGNMENT))
        offset = self._data.tell()
        self._data.write(values.data.cast("B"))
        self._place(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape, offset, values.nbytes)
        return name

    def same_bytes(self, name: str, weight: str, shape: Sequence[int]) -> str:
        """Another name and shape for a weight that is already in the data file."""
        source = self.initializers[weight]
        place = {entry.key: int(entry.value) for entry in source.external_data if entry.key != "location"}
        self._place(name, source.data_type, shape, place["offset"], place["length"])
        return name

    def _place(self, name: str, dtype: int, shape: Sequence[int], offset: int, length: int) -> None:
        if name in self.initializers:
            raise ValueError(f"weight {name!r} is written twice")
        tensor = TensorProto(name=name, data_type=dtype, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", self._data_name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.initializers[name] = tensor

    def save(self, graph_name: str, model_name: str = "") -> None:
        """Write the graph; `model_name` is what a person calls the model, kept in the file's metadata."""
        graph = helper.make_graph(self.nodes, graph_name, self.inputs, self.outputs, list(self.initializers.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="genai_lab.builder")
        helper.set_model_props(model, {"name": model_name})
        self.path.write_bytes(model.SerializeToString())
