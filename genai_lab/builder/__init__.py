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

from genai_lab.builder.build import build_model

__all__ = ["build_model"]
