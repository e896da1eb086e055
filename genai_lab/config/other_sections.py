"""Sections of genai_config.json that onnxruntime-genai 0.18 knows and this version does not use yet: vision, speech,
encoders, drafters and the like.

Receives parsed JSON, returns read-only mappings of what was given. Known keys and their types are checked all the same,
so that a slip of the pen is found, and a sound folder loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from genai_lab.config.json_values import (
    Place,
    Reader,
    an_object,
    boolean,
    file_name,
    integer,
    list_of,
    map_of,
    number,
    record,
    string,
)
from genai_lab.config.session_options import read_session_options, text_map

Kept: TypeAlias = Mapping[str, Any]
"""What was written, checked; only the keys that were given."""

_WHOLE: Final = integer()


def _keys(read: Reader[Any], names: str) -> dict[str, Reader[Any]]:
    return dict.fromkeys(names.split(), read)


def _names(names: str) -> Reader[Kept]:
    """Names of a graph's inputs or outputs, by what they are for."""
    return record(_keys(string, names))


def kept_json(value: object, place: Place) -> Any:
    """Any JSON, made read-only."""
    if isinstance(value, dict):
        return MappingProxyType({name: kept_json(item, place.key(name)) for name, item in value.items()})
    if isinstance(value, list):
        return tuple(kept_json(item, place.index(n)) for n, item in enumerate(value))
    return value


_FILE: Final[dict[str, Reader[Any]]] = {
    "filename": file_name,
    "session_options": read_session_options,
    "run_options": text_map,
}
_ATTENTION: Final = _keys(_WHOLE, "num_hidden_layers num_key_value_heads head_size")
read_shared_initializers: Final = list_of(
    record({**_keys(string, "name data_file offset length"), "data_type": _WHOLE, "shape": list_of(_WHOLE)})
)


def _stages(stage: Mapping[str, Reader[Any]]) -> Reader[tuple[Kept, ...]]:
    """A pipeline: an object of stages, or an array of such objects; every stage is kept with its `model_id`."""
    read_stage = record(stage)

    def read(value: object, place: Place) -> tuple[Kept, ...]:
        groups: Iterable[object] = value if isinstance(value, list) else [value]
        return tuple(
            MappingProxyType({"model_id": name, **read_stage(item, place.key(name))})
            for group in groups
            for name, item in an_object(group, place).items()
        )

    return read


_STAGE_NAMES: Final = _keys(list_of(string), "inputs outputs")
read_pipeline: Final = _stages(
    {
        **_FILE,
        **_STAGE_NAMES,
        **_keys(boolean, "run_on_prompt run_on_token_gen is_lm_head inherit_session_options"),
        "reset_session_idx": _WHOLE,
        "output_names_forwarder": text_map,
    }
)

read_sliding_window: Final = record(
    {
        **_keys(_WHOLE, "window_size pad_value cache_slack"),
        **_keys(boolean, "slide_key_value_cache slide_inputs"),
        "alignment": string,
        "layers": list_of(_WHOLE),
    }
)

read_state_groups: Final = list_of(
    record(
        {
            "kind": string,
            "layer_ids": list_of(_WHOLE),
            "state_update": record({**_keys(_WHOLE, "capacity key_head_count"), "enabled": boolean}),
        }
    )
)

_SPEECH_ENCODER_CACHE: Final = "cache_last_channel cache_last_time cache_last_channel_len"
read_encoder: Final = record(
    {
        **_FILE,
        **_ATTENTION,
        **_keys(_WHOLE, "hidden_size num_attention_heads"),
        "inputs": _names(
            "input_ids inputs_embeds attention_mask position_ids audio_features input_lengths lang_id "
            + _SPEECH_ENCODER_CACHE
        ),
        "outputs": _names(
            "encoder_hidden_states encoder_outputs output_lengths cross_present_key_names cross_present_value_names "
            "cache_last_channel_next cache_last_time_next cache_last_channel_len_next"
        ),
    }
)

read_embedding: Final = record(
    {
        **_FILE,
        "prefault": boolean,
        "inputs": _names("input_ids image_features audio_features"),
        "outputs": _names("inputs_embeds per_layer_inputs"),
    }
)

