"""What an ONNX file says about its graph, and the file with small changes, without the package onnx.

Receives the bytes of a file. Returns names, shapes and nodes, and bytes again. The numbers of fields are those of
onnx.proto, which keeps them for ever. It does not know what the nodes compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from genai_lab.models.wire import Field, fields, inner, message, number_of, numbers_of, text_of

FLOAT, INT64 = 1, 7
Shape = tuple[int | str | None, ...]

_IR_VERSION, _GRAPH, _OPSETS = 1, 7, 8  # of a model
_NODE, _INITIALIZER, _INPUT, _OUTPUT, _VALUE_INFO = 1, 5, 11, 12, 13  # of a graph
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 1, 2, 3, 4, 5, 7
_ATTRIBUTE_NAME, _I, _T, _G, _GRAPHS = 1, 3, 5, 6, 11
_DIMS, _DATA_TYPE, _TENSOR_NAME, _RAW_DATA = 1, 2, 8, 9
_VALUE_NAME, _TYPE, _TENSOR_TYPE, _ELEM_TYPE, _SHAPE, _DIM, _DIM_VALUE, _DIM_NAME = 1, 2, 1, 1, 2, 1, 1, 2


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a graph."""

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[bytes, ...]
    graphs: tuple[bytes, ...]  # inside the node, such as the branches of If

    def integer(self, name: str) -> int:
        """The attribute `name`; 0 without it."""
        found = (number_of(each, _I) for each in self.attributes if text_of(each, _ATTRIBUTE_NAME) == name)
        return next(found, None) or 0

    def tensor_dims(self, name: str) -> tuple[int, ...] | None:
        """The shape of the attribute `name`; None: it is no tensor."""
        tensors = (inner(each, _T) for each in self.attributes if text_of(each, _ATTRIBUTE_NAME) == name)
        return next((numbers_of(tensor, _DIMS) for found in tensors for tensor in found), None)


@dataclass(frozen=True, slots=True)
class Output:
    """What a graph says about one of its outputs."""

    elem_type: int
    shape: Shape


class GraphBytes:
    """The graph of a file.

    Raises:
        ValueError: this is no whole ONNX file. (Parts are looked at when they are asked for.)
    """

    def __init__(self, data: bytes) -> None:
        self._model = tuple(fields(data))
        graphs = [value for number, value in self._model if number == _GRAPH and isinstance(value, bytes)]
        if len(graphs) != 1:
            raise ValueError(f"an ONNX file has one graph, this one has {len(graphs)}")
        self._graph = tuple(fields(graphs[0]))
        self.ir_version = number_of(data, _IR_VERSION) or 0
        sets = inner(data, _OPSETS)
        self.opset = next((number_of(each, 2) or 0 for each in sets if text_of(each, 1) in ("", "ai.onnx")), 0)

    @cached_property
    def nodes(self) -> list[Node]:
        """In the order in which they can be run."""
        return [_node(each) for each in self._parts(_NODE)]

    @cached_property
    def inputs(self) -> set[str]:
        """Names of inputs, those with a value of their own included."""
        return {text_of(each, _VALUE_NAME) for each in self._parts(_INPUT)}

    @cached_property
    def initializers(self) -> dict[str, tuple[int, ...]]:
        """{name: shape}"""
        return {text_of(each, _TENSOR_NAME): numbers_of(each, _DIMS) for each in self._parts(_INITIALIZER)}

    def output(self, name: str) -> Output | None:
        """None: there is none of that name, or it is no tensor with a shape."""
        return next((_output(each) for each in self._parts(_OUTPUT) if text_of(each, _VALUE_NAME) == name), None)

    def names_read(self) -> Iterator[str]:
        """Every name that a node reads, those inside of nodes too, and the outputs: as often as it is read."""
        yield from _names_read(self.nodes)
        yield from (text_of(each, _VALUE_NAME) for each in self._parts(_OUTPUT))

    def sliced_before(self, place: int, name: str, output: str, positions: str, changed: set[str]) -> bytes:
        """The file with a Slice of the axis before the last in front of the first input of the node at `place`.

        Args:
            name: of a new input, int64 [1], where the slice begins; its own value is 0. Other new names begin with it.
            output: the graph's output whose axis 1 is called `positions` then.
            changed: names of tensors whose shapes the graph may state, and should not any more.
        """
        end, axis, sliced = (f"{name}.{word}" for word in ("end", "axis", "sliced"))
        reads = [(_NODE_INPUT, each) for each in (self.nodes[place].inputs[0], name, end, axis)]
        cut = message(*reads, (_NODE_OUTPUT, sliced), (_NODE_NAME, sliced), (_OP_TYPE, "Slice"))
        graph: list[Field] = []
        nodes = 0
        for number, value in self._graph:
            if not isinstance(value, bytes) or (number == _VALUE_INFO and text_of(value, _VALUE_NAME) in changed):
                continue  # (a graph has no numbers)
            if number == _OUTPUT and text_of(value, _VALUE_NAME) == output and (said := _output(value)) is not None:
                value = _value_info(output, said.elem_type, (said.shape[0], positions, *said.shape[2:]))
            elif number == _NODE:
                if nodes == place:
                    graph.append((_NODE, cut))
                    value = _reading(value, sliced)
                nodes += 1
            graph.append((number, value))
        graph.append((_INPUT, _value_info(name, INT64, (1,))))
        graph += [(_INITIALIZER, _one(each, value)) for each, value in ((name, 0), (end, 2**63 - 1), (axis, -2))]
        whole = message(*graph)
        return message(*((number, whole if number == _GRAPH else value) for number, value in self._model))

    def _parts(self, number: int) -> Iterator[bytes]:
        return (value for found, value in self._graph if found == number and isinstance(value, bytes))


