"""Checkpoint -> ONNX graph + genai_config.json + tokenizer files: an offline tool without torch or transformers.

Receives a GGUF file. Returns a model folder that genai_lab and onnxruntime-genai load. It does not run models.

    build        the stages, in order
    ├── gguf_file        the file's metadata and raw tensors
    ├── checkpoint       checked answers to what a family asks for
    │   └── blocks       4-bit, 8-bit and float forms of a weight
    ├── families         architecture name -> family
    │   └── llama        sizes and graph
    │       └── layers   linear, norm, embedding, gated SiLU
    ├── onnx_file        nodes and streamed weights
    ├── tokenizer_files  tokenizer.json and companions
    ├── genai_config     genai_config.json
    └── folder           whole or not at all
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genai_lab.builder.options import FORMAT_VERSION

if TYPE_CHECKING:
    from genai_lab.builder.build import build_model

__all__ = ["FORMAT_VERSION", "build_model"]


def __getattr__(name: str) -> Any:
    """Import `build_model` when it is first used: who only looks in a cache does not need onnx and gguf."""
    if name != "build_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from genai_lab.builder.build import build_model

    return build_model
