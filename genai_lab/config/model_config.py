"""The `model`, `speculative` and `engine` sections of genai_config.json as frozen dataclasses.

Receives parsed JSON, returns checked values. Key names and defaults are onnxruntime-genai 0.18's; what this version
does not use yet is checked for known keys and types (`other_sections`) and kept. It reads no file.
"""

# ruff: noqa: RUF009  (fields are made by `key`, whose defaults are all immutable)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from genai_lab.config import other_sections as other
from genai_lab.config.json_values import (
    Place,
    an_object,
    boolean,
    file_name,
    integer,
    layer_pattern,
    list_of,
    number,
    string,
)
from genai_lab.config.other_sections import Kept
from genai_lab.config.sections import key, section, with_default
from genai_lab.config.session_options import NOTHING, SessionOptions, read_session_options, text_map

_SIZE: Final = integer(0)
_ID: Final = integer()
_POSITIVE: Final = integer(1)


@dataclass(frozen=True)
class DecoderInputs:
    """Names of the decoder graph's inputs. `%d` stands for the layer; None means the model has no such input."""

    input_ids: str = key(string, "input_ids")
    inputs_embeds: str = key(string, "inputs_embeds")
    attention_mask: str = key(string, "attention_mask")
    position_ids: str = key(string, "position_ids")
    past_key_names: str = key(layer_pattern, "past_key_values.%d.key")
    past_value_names: str = key(layer_pattern, "past_key_values.%d.value")
    past_key_scale_names: str | None = key(layer_pattern, None)
    past_value_scale_names: str | None = key(layer_pattern, None)
    past_names: str | None = key(layer_pattern, None)
    """Keys and values in one tensor."""
    cross_past_key_names: str | None = key(string, None)
    cross_past_value_names: str | None = key(string, None)
    past_key_values_length: str = key(string, "past_key_values_length")
    past_sequence_length: str = key(string, "past_sequence_length")
    current_sequence_length: str = key(string, "current_sequence_length")
    total_sequence_length: str = key(string, "total_sequence_length")
    cache_indirection: str = key(string, "cache_indirection")
    encoder_hidden_states: str = key(string, "encoder_hidden_states")
    encoder_attention_mask: str = key(string, "encoder_attention_mask")
    rnn_states_prev: str = key(string, "rnn_states_prev")
    cumulative_sequence_lengths: str = key(string, "cumulative_sequence_lengths")
    past_sequence_lengths: str = key(string, "past_sequence_lengths")
    block_table: str = key(string, "block_table")
    block_table_windowed: str = key(string, "block_table_windowed")
    attention_metadata: str = key(string, "attention_metadata")
    logits_indices: str | None = key(string, None)
    past_conv_names: str = key(layer_pattern, "past_key_values.%d.conv_state")
    past_recurrent_names: str = key(layer_pattern, "past_key_values.%d.recurrent_state")
    past_ple_token_names: str | None = key(layer_pattern, None)
    past_ple_conv_names: str | None = key(layer_pattern, None)
    past_indexer_names: str | None = key(layer_pattern, None)
    state_update_capture_count: str = key(string, "state_update_capture_count")
    state_update_active: str = key(string, "state_update_active")
    hidden_states: str | None = key(string, None)
    targets: str | None = key(string, None)
    targets_length: str | None = key(string, None)
    lstm_hidden_state: str | None = key(string, None)
    lstm_cell_state: str | None = key(string, None)
    per_layer_inputs: str | None = key(string, None)