def _node(data: bytes) -> Node:
    names: dict[int, list[str]] = {_NODE_INPUT: [], _NODE_OUTPUT: [], _OP_TYPE: [""], _DOMAIN: [""]}
    attributes, graphs = [], []
    for number, value in fields(data):
        if isinstance(value, bytes) and number in names:
            names[number].append(value.decode())
        elif isinstance(value, bytes) and number == _ATTRIBUTE:
            attributes.append(value)
            graphs += [part for kind, part in fields(value) if kind in (_G, _GRAPHS) and isinstance(part, bytes)]
    op_type, domain = names[_OP_TYPE][-1], names[_DOMAIN][-1]
    inputs, outputs = tuple(names[_NODE_INPUT]), tuple(names[_NODE_OUTPUT])
    return Node(op_type, "" if domain == "ai.onnx" else domain, inputs, outputs, tuple(attributes), tuple(graphs))


def _names_read(nodes: Iterable[Node]) -> Iterator[str]:
    for node in nodes:
        yield from node.inputs
        for graph in node.graphs:
            yield from _names_read(_node(each) for each in inner(graph, _NODE))
            yield from (text_of(each, _VALUE_NAME) for each in inner(graph, _OUTPUT))


def _output(data: bytes) -> Output | None:
    for kind in inner(data, _TYPE):
        for tensor in inner(kind, _TENSOR_TYPE):
            for shape in inner(tensor, _SHAPE):
                sizes = tuple(
                    number_of(dim, _DIM_VALUE) or text_of(dim, _DIM_NAME) or None for dim in inner(shape, _DIM)
                )
                return Output(number_of(tensor, _ELEM_TYPE) or 0, sizes)
    return None


def _reading(node: bytes, name: str) -> bytes:
    """The node with another first input."""
    parts = list(fields(node))
    parts[[number for number, _value in parts].index(_NODE_INPUT)] = (_NODE_INPUT, name.encode())
    return message(*parts)


def _value_info(name: str, elem_type: int, shape: Shape) -> bytes:
    dims = ((_DIM, message() if size is None else message(_size(size))) for size in shape)
    tensor = message((_ELEM_TYPE, elem_type), (_SHAPE, message(*dims)))
    return message((_VALUE_NAME, name), (_TYPE, message((_TENSOR_TYPE, tensor))))


def _size(size: int | str) -> tuple[int, int | str]:
    return (_DIM_VALUE, size) if isinstance(size, int) else (_DIM_NAME, size)


def _one(name: str, value: int) -> bytes:
    """A tensor int64 [1]."""
    raw = value.to_bytes(8, "little", signed=True)
    return message((_DIMS, 1), (_DATA_TYPE, INT64), (_TENSOR_NAME, name), (_RAW_DATA, raw))
