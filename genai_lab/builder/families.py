"""The model families that can be built, by the name a GGUF file gives its architecture.

A new family is a module with a reader of its sizes and a writer of its graph, and a line here.
"""

from __future__ import annotations

from genai_lab.builder.checkpoint import Checkpoint
from genai_lab.builder.decoder_shape import DecoderShape
from genai_lab.builder.llama import read_llama, write_llama
from genai_lab.builder.onnx_file import OnnxWriter
from genai_lab.builder.options import BuildOptions


def _build_llama(source: Checkpoint, writer: OnnxWriter, options: BuildOptions) -> DecoderShape:
    model = read_llama(source)
    write_llama(model, source, writer, options)
    return model.shape


FAMILIES = {"llama": _build_llama}


def write_graph(source: Checkpoint, writer: OnnxWriter, options: BuildOptions) -> DecoderShape:
    """Write the graph of whatever family the checkpoint is of."""
    architecture = source.gguf.metadata.get("general.architecture")
    if architecture not in FAMILIES:
        raise source.fail(f"architecture {architecture!r} is not supported; supported are {', '.join(FAMILIES)}.")
    return FAMILIES[architecture](source, writer, options)
