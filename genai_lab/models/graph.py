"""What a decoder's graph takes and gives, held against its config."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort

from genai_lab.config import Config
from genai_lab.errors import ModelFolderError
from genai_lab.models.session import Session

_PROBED = 8  # tokens of room in the past with which a graph is tried


def past_names(session: Session, config: Config) -> dict[str, str]:
    """{past input: present output} of every layer, keys and values apart or together."""
    decoder = config.model.decoder
    found: dict[str, str] = {}
    for layer in range(decoder.num_hidden_layers):
        pairs = (
            (decoder.inputs.past_names, decoder.outputs.present_names),
            (decoder.inputs.past_key_names, decoder.outputs.present_key_names),
            (decoder.inputs.past_value_names, decoder.outputs.present_value_names),
        )
        found |= {
            past % layer: present % layer
            for past, present in pairs
            if past and present and past % layer in session.inputs
        }
    return found


def past_shape(config: Config, session: Session, name: str, rows: int, tokens: int) -> tuple[int, ...]:
    """[rows, heads, tokens, head_dim], or [2, rows, heads, tokens, head_dim] for keys and values together."""
    decoder = config.model.decoder
    heads = decoder.num_key_value_heads or decoder.num_attention_heads
    shape = (rows, heads, tokens, decoder.head_size)
    return (2, *shape) if len(session.inputs[name].shape) == 5 else shape


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


def other_outputs(session: Session, config: Config) -> tuple[str, ...]:
    """Outputs beside the logits and the cache, such as hidden states."""
    own = {config.model.decoder.outputs.logits, *past_names(session, config).values()}
    return tuple(name for name in session.outputs if name not in own)


def check_graph(session: Session, config: Config) -> None:
    """The graph has what the config names. (Inputs that the config does not name can be given to a generator.)"""
    decoder = config.model.decoder
    _check_sizes(config)
    past = past_names(session, config)
    beyond = decoder.inputs.past_key_names % decoder.num_hidden_layers
    if beyond in session.inputs:
        raise ModelFolderError(
            f"{session.filename!r} wants the input {beyond!r}, of a layer that genai_config.json does not count: "
            f"model.decoder.num_hidden_layers is {decoder.num_hidden_layers}. Write the number that the graph has"
        )
    missing = [] if decoder.inputs.input_ids in session.inputs else [decoder.inputs.input_ids]
    if decoder.num_hidden_layers and not past:
        missing.append(decoder.inputs.past_key_names % 0)
    missing += [name for name in (decoder.outputs.logits, *past.values()) if name not in session.outputs]
    if missing:
        raise ModelFolderError(
            f"{session.filename!r} has no {missing[0]!r}; its inputs are {', '.join(list(session.inputs)[:6])} ... and "
            f"its outputs {', '.join(list(session.outputs)[:3])} .... Correct the names in genai_config.json"
        )


def appends_in_place(session: Session, config: Config) -> bool:
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
        name: np.zeros(past_shape(config, session, name, 1, _PROBED), session.inputs[name].dtype) for name in past
    }
    quiet = ort.RunOptions()
    quiet.log_severity_level = 4  # a failure is an answer here, not an error
    try:
        outputs = session.inference.run(list(past.values()), feeds, quiet)
    except Exception:
        return False
    return all(output.shape[2] == _PROBED for output in outputs)


def _check_sizes(config: Config) -> None:
    """What a folder may leave out reads as 0; these may not be left out."""
    model = config.model
    sizes = {"model.vocab_size": model.vocab_size}
    if model.decoder.num_hidden_layers:
        heads = model.decoder.num_key_value_heads or model.decoder.num_attention_heads
        sizes |= {"model.decoder.num_key_value_heads": heads, "model.decoder.head_size": model.decoder.head_size}
    for name, value in sizes.items():
        if value < 1:
            raise ModelFolderError(
                f"genai_config.json of {str(config.folder)!r}: {name} is {value}; a decoder needs at least 1. "
                "Write the number that the graph has"
            )