@dataclass(frozen=True)
class DecoderOutputs:
    """Names of the decoder graph's outputs. `%d` stands for the layer; None means the model has no such output."""

    logits: str = key(string, "logits")
    present_key_names: str = key(layer_pattern, "present.%d.key")
    present_value_names: str = key(layer_pattern, "present.%d.value")
    present_key_scale_names: str | None = key(layer_pattern, None)
    present_value_scale_names: str | None = key(layer_pattern, None)
    present_names: str | None = key(layer_pattern, None)
    output_cross_qk_names: str = key(layer_pattern, "output_cross_qk_%d")
    rnn_states: str = key(string, "rnn_states")
    present_conv_names: str = key(layer_pattern, "present.%d.conv_state")
    present_recurrent_names: str = key(layer_pattern, "present.%d.recurrent_state")
    present_ple_token_names: str | None = key(layer_pattern, None)
    present_ple_conv_names: str | None = key(layer_pattern, None)
    present_indexer_names: str | None = key(layer_pattern, None)
    state_update_conv_value_names: str = key(layer_pattern, "state_update.%d.conv_value")
    state_update_recurrent_capsule_names: str = key(layer_pattern, "state_update.%d.recurrent_capsule")
    hidden_states: str | None = key(string, None)
    aux_hidden_states: str | None = key(string, None)
    outputs: str | None = key(string, None)
    outputs_length: str | None = key(string, None)
    lstm_hidden_state: str | None = key(string, None)
    lstm_cell_state: str | None = key(string, None)


@dataclass(frozen=True)
class DecoderConfig:
    """The graph that predicts the next token. A size of 0 means that the folder does not say."""

    filename: str = key(file_name, "")
    session_options: SessionOptions = key(read_session_options, SessionOptions())
    run_options: Mapping[str, str] = key(text_map, NOTHING)
    hidden_size: int = key(_SIZE, 0)
    num_attention_heads: int = key(_SIZE, 0)
    num_key_value_heads: int = key(_SIZE, 0)
    num_hidden_layers: int = key(_SIZE, 0)
    head_size: int = key(_SIZE, 0)
    inputs: DecoderInputs = key(section(DecoderInputs), DecoderInputs())
    outputs: DecoderOutputs = key(section(DecoderOutputs), DecoderOutputs())
    sliding_window: Kept | None = key(other.read_sliding_window, None)
    pipeline: tuple[Kept, ...] = key(other.read_pipeline, ())
    layer_types: tuple[str, ...] = key(list_of(string), ())
    conv_cache_size: int = key(_SIZE, 0)
    ple_token_pad_id: int = key(_ID, 0)
    state_update_capacity: int = key(integer(0, 8), 0)
    state_groups: tuple[Kept, ...] | None = key(other.read_state_groups, None)
    shared_initializers: tuple[Kept, ...] = key(other.read_shared_initializers, ())


def _one_or_more_ids(value: object, place: Place) -> tuple[int, ...]:
    return list_of(_ID)(value, place) if isinstance(value, list) else (_ID(value, place),)


@dataclass(frozen=True)
class ModelConfig:
    """What the model is: its kind, sizes, marks and graphs."""

    type: str = key(string, "")
    vocab_size: int = key(_SIZE, 0)
    context_length: int = key(_POSITIVE, 0)
    """Tokens the model can hold, prompt included."""
    tokenizer_dir: str = key(string, "")
    """Where the tokenizer's files are; empty means beside genai_config.json."""
    pad_token_id: int = key(_ID, 0)
    eos_token_ids: tuple[int, ...] = key(_one_or_more_ids, (), name="eos_token_id")
    """Each of these ends a sequence. A folder that names none gets the pad token."""
    bos_token_id: int = key(_ID, 0)
    sep_token_id: int = key(_ID, 0)
    decoder_start_token_id: int = key(_ID, 0)
    bot_token_id: int | None = key(_ID, None)
    """Beginning of a tool call; `eot` is its end, `bor` and `eor` are those of reasoning."""
    eot_token_id: int | None = key(_ID, None)
    bor_token_id: int | None = key(_ID, None)
    eor_token_id: int | None = key(_ID, None)
    image_token_id: int = key(_ID, 0)
    audio_token_id: int = key(_ID, 0)
    boa_token_id: int = key(_ID, 0)
    video_token_id: int = key(_ID, 0)
    vision_start_token_id: int = key(_ID, 0)
    decoder: DecoderConfig = key(section(DecoderConfig), DecoderConfig())
    draft: DecoderConfig | None = key(section(DecoderConfig), None)
    encoder: Kept | None = key(other.read_encoder, None)
    embedding: Kept | None = key(other.read_embedding, None)
    vision: Kept | None = key(other.read_vision, None)
    speech: Kept | None = key(other.read_speech, None)
    joiner: Kept | None = key(other.read_joiner, None)
    vad: Kept | None = key(other.read_vad, None)
    mtp: Kept | None = key(other.read_mtp, None)
    dflash2: Kept | None = key(other.read_block_drafter, None)
    dspark: Kept | None = key(other.read_block_drafter, None)
    moonshine: Kept | None = key(other.read_moonshine, None)
    audio_output: Kept | None = key(other.read_audio_output, None)
    prompt_templates: Mapping[str, str] = key(text_map, NOTHING)
    """Written by builders before 0.6; chat templates took their place."""
    speech_numbers: Kept = with_default(NOTHING)
    """Keys directly under `model` that only speech models have, such as `sample_rate`."""


