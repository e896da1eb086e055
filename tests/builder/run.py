"""Run a model folder's graph directly, without any runtime of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray


class Runner:
    """A session and its cache: `step` feeds token ids and returns logits."""

    def __init__(self, folder: Path, threads: int = 1, filename: str = "model.onnx") -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(folder / filename, options, ["CPUExecutionProvider"])
        self.past: dict[str, NDArray[np.float32]] = {}

    def step(self, ids: NDArray[np.int64], mask: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """ids [B, S], mask [B, past + S] (all ones unless given) -> logits [B, S or 1, vocabulary]."""
        if not self.past:
            self.past = {i.name: self._empty(i, len(ids)) for i in self.session.get_inputs() if "past" in i.name}
        width = next(iter(self.past.values())).shape[2] + ids.shape[1]
        mask = np.ones((len(ids), width), np.int64) if mask is None else mask
        logits, *present = self.session.run(None, {"input_ids": ids, "attention_mask": mask, **self.past})
        names = [output.name.replace("present", "past_key_values") for output in self.session.get_outputs()[1:]]
        self.past = dict(zip(names, present, strict=True))
        return np.asarray(logits)

    def _empty(self, node: Any, rows: int) -> NDArray[np.float32]:
        return np.zeros((rows, node.shape[1], 0, node.shape[3]), np.float32)


def intermediate(folder: Path, name: str, ids: Sequence[int]) -> NDArray[np.float32]:
    """A tensor inside the graph, for one run over all ids: [S, width]."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    onnx.save(model, folder / "probe.onnx")
    runner = Runner(folder, filename="probe.onnx")
    runner.step(np.asarray([ids], dtype=np.int64))
    return runner.past[name][0]


def logits_of(folder: Path, ids: Sequence[int]) -> NDArray[np.float32]:
    """One run over all ids: [S or 1, vocabulary]."""
    return Runner(folder).step(np.asarray([ids], dtype=np.int64))[0]
