"""What a decoder's graph takes and gives, held against its config."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnxruntime as ort

from genai_lab.config import Config
from genai_lab.errors import ModelFolderError
from genai_lab.models.session import Graph, TensorInfo

_PROBED = 8  # tokens of room in the past with which a graph is tried


def past_names(session: Graph, config: Config) -> dict[str, str]:
    """{past input: present output} of every layer's cache: keys and values apart or together, and the scales of a
    quantized one."""
    inputs, outputs = config.model.decoder.inputs, config.model.decoder.outputs
    return _pairs(
        session,
        (inputs.past_names, outputs.present_names),
        (inputs.past_key_names, outputs.present_key_names),
        (inputs.past_value_names, outputs.present_value_names),
        (inputs.past_key_scale_names, outputs.present_key_scale_names),
        (inputs.past_value_scale_names, outputs.present_value_scale_names),
    )


def fixed_names(session: Graph, config: Config) -> dict[str, str]:
    """{past input: present output} of the layers whose state has one size however long the text is: convolutions and
    recurrences. Such a state cannot be cut back."""
    inputs, outputs = config.model.decoder.inputs, config.model.decoder.outputs
    return _pairs(
        session,
        (inputs.past_conv_names, outputs.present_conv_names),
        (inputs.past_recurrent_names, outputs.present_recurrent_names),
        (inputs.past_ple_token_names, outputs.present_ple_token_names),
        (inputs.past_ple_conv_names, outputs.present_ple_conv_names),
        (inputs.past_indexer_names, outputs.present_indexer_names),
    )


def layers_of(pattern: str, session: Graph) -> list[int]:
    """The layers whose input is named by `pattern`, in which %d stands for the layer."""
    before, after = (re.escape(part) for part in pattern.split("%d", 1))
    found = (re.fullmatch(f"{before}([0-9]+){after}", name) for name in session.inputs)
    return sorted(int(match[1]) for match in found if match)


def _pairs(session: Graph, *patterns: tuple[str | None, str | None]) -> dict[str, str]:
    by_layer = sorted(
        (layer, place, past % layer, present % layer)
        for place, (past, present) in enumerate(patterns)
        if past and present
        for layer in layers_of(past, session)
    )
    return {past: present for _layer, _place, past, present in by_layer}


def managed_names(config: Config) -> set[str]:
    """Inputs that a running decoder gives, by the config alone: those that follow from the tokens, and the cache."""
    names, layers = config.model.decoder.inputs, range(config.model.decoder.num_hidden_layers)
    patterns = (
        names.past_names,
        names.past_key_names,
        names.past_value_names,
        names.past_key_scale_names,
        names.past_value_scale_names,
        names.past_conv_names,
        names.past_recurrent_names,
    )
    return {*token_inputs(config).values(), *(pattern % layer for pattern in patterns if pattern for layer in layers)}


def past_shape(config: Config, info: TensorInfo, rows: int, tokens: int) -> tuple[int, ...]:
    """[rows, heads, tokens, head_dim], or [2, rows, heads, tokens, head_dim] for keys and values together. A size that
    the graph states is the graph's: layers may differ in heads and head size."""
    decoder = config.model.decoder
    heads = decoder.num_key_value_heads or decoder.num_attention_heads
    shape: tuple[int, ...] = (rows, heads, tokens, decoder.head_size)[: len(info.shape)]
    if len(info.shape) == 5:
        shape = (2, *shape)
    own = {row_axis(shape), token_axis(shape)}
    return tuple(
        size if axis in own or not isinstance(said, int) or said < 1 else said
        for axis, (size, said) in enumerate(zip(shape, info.shape, strict=True))
    )


def row_axis(shape: tuple[int, ...]) -> int:
    """Which axis of a past counts the rows."""
    return 1 if len(shape) == 5 else 0


def token_axis(shape: tuple[int, ...]) -> int:
    """Which axis of a past counts the tokens."""
    return row_axis(shape) + 2


def fixed_shape(info: TensorInfo, rows: int, filename: str) -> tuple[int, ...]:
    """The size of a state that does not grow: as the graph says, `rows` of it.

    Raises:
        ModelFolderError: the graph leaves another axis than the first open.
    """
    sizes = [size for size in info.shape[1:] if isinstance(size, int) and size > 0]
    if len(sizes) != len(info.shape) - 1:
        raise ModelFolderError(
            f"{filename!r}: {info.name!r} has the shape {list(info.shape)}; only the first axis of a state that does "
            "not grow may be open. Export the graph with the other sizes in it"
        )
    return (rows, *sizes)


def starting_values(names: Iterable[str], config: Config) -> dict[str, int]:
    """{past input: what fills it at the beginning} where that is not 0: tokens before the first one."""
    decoder = config.model.decoder
    pattern = decoder.inputs.past_ple_token_names
    tokens = {pattern % layer for layer in range(decoder.num_hidden_layers)} if pattern else set()
    return {name: decoder.ple_token_pad_id for name in names if name in tokens}