_read_model: Final = section(ModelConfig)
_TYPES_WITHOUT_CONTEXT: Final = ("nemotron_speech",)
_TOOL_MARKS: Final[Mapping[str, Mapping[str, int]]] = {
    "qwen2": {"bot_token_id": 151657, "eot_token_id": 151658},
    "qwen3": {"bot_token_id": 151657, "eot_token_id": 151658, "bor_token_id": 151667, "eor_token_id": 151668},
    "phi3": {"bot_token_id": 200025, "eot_token_id": 200026},
}
"""Marks of tool calls and reasoning for folders older than those keys."""


def read_model(value: object, place: Place) -> ModelConfig:
    """The `model` section.

    Raises:
        ModelFolderError: names the key, the value and what is allowed.
    """
    given = an_object(value, place)
    numbers = {
        name: other.SPEECH_NUMBERS[name](item, place.key(name))
        for name, item in given.items()
        if name in other.SPEECH_NUMBERS
    }
    model = _read_model({name: item for name, item in given.items() if name not in numbers}, place)
    if not model.context_length and model.type not in _TYPES_WITHOUT_CONTEXT:
        raise place.key("context_length").error(given.get("context_length"), "an integer of at least 1 (it is needed)")
    marks: dict[str, Any] = {
        name: token_id for name, token_id in _TOOL_MARKS.get(model.type, {}).items() if getattr(model, name) is None
    }
    eos = model.eos_token_ids or (model.pad_token_id,)
    return replace(model, eos_token_ids=eos, speech_numbers=MappingProxyType(numbers), **marks)


@dataclass(frozen=True)
class SpeculativeConfig:
    """How many tokens a drafter proposes at once."""

    max_draft_tokens: int = key(integer(1, 16), 4)
    ngram_size: int = key(integer(0, 16), 0)
    """Draft by looking up the last `ngram_size - 1` tokens; 0 is off."""
    ngram_chained_lookup: bool = key(boolean, False)
    min_adaptive_k: int = key(integer(0, 16), 0)
    cooldown: bool = key(boolean, False)


@dataclass(frozen=True)
class DynamicBatchingConfig:
    """The engine with a paged cache."""

    block_size: int = key(_POSITIVE, 256)
    num_blocks: int | None = key(_POSITIVE, None)
    gpu_utilization_factor: float | None = key(number(0.0, 1.0), None)
    max_batch_size: int = key(_POSITIVE, 16)
    max_scheduled_tokens: int = key(_POSITIVE, 2048)
    prefix_caching: bool | None = key(boolean, None)
    dflash2_max_snapshots: int | None = key(_SIZE, None)


@dataclass(frozen=True)
class StaticBatchingConfig:
    """The engine that fills up whole batches."""

    max_batch_size: int = key(_POSITIVE, 4)


@dataclass(frozen=True)
class EngineConfig:
    """How the engine batches; None means the folder does not say."""

    dynamic_batching: DynamicBatchingConfig | None = key(section(DynamicBatchingConfig), None)
    static_batching: StaticBatchingConfig | None = key(section(StaticBatchingConfig), None)


read_speculative: Final = section(SpeculativeConfig)
read_engine: Final = section(EngineConfig)
