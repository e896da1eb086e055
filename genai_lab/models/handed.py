"""What an encoder hands on to a decoder: two graphs' signatures -> which output becomes which input."""

from __future__ import annotations

from genai_lab.config import Config
from genai_lab.errors import ModelFolderError
from genai_lab.models.graph import layers_of
from genai_lab.models.session import Graph, Session

PROJECTION = "cached_source_projection_"
"""Outputs of a Marian encoder that its decoder must take."""


def handed_on(encoder: Session, decoder: Graph, config: Config) -> dict[str, str]:
    """{decoder input: encoder output} of what goes from one to the other.

    Raises:
        ModelFolderError: both have the name, and types or shapes that do not fit.
    """
    section = config.model.encoder or {}
    outputs, inputs = section.get("outputs", {}), config.model.decoder.inputs
    hidden = (
        outputs.get("encoder_outputs", "encoder_outputs"),
        outputs.get("encoder_hidden_states", "encoder_hidden_states"),
    )
    pairs = [(inputs.encoder_hidden_states, given) for given in hidden]
    for mine, theirs in (
        (inputs.cross_past_key_names, outputs.get("cross_present_key_names")),
        (inputs.cross_past_value_names, outputs.get("cross_present_value_names")),
    ):
        if mine and theirs:
            pairs += [(mine % layer, theirs % layer) for layer in layers_of(mine, decoder)]
    pairs += [(name, name) for name in decoder.inputs if name in encoder.outputs]
    found = {mine: theirs for mine, theirs in reversed(pairs) if mine in decoder.inputs and theirs in encoder.outputs}
    _check_handed(encoder, decoder, found)
    return found


def _check_handed(encoder: Session, decoder: Graph, found: dict[str, str]) -> None:
    for mine, theirs in found.items():
        taken, given = decoder.inputs[mine], encoder.outputs[theirs]
        sizes = zip(taken.shape, given.shape, strict=False)
        fits = len(taken.shape) == len(given.shape) and not any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes
        )
        if not fits or (theirs.startswith(PROJECTION) and taken.dtype != given.dtype):
            raise ModelFolderError(
                f"{encoder.filename!r} gives {theirs!r} as {given.dtype} {list(given.shape)}, {decoder.filename!r} "
                f"takes {mine!r} as {taken.dtype} {list(taken.shape)}; export both from one model"
            )
    names = {name for side in (decoder.inputs, encoder.outputs) for name in side if name.startswith(PROJECTION)}
    for name in sorted(names - set(found)):
        raise ModelFolderError(
            f"{name!r} must be an output of {encoder.filename!r} and an input of {decoder.filename!r}, and is one of "
            "the two only; export both from one model"
        )
