"""The graphs that see and hear, before a decoder: tensors that a caller prepared -> features for the embedding graph.

Turning files into those tensors is somebody else's. genai_config.json says under `vision` and `speech` which file it is
and how its inputs are called; how many features a prompt has room for is said by the tensors num_image_tokens and
audio_sizes, which come with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from genai_lab.config import Config
from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError, StateError
from genai_lab.models.bfloat16 import to_bits
from genai_lab.models.media_cuts import Cut, cut_for
from genai_lab.models.session import Arrays, Session, open_session

VISION: Mapping[str, str] = {
    name: name for name in ("pixel_values", "pixel_position_ids", "image_sizes", "image_grid_thw")
} | {"attention_mask": "image_attention_mask"}
"""What the image graph's inputs are called when the config does not say, and always by whoever prepares them."""
SPEECH: Mapping[str, str] = {
    name: name for name in ("audio_embeds", "audio_sizes", "audio_projection_mode", "audio_lengths")
} | {"attention_mask": "audio_attention_mask"}
BESIDE = ("num_image_tokens", "video_grid_thw", "second_per_grid_ts")
"""Tensors that come with the others and belong to no graph."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """One of the two graphs.

    Args:
        stage: what its runs are called in a trace.
        session: the graph.
        output: which of its outputs are the features, [N, H] or [1, N, H].
        names: {what a tensor is: its name in the graph}.
        known: {the name that a preparer gives a tensor: its name in the graph}.
        main: the tensor without which nothing is seen or heard.
        counts: the tensor that says how many features there are.
        cut: how it takes several images or sounds.
        options: run options of its own.
    """

    stage: str
    session: Session
    output: str
    names: Mapping[str, str]
    known: Mapping[str, str]
    main: str
    counts: str
    cut: Cut
    options: ort.RunOptions | None

    def features(self, given: Arrays, options: ort.RunOptions | None) -> NDArray[Any] | None:
        """[N, H] features of what was given; None when no image or sound was.

        Raises:
            StateError: a tensor is missing, or they contradict one another.
        """
        counts = self._counts(given)
        if counts is None:
            return None
        missing = next((name for name in self.session.inputs if name not in given), None)
        if missing is not None:
            raise StateError(
                f"Missing Input: {missing}. {self.session.filename!r} wants it and nothing gave it; set it with the "
                "others (generator.set_inputs)"
            )
        parts = [self._run(part, options) for part in self.cut(given, self.names, counts, self.session)]
        features = np.concatenate(parts)
        if features.shape[0] != counts.sum():
            raise StateError(
                f"{self.counts} is {counts.tolist()}, which makes {int(counts.sum())}, and {self.session.filename!r} "
                f"gave {features.shape[0]} features for {self.main} {list(given[self.main].shape)}; give the number "
                "that the prompt has places for"
            )
        return features

    def _counts(self, given: Arrays) -> NDArray[np.int64] | None:
        """How many features each image or sound has; None when there is none."""
        counts, there = given.get(self.counts), self.main in given
        if counts is None:
            if there:
                raise StateError(
                    f"{self.main} was given without {self.counts}, which says for how many features the prompt has "
                    f"places; set both: inputs[{self.counts!r}] = np.array([...], np.int64)"
                )
            return None
        counts = counts.reshape(-1)
        if counts.dtype != np.int64 or bool((counts < 0).any()) or (there and not counts.any()):
            raise StateError(
                f"{self.counts} is {counts.dtype} {counts.tolist()}; Only int64 is supported, one number of at least 0 "
                f"for each, and their sum above 0 beside {self.main}"
            )
        return counts if counts.any() else None

    def _run(self, given: Arrays, options: ort.RunOptions | None) -> NDArray[Any]:
        feeds = {name: np.ascontiguousarray(value) for name, value in given.items() if name in self.session.inputs}
        features = self.session.run(feeds, self.options or options)[self.output]
        return features.reshape(-1, features.shape[-1])


def open_encoders(config: Config, embedding: Session) -> dict[str, Encoder]:
    """{input of the embedding graph: the graph that gives it}, of the files that the config names.

    Raises:
        ModelFolderError: a file is missing or damaged, or has not the output that the config names.
    """
    model, taken = config.model, (config.model.embedding or {}).get("inputs", {})
    found: dict[str, Encoder] = {}
    for kind, section, features in (
        ("vision", model.vision, "image_features"),
        ("speech", model.speech, "audio_features"),
    ):
        target = taken.get(features, features)
        if section is None or not section.get("filename") or target not in embedding.inputs:
            continue
        session = open_session(config, section["filename"], section.get("session_options"), f"model.{kind}.filename")
        output = section.get("outputs", {}).get(features, features)
        if output not in session.outputs:
            raise ModelFolderError(
                f"{session.filename!r} has no output {output!r}; it has {', '.join(session.outputs)}. Correct "
                f"model.{kind}.outputs.{features} in genai_config.json"
            )
        found[target] = _encoder(kind, session, output, section, model.type)
    return found


def _encoder(kind: str, session: Session, output: str, section: Mapping[str, Any], model_type: str) -> Encoder:
    usual = VISION if kind == "vision" else SPEECH
    names = dict(usual) | dict(section.get("inputs", {}))
    known = {usual[what]: names[what] for what in usual}
    options = None
    if section.get("run_options"):
        options = ort.RunOptions()
        for key, value in section["run_options"].items():
            options.add_run_config_entry(key, value)
    main, counts = ("pixel_values", "num_image_tokens") if kind == "vision" else ("audio_embeds", "audio_sizes")
    return Encoder(
        f"run_{kind}",
        session,
        output,
        names,
        known,
        names[main],
        names.get(counts, counts),
        cut_for(model_type),
        options,
    )


class Staged:
    """Tensors of images and sounds that a caller set and that the next prompt will use.

    Args:
        encoders: the graphs that they are for.
    """

    def __init__(self, encoders: Mapping[str, Encoder]) -> None:
        self._encoders = tuple(encoders.values())
        self.given: Arrays = {}

    def graph_name(self, name: str) -> str | None:
        """The name under which a tensor is kept; None when it is no image's or sound's."""
        for encoder in self._encoders:
            if name in encoder.known:
                return encoder.known[name]
            if name in encoder.session.inputs or name in encoder.names.values():
                return name
        return name if name in BESIDE else None

    def set(self, name: str, value: NDArray[Any]) -> None:
        """Keep a tensor for the next prompt.

        Raises:
            ArgumentError, ArgumentTypeError: the graph wants another shape or type.
        """
        mine = self.graph_name(name) or name
        info = next((e.session.inputs[mine] for e in self._encoders if mine in e.session.inputs), None)
        if info is not None:
            if info.is_bfloat16 and value.dtype.kind == "f":
                value = to_bits(value)
            if value.dtype != info.dtype and (value.dtype.kind != "f" or info.dtype.kind != "f"):
                raise ArgumentTypeError(
                    f"{name!r} is {value.dtype}, the graph wants {info.dtype}; convert it: "
                    f"array.astype(np.{info.dtype})"
                )
            sizes = list(info.shape)
            fits = (
                len(sizes) == value.ndim
                and all(  # the first axis counts, and several may be cut apart
                    not isinstance(size, int) or size < 1 or size == has
                    for size, has in zip(sizes[1:], value.shape[1:], strict=True)
                )
            )
            if not fits:
                raise ArgumentError(f"{name!r} has the shape {list(value.shape)}, the graph wants {sizes}")
            value = value.astype(info.dtype, copy=False)
        self.given[mine] = np.ascontiguousarray(value)

    def take(self) -> Arrays:
        """What was set; from now on nothing is."""
        given, self.given = self.given, {}
        return given
