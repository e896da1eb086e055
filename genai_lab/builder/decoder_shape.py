"""The sizes of a decoder, as every family states them and as `genai_config` writes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder-only model."""

    model_type: str  # onnxruntime-genai's name of the family
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    vocab_size: int
    context_length: int