read_vision: Final = record(
    {
        **_FILE,
        **_keys(file_name, "config_filename adapter_filename"),
        **_keys(
            _WHOLE,
            "spatial_merge_size patch_size num_visual_tokens window_size num_position_embeddings max_num_patches",
        ),
        "tokens_per_second": number(),
        "inputs": _names(
            "pixel_values pixel_position_ids image_sizes image_grid_thw attention_mask pos_embed_indices "
            "pos_embed_weights vision_cos vision_sin vision_attention_bias"
        ),
        "outputs": _names("image_features"),
        "pipeline": _stages({**_FILE, **_STAGE_NAMES, "run_on_cpu": boolean}),
    }
)

read_speech: Final = record(
    {
        **_FILE,
        **_keys(file_name, "config_filename adapter_filename"),
        "inputs": _names("audio_embeds attention_mask audio_sizes audio_projection_mode audio_lengths"),
        "outputs": _names("audio_features"),
    }
)

read_joiner: Final = record({**_FILE, "inputs": _names("encoder_outputs decoder_outputs"), "outputs": _names("logits")})

read_vad: Final = record({**_FILE, "threshold": number(), **_keys(_WHOLE, "silence_duration_ms prefix_padding_ms")})

read_mtp: Final = record(
    {
        **_FILE,
        **_ATTENTION,
        "enabled": boolean,
        "main_hidden_states": string,
        "shared_initializers": read_shared_initializers,
        "inputs": _names("input_ids hidden_states attention_mask position_ids past_key_names past_value_names"),
        "outputs": _names("logits hidden_states present_key_names present_value_names"),
    }
)

read_block_drafter: Final = record(
    {
        **_FILE,
        **_ATTENTION,
        **_keys(_WHOLE, "block_size num_draft_tokens selector_top_k mask_token_id sliding_window"),
        **_keys(string, "main_aux_hidden_states sampled_proposal"),
        **_keys(number(), "sampling_min_p sampling_temperature sampling_top_p"),
        "independent_sampling": boolean,
        "aux_hidden_state_layers": list_of(_WHOLE),
        "shared_initializers": read_shared_initializers,
        "inputs": _names(
            "aux_hidden_states input_ids inputs_embeds q_row_map qkv_row_map block_row_index block_table "
            "cumulative_sequence_lengths past_sequence_lengths attention_metadata past_key_names past_value_names "
            "past_key_scale_names past_value_scale_names"
        ),
        "outputs": _names(
            "candidate_ids scores present_key_names present_value_names present_key_scale_names "
            "present_value_scale_names"
        ),
    }
)

_GRAPH_NAMES: Final = record({"inputs": text_map, "outputs": text_map})
read_moonshine: Final = record(
    {
        **_keys(
            file_name,
            "adapter_filename cross_kv_filename decoder_kv_filename encoder_filename frontend_filename",
        ),
        **_keys(
            _WHOLE,
            "conv1_buffer_size conv2_buffer_size left_context_frames max_segment_memory_frames max_seq_len "
            "min_segment_memory_frames sample_buffer_size total_lookahead",
        ),
        **_keys(number(), "seconds_per_memory_frame tokens_per_second"),
        **_keys(_GRAPH_NAMES, "adapter cross_kv decoder_kv encoder frontend"),
    }
)

_FILE_ONLY: Final = record(_FILE)
read_audio_output: Final = record(
    {
        **_keys(
            _WHOLE,
            "audio_start_token_id codebook_size interleaved_n_audio interleaved_n_text num_codebooks text_end_token_id",
        ),
        "depthformer": _FILE_ONLY,
        "embedding": _FILE_ONLY,
    }
)

SPEECH_NUMBERS: Final = {
    **_keys(
        _WHOLE,
        "num_mels fft_size hop_length win_length subsampling_factor left_context conv_context pre_encode_cache_size "
        "sample_rate chunk_samples blank_id max_symbols_per_step left_context_samples right_context_samples",
    ),
    **_keys(number(), "preemph log_eps norm_eps"),
    "tdt_durations": list_of(_WHOLE),
}
"""Keys directly under `model` that only speech models have."""

read_runtime_profiles: Final = list_of(map_of(kept_json))
