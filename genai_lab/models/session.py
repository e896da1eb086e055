"""An ONNX Runtime session for one file of a model folder, made from the config's session options. CPU only.

`Graph` is what a running decoder sees: names in, names out. A `Session` is the graph of one file; graphs of several
files are `pipeline.Stages` and `embedding.Embedded`.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from genai_lab.config import Config, check_providers
from genai_lab.config.session_options import SessionOptions
from genai_lab.errors import ModelFolderError
from genai_lab.models import bfloat16
from genai_lab.models.binding import bind_input
from genai_lab.models.last_positions import EVERY, LAST_TWO, LOGITS_FROM, with_logits_from

_DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(bfloat16)": bfloat16.BITS,
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(bool)": np.dtype(np.bool_),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output of a graph."""

    name: str
    dtype: np.dtype[Any]  # of bfloat16 that of its bits
    shape: tuple[int | str | None, ...]
    is_bfloat16: bool = False

    def wanted(self, value: NDArray[Any]) -> NDArray[Any]:
        """`value` in this type."""
        return bfloat16.as_wanted(value, self.dtype, self.is_bfloat16)


Arrays = dict[str, NDArray[Any]]
Weights = dict[str, ort.OrtValue]
"""Values for inputs that have one of their own, such as an adapter's."""


NO_WEIGHTS: Weights = {}


class Graph(Protocol):
    """What takes inputs by name and gives outputs by name, be it one file or several."""

    filename: str
    name: str
    threads: int
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    preset: Collection[str]  # further inputs, which have a value of their own

    def rank(self, name: str) -> int: ...
    def owner(self, name: str) -> str: ...  # words for the file that wants the input `name`
    def begin(self) -> Graph: ...  # for one generator: what stages hand on from run to run is its own
    def run(
        self,
        feeds: Arrays,
        options: ort.RunOptions | None,
        /,
        *,
        is_prompt: bool = True,
        needs_logits: bool = True,
        weights: Weights = NO_WEIGHTS,
    ) -> Arrays: ...


class Session:
    """A loaded graph of one file with its signature."""

    def __init__(self, inference: ort.InferenceSession, filename: str) -> None:
        self.inference = inference
        self.filename = filename
        self.inputs = _signature(inference.get_inputs(), filename)
        self.outputs = _signature(inference.get_outputs(), filename)
        preset = {value.name for value in inference.get_overridable_initializers()}
        self.preset: Collection[str] = preset - {LOGITS_FROM}  # that one is nobody's to give
        self._has_logits_from = LOGITS_FROM in preset
        # whether an input or output is of that type, which numpy does not have
        self.has_bfloat16 = any(info.is_bfloat16 for side in (self.inputs, self.outputs) for info in side.values())
        self.threads = int(inference.get_session_options().intra_op_num_threads) or os.cpu_count() or 1
        self.name: str = inference.get_modelmeta().custom_metadata_map.get("name", "")[:200]

    def rank(self, name: str) -> int:
        """How many axes an input has."""
        return len(self.inputs[name].shape)

    def owner(self, _name: str) -> str:
        """Which file wants an input, for errors."""
        return repr(self.filename)

    def begin(self) -> Session:
        """One generator's: nothing is kept between runs."""
        return self

    def bind_wanted(self, binding: Any, *, every: bool) -> bool:
        """Have runs of `binding` give the logits of every position, or those of the last two alone where the graph can
        leave out the others. A binding keeps it until it is told otherwise. Returns whether a run gives all there
        are."""
        if self._has_logits_from:
            bind_input(binding, LOGITS_FROM, EVERY if every else LAST_TWO)
        return every or not self._has_logits_from

    def run(
        self,
        feeds: Arrays,
        options: ort.RunOptions | None,
        /,
        *,
        is_prompt: bool = True,
        needs_logits: bool = True,
        weights: Weights = NO_WEIGHTS,
    ) -> Arrays:
        """Every output for these inputs; more of them, and of weights, than the graph has are left out."""
        del is_prompt, needs_logits  # one graph does it all
        used: dict[str, Any] = {name: value for name, value in feeds.items() if name in self.inputs}
        own = self.own_weights(weights)
        if self.has_bfloat16:
            return self._run_bits(used, own, options)
        return dict(zip(self.outputs, self.inference.run(None, used | own, options), strict=True))

    def own_weights(self, weights: Weights) -> Weights:
        """Those that this graph has inputs for."""
        return {name: value for name, value in weights.items() if name in self.preset or name in self.inputs}

    def _run_bits(self, feeds: Arrays, weights: Weights, options: ort.RunOptions | None) -> Arrays:
        values = {name: bfloat16.value_of(value, self.inputs[name].is_bfloat16) for name, value in feeds.items()}
        values |= weights
        given = self.inference.run_with_ort_values(list(self.outputs), values, options)
        pairs = zip(self.outputs.items(), given, strict=True)
        return {name: bfloat16.array_of(value, info.is_bfloat16) for (name, info), value in pairs}


def open_session(
    config: Config,
    filename: str,
    options: SessionOptions | None = None,
    named: str = "model.decoder.filename",
) -> Session:
    """Load `filename` of the config's folder (or the bytes given by `config.add_model_data`).

    Args:
        options: of this file; None takes the decoder's.
        named: which key of genai_config.json names the file, for errors.
    """
    check_providers(config.providers, ort.get_available_providers())
    return _load(config, filename, _source(config, filename, named), options)