def token_inputs(config: Config) -> dict[str, str]:
    """{what it is: its name in the graph} of the inputs that follow from the tokens."""
    names = config.model.decoder.inputs
    kinds = (
        "input_ids",
        "attention_mask",
        "position_ids",
        "total_sequence_length",
        "past_sequence_length",
        "past_key_values_length",
        "current_sequence_length",
    )
    return {kind: getattr(names, kind) for kind in kinds}


def other_outputs(session: Graph, config: Config) -> tuple[str, ...]:
    """Outputs beside the logits and the cache, such as hidden states."""
    own = {config.model.decoder.outputs.logits, *past_names(session, config).values()}
    return tuple(name for name in session.outputs if name not in own)


def check_graph(session: Graph, config: Config) -> None:
    """The graph has what the config names. (Inputs that the config does not name can be given to a generator.)"""
    decoder = config.model.decoder
    past, fixed = past_names(session, config), fixed_names(session, config)
    has_encoder = config.model.encoder is not None
    _check_sizes(config, needs_cache=not has_encoder and not fixed)
    beyond = decoder.inputs.past_key_names % decoder.num_hidden_layers
    if beyond in session.inputs and not fixed:
        raise ModelFolderError(
            f"{session.filename!r} wants the input {beyond!r}, of a layer that genai_config.json does not count: "
            f"model.decoder.num_hidden_layers is {decoder.num_hidden_layers}. Write the number that the graph has"
        )
    missing = [] if decoder.inputs.input_ids in session.inputs else [decoder.inputs.input_ids]
    if decoder.num_hidden_layers and not past and not fixed and not has_encoder:
        missing.append(decoder.inputs.past_key_names % 0)
    wanted = (decoder.outputs.logits, *past.values(), *fixed.values())
    missing += [name for name in wanted if name not in session.outputs]
    if missing:
        raise ModelFolderError(
            f"{session.filename!r} has no {missing[0]!r}; its inputs are {', '.join(list(session.inputs)[:6])} ... and "
            f"its outputs {', '.join(list(session.outputs)[:3])} .... Correct the names in genai_config.json"
        )


def appends_in_place(session: Graph, config: Config) -> bool:
    """Try the graph once with room in its past: only one that appends in place returns the past as long as it was.
    Graphs that cannot fail or return a longer one."""
    past = past_names(session, config)
    if not past or any(len(session.inputs[name].shape) != 4 for name in past):
        return False
    inputs = token_inputs(config)
    given: dict[str, Any] = {
        inputs["input_ids"]: np.zeros((1, 1)),
        inputs["attention_mask"]: np.ones((1, 1)),
        inputs["position_ids"]: np.zeros((1, 1)),
    }
    others = {name: np.zeros(session.rank(name) * (1,)) for name in set(session.inputs) - set(given) - set(past)}
    given |= others
    feeds = {name: value.astype(session.inputs[name].dtype) for name, value in given.items() if name in session.inputs}
    feeds |= {
        name: np.zeros(past_shape(config, session.inputs[name], 1, _PROBED), session.inputs[name].dtype)
        for name in past
    }
    quiet = ort.RunOptions()
    quiet.log_severity_level = 4  # a failure is an answer here, not an error
    try:
        outputs = session.run(feeds, quiet)
    except Exception:
        return False
    return all(outputs[name].shape[2] == _PROBED for name in past.values())


def one_shape(session: Graph, config: Config) -> bool:
    """Whether every layer's keys and values have the sizes of the config, so that one slab holds them all."""
    decoder = config.model.decoder
    heads = decoder.num_key_value_heads or decoder.num_attention_heads
    past = past_names(session, config)
    layers = layers_of(decoder.inputs.past_key_names, session)
    return layers == list(range(decoder.num_hidden_layers)) and all(
        past_shape(config, session.inputs[name], 1, 1) == (1, heads, 1, decoder.head_size) for name in past
    )


def _check_sizes(config: Config, *, needs_cache: bool) -> None:
    """What a folder may leave out reads as 0; these may not be left out."""
    model = config.model
    sizes = {"model.vocab_size": model.vocab_size}
    if model.decoder.num_hidden_layers and needs_cache:
        heads = model.decoder.num_key_value_heads or model.decoder.num_attention_heads
        sizes |= {"model.decoder.num_key_value_heads": heads, "model.decoder.head_size": model.decoder.head_size}
    for name, value in sizes.items():
        if value < 1:
            raise ModelFolderError(
                f"genai_config.json of {str(config.folder)!r}: {name} is {value}; a decoder needs at least 1. "
                "Write the number that the graph has"
            )
