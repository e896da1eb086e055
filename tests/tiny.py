"""A tiny random llama with a byte-level tokenizer: the real seam that every room's tests run on.

Receives sizes and a seed. Returns an ordinary model folder, made by the real builder from a GGUF file written here,
which genai_lab and onnxruntime-genai load alike. Its words mean nothing, but any text goes in and comes out whole.

    folder = tiny_model_folder(tmp_path / "model")            # float32, exact enough to compare bit patterns of choices
    folder = tiny_model_folder(tmp_path / "model", "int4")    # blocks of 32, as the default model has them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from genai_lab.builder import build_model

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2; the last one ends an answer
MERGES = ("Ġ t", "h e", "Ġt he", "i n", "Ġ a", "l l", "o r", "H e", "He ll", "Hell o", "Ġ w", "Ġw or")


@dataclass(frozen=True)
class TinySizes:
    """Sizes of the tiny llama; every row length is a multiple of the 32 weights of a block."""

    num_layers: int = 2
    hidden_size: int = 64
    intermediate_size: int = 96
    num_attention_heads: int = 2
    num_key_value_heads: int = 1
    head_size: int = 32
    context_length: int = 256
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5


def tiny_model_folder(
    path: Path,
    precision: str = "fp32",
    *,
    seed: int = 0,
    sizes: TinySizes | None = None,
    weight_type: str | None = None,
    extra_options: Mapping[str, str | int | bool] | None = None,
) -> Path:
    """Make a tiny model folder at `path` and return `path`.

    `weight_type` is the GGUF type of the layers' weights: F32 for fp32, else Q4_1, unless given.
    """
    checkpoint = path.with_name(f"{path.name}.gguf")
    write_tiny_gguf(
        checkpoint, seed=seed, sizes=sizes, weight_type=weight_type or ("F32" if precision == "fp32" else "Q4_1")
    )
    return build_model(checkpoint, path, precision, extra_options=extra_options)


def write_tiny_gguf(
    path: Path, *, seed: int = 0, sizes: TinySizes | None = None, weight_type: str = "F32", tied: bool = True
) -> Path:
    """Write the GGUF file of a tiny random llama and return its path."""
    sizes = sizes or TinySizes()
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    _add_sizes(writer, sizes)
    _add_vocabulary(writer)
    for name, values in tiny_weights(sizes, seed, tied).items():
        ends = name in ("token_embd.weight", "output.weight")
        _add_tensor(writer, name, values, weight_type if not ends or weight_type == "F32" else "Q8_0")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_tokens() -> list[str]:
    """The vocabulary: special tokens, one token a byte, the merges, and unused ones up to a multiple of 32."""
    merged = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*SPECIAL_TOKENS, *byte_characters(), *merged]
    return tokens + [f"<unused{index}>" for index in range(-len(tokens) % 32)]


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (byte for byte in range(256) if byte not in printable)
    moved = {byte: 256 + index for index, byte in enumerate(others)}
    return [chr(moved.get(byte, byte)) for byte in range(256)]


def tiny_weights(sizes: TinySizes, seed: int, tied: bool = True) -> dict[str, NDArray[np.float32]]:
    """Random weights under GGUF's names, [rows, columns], with Q and K rows as GGUF stores them."""
    generator = np.random.default_rng(seed)
    hidden, width, vocabulary = sizes.hidden_size, sizes.intermediate_size, len(tiny_tokens())
    queries, keys = sizes.num_attention_heads * sizes.head_size, sizes.num_key_value_heads * sizes.head_size

    def matrix(rows: int, columns: int, gain: float = 1.0) -> NDArray[np.float32]:
        return (generator.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    def norm() -> NDArray[np.float32]:
        return (1 + 0.1 * generator.standard_normal(hidden)).astype(np.float32)

    weights = {"token_embd.weight": matrix(vocabulary, hidden, gain=3.0), "output_norm.weight": norm()}
    if not tied:
        weights["output.weight"] = matrix(vocabulary, hidden, gain=3.0)
    for layer in range(sizes.num_layers):
        weights |= {
            f"blk.{layer}.attn_norm.weight": norm(),
            f"blk.{layer}.attn_q.weight": matrix(queries, hidden, gain=2.0),
            f"blk.{layer}.attn_k.weight": matrix(keys, hidden, gain=2.0),
            f"blk.{layer}.attn_v.weight": matrix(keys, hidden),
            f"blk.{layer}.attn_output.weight": matrix(hidden, queries, gain=4.0),
            f"blk.{layer}.ffn_norm.weight": norm(),
            f"blk.{layer}.ffn_gate.weight": matrix(width, hidden),
            f"blk.{layer}.ffn_up.weight": matrix(width, hidden),
            f"blk.{layer}.ffn_down.weight": matrix(hidden, width, gain=8.0),
        }
    return weights


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: NDArray[np.float32], weight_type: str) -> None:
    kind = gguf.GGMLQuantizationType[weight_type]
    if values.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def _add_sizes(writer: gguf.GGUFWriter, sizes: TinySizes) -> None:
    writer.add_block_count(sizes.num_layers)
    writer.add_embedding_length(sizes.hidden_size)
    writer.add_feed_forward_length(sizes.intermediate_size)
    writer.add_head_count(sizes.num_attention_heads)
    writer.add_head_count_kv(sizes.num_key_value_heads)
    writer.add_key_length(sizes.head_size)
    writer.add_context_length(sizes.context_length)
    writer.add_rope_freq_base(sizes.rope_base)
    writer.add_layer_norm_rms_eps(sizes.norm_epsilon)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    tokens = tiny_tokens()
    control, unused, normal = gguf.TokenType.CONTROL, gguf.TokenType.UNUSED, gguf.TokenType.NORMAL
    kinds = [control if t in SPECIAL_TOKENS else unused if t.startswith("<unused") else normal for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