def open_decoder(config: Config) -> Session:
    """Load the decoder of one file; where its graph gives the logits of every position, runs may want the last ones
    alone (`Session.bind_wanted`)."""
    check_providers(config.providers, ort.get_available_providers())
    filename, decoder = config.model.decoder.filename, config.model.decoder
    source = _source(config, filename, "model.decoder.filename")
    hidden_size = decoder.hidden_size or decoder.num_attention_heads * decoder.head_size
    edited = with_logits_from(source, decoder.outputs.logits, config.model.vocab_size * hidden_size)
    if isinstance(edited, bytes):
        with suppress(ModelFolderError):  # then the file itself is tried, whose error names it
            return _load(config, filename, edited)
    return _load(config, filename, source)


def _source(config: Config, filename: str, named: str) -> Path | bytes:
    given = config.model_data.get(filename)
    if given is not None:
        return given
    path = config.folder / filename
    if not path.is_file():
        raise ModelFolderError(
            f"{str(path)!r} does not exist; genai_config.json names it as {named}. Give the folder "
            "that the builder wrote, or correct the name"
        )
    return path


def _load(config: Config, filename: str, source: Path | bytes, options: SessionOptions | None = None) -> Session:
    wanted = session_options(config.model.decoder.session_options if options is None else options)
    if isinstance(source, bytes):  # a graph without a place of its own: its weights are beside the config
        wanted.add_session_config_entry("session.model_external_initializers_file_folder_path", str(config.folder))
    try:
        graph = source if isinstance(source, bytes) else str(source)
        inference = ort.InferenceSession(graph, wanted, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own exception classes, all derived from Exception
        raise _cannot_load(config, filename, str(error)) from error
    return Session(inference, filename)


_MISSING = re.compile(r'External data path does not exist: "(?P<path>[^"]+)"')
_NEVER_A_GRAPH = ("Protobuf parsing failed", "No graph was found")
_NOT_WHOLE = ("External initializer", "out of bounds or can not be read", "Deserialize tensor")


def _cannot_load(config: Config, filename: str, reason: str) -> ModelFolderError:
    """The error for a graph that onnxruntime refused: the file to blame, and what to do."""
    graph = str(config.folder / filename)
    if missing := _MISSING.search(reason):
        what = f"{missing['path']!r}, the weights of {filename}, does not exist"
    elif any(words in reason for words in _NEVER_A_GRAPH):
        what = f"{graph!r} is cut or damaged: it is no whole ONNX graph"
    elif any(words in reason for words in _NOT_WHOLE):
        weights = next(config.folder.glob(f"{glob.escape(filename)}.data"), None)
        what = f"{str(weights or config.folder)!r}, the weights of {filename}, is cut or damaged"
    else:
        return ModelFolderError(
            f"onnxruntime {ort.__version__} cannot use the graph {graph!r}: {reason[:300]}. Take a folder that was "
            f"made for the CPU and for this version of onnxruntime, or upgrade onnxruntime."
        )
    return ModelFolderError(
        f"{what}. Convert the checkpoint again (python -m genai_lab.builder), or copy the folder again. A folder that "
        f"genai_lab.load made by a model's name is made anew when it is deleted: {str(config.folder)!r}."
    )


def session_options(wanted: SessionOptions) -> ort.SessionOptions:
    """Session options as genai_config.json sets them."""
    options = ort.SessionOptions()
    options.log_severity_level = 3 if wanted.log_severity_level is None else wanted.log_severity_level
    environment = os.environ.get("OMP_NUM_THREADS", "")
    if environment.isdigit():  # a container's word about its share of the processor; the config's own number wins
        options.intra_op_num_threads = int(environment)
    for name in ("intra_op_num_threads", "inter_op_num_threads", "enable_cpu_mem_arena", "enable_mem_pattern"):
        value = getattr(wanted, name)
        if value is not None:
            setattr(options, name, value)
    for name, theirs in (("log_id", "logid"), ("log_verbosity_level", "log_verbosity_level")):
        if getattr(wanted, name) is not None:
            setattr(options, theirs, getattr(wanted, name))
    if wanted.enable_profiling is not None:  # one file when the session is freed: the prefix, a date and .json
        options.enable_profiling, options.profile_file_prefix = True, wanted.enable_profiling
    if wanted.graph_optimization_level is not None:
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, wanted.graph_optimization_level)
    for key, value in wanted.config_entries.items():
        options.add_session_config_entry(key, value)
    return options


def _signature(nodes: Any, filename: str) -> Mapping[str, TensorInfo]:
    infos: dict[str, TensorInfo] = {}
    for node in nodes:
        if node.type not in _DTYPES:
            raise ModelFolderError(
                f"{filename!r}: {node.name!r} has type {node.type}; supported are {', '.join(_DTYPES)}"
            )
        is_bfloat16 = node.type == "tensor(bfloat16)"
        infos[node.name] = TensorInfo(node.name, _DTYPES[node.type], tuple(node.shape), is_bfloat16)
    return infos
