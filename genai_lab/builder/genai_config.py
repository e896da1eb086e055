"""Write genai_config.json in the form of onnxruntime-genai.

Receives sizes and token ids. Returns the file's content as a dict. It does not know where they come from.
"""

from __future__ import annotations

from typing import Any

from genai_lab.builder.decoder_shape import DecoderShape
from genai_lab.builder.tokenizer_files import SpecialTokens


def genai_config(shape: DecoderShape, special: SpecialTokens, filename: str) -> dict[str, Any]:
    """The content of genai_config.json for a decoder-only model on the CPU."""
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": filename,
        "head_size": shape.head_size,
        "hidden_size": shape.hidden_size,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": shape.num_attention_heads,
        "num_hidden_layers": shape.num_layers,
        "num_key_value_heads": shape.num_key_value_heads,
    }
    model = {
        "bos_token_id": special.bos,
        "context_length": shape.context_length,
        "decoder": decoder,
        "eos_token_id": special.eos,
        "pad_token_id": special.pad,
        "type": shape.model_type,
        "vocab_size": shape.vocab_size,
    }
    return {"model": model, "search": _search_defaults(shape.context_length)}


def _search_defaults(context_length: int) -> dict[str, Any]:
    """The search options that onnxruntime-genai's builder writes for a checkpoint that states none."""
    return {
        "diversity_penalty": 0.0,
        "do_sample": False,
        "early_stopping": True,
        "length_penalty": 1.0,
        "max_length": context_length,
        "min_length": 0,
        "no_repeat_ngram_size": 0,
        "num_beams": 1,
        "num_return_sequences": 1,
        "past_present_share_buffer": True,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
    }
