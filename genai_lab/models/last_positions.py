"""Logits of a prompt's end only, from a graph that gives those of every position.

Receives a decoder's graph, its weights in a file beside it; returns it with one more input, which says from which
position on the head computes logits (0: from the first, -2: of the last two), or the reason why it is left alone. The
input has a value of its own, 0, so that a run which does not give it computes what it always did, bit for bit.
What a run wants is its caller's business.

The head, the last product with a matrix of the vocabulary's size, is a fifth of a small model's work on a prompt, and
who reads a prompt looks at its last position. One asks for two: ONNX Runtime's kernels take another numeric path for a
single row than for two or more, and with two the last one is what it was among many.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Final

import numpy as np

from genai_lab.models.graph_bytes import FLOAT, GraphBytes, Node

LOGITS_FROM: Final = "genai_lab.logits_from"  # int64 [1]: the first position with logits; < 0: from the end
EVERY, LAST_TWO = np.zeros(1, np.int64), np.full(1, -2, np.int64)
_POSITIONS: Final = "logits_positions"  # what the logits' axis is called then: it has no longer the input's length

MOST_BYTES = 16 << 20
"""A larger file has weights inside, and would be in memory several times."""

LEAST_WEIGHTS = 4_000_000
"""Of a head that is worth it. The edit takes 0.02 s a load; a head of 28 million weights takes 0.6 ms a token. So with
4 million that is won back in 300 tokens of prompts, and a toy's head is never worth it."""

_MICROSOFT: Final = "com.microsoft"
_HEADS: Final = {("", "MatMul"), (_MICROSOFT, "MatMulNBits"), (_MICROSOFT, "FusedMatMul")}
_BY_NUMBER: Final = {"Add", "Sub", "Mul", "Div", "Neg", "Tanh", "Where", "Clip", "Identity"}  # each number for itself
_FUSED_WITH_PRODUCT: Final = {"Transpose", "DequantizeLinear", "Cast"}


class LeftAlone(StrEnum):
    """Why a graph is as it was."""

    UNREADABLE = "it cannot be read, or is damaged: onnxruntime will say how"
    LARGE = "its file is so large that weights are inside"
    LAST_ONLY = "it gives no logits [rows, positions, vocabulary] of as many positions as it reads"
    SMALL = "its head is so small that nothing would be gained"
    OLD = "its format is too old for inputs that have a value of their own, or for Slice with inputs"
    NOT_FLOAT = "its logits are not float32: onnxruntime puts casts around such nodes, and would put them elsewhere"
    SHARED = "something else reads what is between its head and its logits"
    NO_HEAD = "behind its logits there is no product with a fixed matrix, or something that may mix positions"
    FUSED = "onnxruntime may join its head with the node before it, and could not any more"


def with_logits_from(source: Path | bytes, logits: str, head_weights: int) -> bytes | LeftAlone:
    """The graph of a file, or of its bytes, with the input LOGITS_FROM.

    Args:
        logits: the output's name.
        head_weights: how many there are, vocabulary * hidden size.
    """
    if head_weights < LEAST_WEIGHTS:
        return LeftAlone.SMALL
    try:
        data = _small_file(source)
        return LeftAlone.LARGE if data is None else _edited(GraphBytes(data), logits)
    except (OSError, ValueError, RecursionError):  # the last one: graphs in graphs without end
        return LeftAlone.UNREADABLE


def _small_file(source: Path | bytes) -> bytes | None:
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    if size > MOST_BYTES:
        return None
    return source if isinstance(source, bytes) else source.read_bytes()


def _edited(graph: GraphBytes, logits: str) -> bytes | LeftAlone:
    output = graph.output(logits)
    if output is None or len(output.shape) != 3 or isinstance(output.shape[1], int):
        return LeftAlone.LAST_ONLY
    if output.elem_type != FLOAT:
        return LeftAlone.NOT_FLOAT
    if graph.ir_version < 4 or graph.opset < 11:
        return LeftAlone.OLD
    path = _Walk(graph).back_from(logits)
    if isinstance(path, LeftAlone):
        return path
    changed = {name for place in path for name in graph.nodes[place].outputs}
    return graph.sliced_before(path[0], LOGITS_FROM, logits, _POSITIONS, changed)


class _Walk:
    """From the logits back to the head."""

    def __init__(self, graph: GraphBytes) -> None:
        self.nodes, self.fixed = graph.nodes, graph.initializers
        self.makers = {name: place for place, node in enumerate(self.nodes) for name in node.outputs if name}
        self.moving = graph.inputs - set(self.fixed)  # names of what follows from a run's inputs
        for node in self.nodes:
            if any(name in self.moving for name in node.inputs) or node.graphs:
                self.moving.update(node.outputs)
        self.uses = Counter(graph.names_read())

    def back_from(self, logits: str) -> list[int] | LeftAlone:
        """Places of the head, and of what makes its product the logits."""
        path: list[int] = []
        name = logits
        while (place := self.makers.get(name)) is not None:
            node = self.nodes[place]
            if self.uses[name] != 1 or len(node.outputs) != 1:
                return LeftAlone.SHARED
            path.insert(0, place)
            if (node.domain, node.op_type) in _HEADS:
                return self._wrong(node) or path
            moving = [each for each in node.inputs if each in self.moving]
            fixed = [each for each in node.inputs if each not in self.moving]
            if node.domain or node.op_type not in _BY_NUMBER or len(moving) != 1 or not all(map(self._is_one, fixed)):
                return LeftAlone.NO_HEAD
            name = moving[0]
        return LeftAlone.NO_HEAD

    def _wrong(self, head: Node) -> LeftAlone | None:
        """Why positions cannot be taken from the head's first input; None: they can."""
        given = [name in self.moving for name in head.inputs if name]
        if given != [True] + [False] * (len(given) - 1) or head.integer("transA") or head.integer("transBatchA"):
            return LeftAlone.NO_HEAD
        if head.inputs[0] not in self.makers:
            return LeftAlone.NO_HEAD
        before = self.nodes[self.makers[head.inputs[0]]]
        scales = before.op_type in ("Mul", "Div") and any(
            prod(self.fixed.get(name, (2,))) == 1 for name in before.inputs
        )
        return LeftAlone.FUSED if scales or before.op_type in _FUSED_WITH_PRODUCT else None

    def _is_one(self, name: str) -> bool:
        """Whether a fixed operand is the same for every position: its axis before the last, if any, has the size 1."""
        dims = self.fixed.get(name) if name else ()
        if dims is None and name in self.makers and self.nodes[self.makers[name]].op_type == "Constant":
            dims = self.nodes[self.makers[name]].tensor_dims("value")
        return dims is not None and len(dims) <= 3 and (len(dims) < 2 or dims[-2] == 1)
