"""genai_config.json as builders write it, and every other section that onnxruntime-genai 0.18 knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DECODER: dict[str, Any] = {
    "session_options": {
        "log_id": "onnxruntime-genai",
        "intra_op_num_threads": 2,
        "graph_optimization_level": "ORT_ENABLE_ALL",
        "session.intra_op.allow_spinning": "0",
        "provider_options": [],
    },
    "run_options": {"gpu_graph_id": "-1"},
    "filename": "model.onnx",
    "head_size": 64,
    "hidden_size": 576,
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
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
}
SEARCH: dict[str, Any] = {
    "diversity_penalty": 0.0,
    "do_sample": True,
    "early_stopping": True,
    "length_penalty": 1.0,
    "max_length": 4096,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "past_present_share_buffer": True,
    "repetition_penalty": 1.0,
    "temperature": 0.7,
    "top_k": 50,
    "top_p": 0.9,
}
MODEL: dict[str, Any] = {
    "type": "llama",
    "bos_token_id": 1,
    "eos_token_id": [2, 7],
    "pad_token_id": 2,
    "vocab_size": 49152,
    "context_length": 8192,
    "decoder": DECODER,
}

_FILE: dict[str, Any] = {
    "filename": "part.onnx",
    "session_options": {"provider_options": [{"cuda": {"enable_cuda_graph": "0"}}]},
    "run_options": {"a": "b"},
}
_SHARED = [{"name": "w", "data_file": "w.bin", "offset": "0", "length": "8", "data_type": 1, "shape": [2, 2]}]
OTHER_PARTS: dict[str, dict[str, Any]] = {
    "encoder": {
        **_FILE,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "head_size": 4,
        "inputs": {"audio_features": "audio", "input_lengths": "length", "lang_id": "lang"},
        "outputs": {"encoder_hidden_states": "states", "cross_present_key_names": "present_key_cross_%d"},
    },
    "embedding": {
        **_FILE,
        "prefault": True,
        "inputs": {"input_ids": "input_ids", "image_features": "image_features", "audio_features": "audio_features"},
        "outputs": {"inputs_embeds": "inputs_embeds", "per_layer_inputs": "per_layer_inputs"},
    },
    "vision": {
        **_FILE,
        "config_filename": "processor_config.json",
        "adapter_filename": "vision.onnx_adapter",
        "spatial_merge_size": 2,
        "tokens_per_second": 2.0,
        "patch_size": 14,
        "num_visual_tokens": 0,
        "window_size": 56,
        "inputs": {"pixel_values": "pixel_values", "image_grid_thw": "grid", "attention_mask": "mask"},
        "outputs": {"image_features": "image_features"},
        "pipeline": [{"patch": {**_FILE, "inputs": ["a"], "outputs": ["b"], "run_on_cpu": True}}],
    },
    "speech": {
        **_FILE,
        "config_filename": "audio_processor_config.json",
        "adapter_filename": "speech.onnx_adapter",
        "inputs": {"audio_embeds": "audio_embeds", "audio_sizes": "sizes", "audio_projection_mode": "mode"},
        "outputs": {"audio_features": "audio_features"},
    },
    "joiner": {**_FILE, "inputs": {"encoder_outputs": "e", "decoder_outputs": "d"}, "outputs": {"logits": "outputs"}},
    "vad": {**_FILE, "threshold": 0.5, "silence_duration_ms": 500, "prefix_padding_ms": 300},
    "mtp": {
        **_FILE,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "head_size": 4,
        "main_hidden_states": "hidden_states",
        "shared_initializers": _SHARED,
        "inputs": {"input_ids": "input_ids", "past_key_names": "past_key_values.%d.key"},
        "outputs": {"logits": "logits", "present_key_names": "present.%d.key"},
    },
    "dflash2": {
        **_FILE,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "head_size": 4,
        "block_size": 4,
        "num_draft_tokens": 3,
        "selector_top_k": 4,
        "mask_token_id": 5,
        "sliding_window": -1,
        "aux_hidden_state_layers": [1, 2],
        "main_aux_hidden_states": "aux_hidden_states",
        "shared_initializers": _SHARED,
        "inputs": {"q_row_map": "q_row_map", "block_table": "block_table"},
        "outputs": {"candidate_ids": "ids", "scores": "scores"},
    },
    "draft": DECODER,
    "moonshine": {
        "encoder_filename": "encoder.onnx",
        "conv1_buffer_size": 4,
        "seconds_per_memory_frame": 0.04,
        "frontend": {"inputs": {"audio_chunk": "chunk"}, "outputs": {"features": "features"}},
    },
    "audio_output": {"num_codebooks": 8, "codebook_size": 2048, "depthformer": {"filename": "depth.onnx"}},
}
DECODER_PARTS: dict[str, Any] = {
    "sliding_window": {
        "window_size": 128,
        "pad_value": 0,
        "alignment": "left",
        "slide_key_value_cache": True,
        "slide_inputs": False,
        "layers": [0],
        "cache_slack": 16,
    },
    "pipeline": [
        {
            "embeddings": {
                **_FILE,
                "inputs": ["input_ids"],
                "outputs": ["x"],
                "output_names_forwarder": {"a": "b"},
                "run_on_prompt": True,
                "run_on_token_gen": False,
                "is_lm_head": False,
                "inherit_session_options": True,
                "reset_session_idx": 1,
            }
        },
        {"head": {"filename": "head.onnx"}},
    ],
    "layer_types": ["conv", "full_attention"],
    "conv_cache_size": 3,
    "state_update_capacity": 0,
    "shared_initializers": _SHARED,
}
OTHER_SECTIONS: dict[str, Any] = {
    "speculative": {
        "max_draft_tokens": 4,
        "ngram_size": 3,
        "ngram_chained_lookup": True,
        "min_adaptive_k": 0,
        "cooldown": True,
    },
    "engine": {
        "dynamic_batching": {
            "block_size": 16,
            "num_blocks": 100,
            "gpu_utilization_factor": 0.8,
            "max_batch_size": 8,
            "max_scheduled_tokens": 512,
            "prefix_caching": True,
        }
    },
}
SPEECH_NUMBERS: dict[str, Any] = {
    "num_mels": 80,
    "sample_rate": 16000,
    "preemph": 0.97,
    "tdt_durations": [0, 1, 2],
    "blank_id": 1024,
}


def config_json(**sections: Any) -> dict[str, Any]:
    return {"model": MODEL, "search": SEARCH, **sections}


def write_folder(folder: Path, content: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "genai_config.json").write_text(text, encoding="utf-8")
    return folder
