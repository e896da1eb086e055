"""Write a trained model as a GGUF file, and read such a file's weights back as the model that will really run.

Receives weights and a tokenizer. Returns nothing: the file is written. It does not know how they were trained.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import gguf
import numpy as np
from tokenizers import Tokenizer

from tools.tiny.llama import Floats, Sizes, Weights
from tools.tiny.text import END

Q8_0: Final = gguf.GGMLQuantizationType.Q8_0  # 8 bits a weight and a 16-bit scale for each 32: 8.5 bits
CHAT_TEMPLATE: Final = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def rounded(weights: Weights) -> Weights:
    """The weights as they are after the file's rounding to 8 bits."""
    return {
        name: w if w.ndim == 1 else gguf.quants.dequantize(gguf.quants.quantize(w, Q8_0), Q8_0)
        for name, w in weights.items()
    }


def write_gguf(path: Path, name: str, weights: Weights, sizes: Sizes, tokenizer: Tokenizer) -> None:
    """Write the file."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_license("CC0-1.0")
    _add_sizes(writer, sizes)
    _add_tokenizer(writer, tokenizer)
    for tensor, values in _apart(weights, sizes).items():
        if values.ndim == 1:
            writer.add_tensor(f"{tensor}.weight", values)
        else:
            writer.add_tensor(f"{tensor}.weight", gguf.quants.quantize(values, Q8_0), raw_dtype=Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _apart(weights: Weights, sizes: Sizes) -> dict[str, Floats]:
    """The weights under GGUF's names: what was trained as one matrix is several there."""
    queries = sizes.num_heads * sizes.head_size
    apart: dict[str, Floats] = {}
    for name, values in weights.items():
        if name.endswith("attn_qkv"):
            parts = np.split(values, [queries, queries + sizes.head_size])
            apart |= {
                name.replace("qkv", letter): np.ascontiguousarray(part)
                for letter, part in zip("qkv", parts, strict=True)
            }
        elif name.endswith("gate_up"):
            gate, up = np.split(values, 2)
            apart |= {name.replace("gate_up", "gate"): np.ascontiguousarray(gate)}
            apart |= {name.replace("gate_up", "up"): np.ascontiguousarray(up)}
        else:
            apart[name] = values
    return apart


def _add_sizes(writer: gguf.GGUFWriter, sizes: Sizes) -> None:
    writer.add_block_count(sizes.num_layers)
    writer.add_embedding_length(sizes.hidden_size)
    writer.add_feed_forward_length(sizes.intermediate_size)
    writer.add_head_count(sizes.num_heads)
    writer.add_head_count_kv(1)
    writer.add_key_length(sizes.head_size)
    writer.add_context_length(sizes.context_length)
    writer.add_rope_freq_base(sizes.rope_base)
    writer.add_layer_norm_rms_eps(sizes.norm_epsilon)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    end = tokens.index(END)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token == END else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(end)
    writer.add_chat_template(CHAT_TEMPLATE)
