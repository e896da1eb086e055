"""A decoder that takes embeddings, behind the graph that makes them of token ids: together one graph.

Models that also see and hear are exported so, with a graph for each before the embedding (see `encoders`). Where the
embedding's graph wants features of images or sounds and there are none it gets none, as in onnxruntime-genai.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from genai_lab.config import Config
from genai_lab.errors import ModelFolderError
from genai_lab.models.encoders import Encoder, open_encoders
from genai_lab.models.session import NO_WEIGHTS, Arrays, Session, TensorInfo, Weights, open_session

FEATURES = ("image_features", "audio_features")


class Embedded:
    """An embedding and a decoder.

    Args:
        embedding, decoder: the two files.
        config: names what goes from one to the other.
        encoders: {input of the embedding: the graph that sees or hears for it}.

    Raises:
        ModelFolderError: the embedding does not give what the decoder wants.
    """

    def __init__(
        self, embedding: Session, decoder: Session, config: Config, encoders: Mapping[str, Encoder] | None = None
    ) -> None:
        self.encoders: Mapping[str, Encoder] = encoders or {}
        section, names = config.model.embedding or {}, config.model.decoder.inputs
        given, taken = section.get("outputs", {}), section.get("inputs", {})
        self._embedding, self._decoder, self._ids = embedding, decoder, names.input_ids
        self._own_ids = taken.get("input_ids", "input_ids")
        self._features = [taken.get(name, name) for name in FEATURES if taken.get(name, name) in embedding.inputs]
        named = {names.inputs_embeds: given.get("inputs_embeds", "inputs_embeds")}
        if names.per_layer_inputs is not None:
            named[names.per_layer_inputs] = given.get("per_layer_inputs", "per_layer_inputs")
        alike = {name: name for name in embedding.outputs if name in decoder.inputs and name not in named.values()}
        self.handed = alike | {m: t for m, t in named.items() if m == names.inputs_embeds or m in decoder.inputs}
        for mine, theirs in self.handed.items():
            if mine not in decoder.inputs or theirs not in embedding.outputs:
                raise ModelFolderError(
                    f"{embedding.filename!r} should give {theirs!r} and {decoder.filename!r} take it as {mine!r}; the "
                    f"one gives {', '.join(embedding.outputs)}, the other takes {', '.join(list(decoder.inputs)[:4])} "
                    "... . Correct the names in genai_config.json (model.embedding.outputs, model.decoder.inputs)"
                )
        own = {n: i for n, i in embedding.inputs.items() if n not in (self._own_ids, *self._features)}
        ids = {self._ids: embedding.inputs[self._own_ids]} if self._own_ids in embedding.inputs else {}
        rest = {name: info for name, info in decoder.inputs.items() if name not in self.handed}
        self.inputs: Mapping[str, TensorInfo] = ids | own | rest
        self.outputs: Mapping[str, TensorInfo] = {t: embedding.outputs[t] for t in self.handed.values()} | dict(
            decoder.outputs
        )
        self.preset: Collection[str] = {*embedding.preset, *decoder.preset}
        self.filename, self.name = f"{embedding.filename}, {decoder.filename}", decoder.name
        self.threads = decoder.threads

    def rank(self, name: str) -> int:
        """How many axes an input has."""
        return len(self.inputs[name].shape)

    def owner(self, name: str) -> str:
        """Which file wants an input, for errors."""
        return repr((self._decoder if name in self._decoder.inputs else self._embedding).filename)

    def begin(self) -> Embedded:
        """One generator's: nothing is kept between runs."""
        return self

    def run(
        self,
        feeds: Arrays,
        options: ort.RunOptions | None,
        /,
        *,
        is_prompt: bool = True,
        needs_logits: bool = True,
        weights: Weights = NO_WEIGHTS,
    ) -> Arrays:
        """Every output of the decoder, and the embeddings, which may be among `feeds` already."""
        del is_prompt, needs_logits
        embeds = {name: feeds[name] for name in self.handed if name in feeds}
        if len(embeds) < len(self.handed):
            embeds = self.embed(feeds, options, weights=weights)
        typed = {
            name: self._decoder.inputs[name].wanted(value)
            for name, value in (feeds | embeds).items()
            if name in self._decoder.inputs
        }
        given_on = {given: embeds[name] for name, given in self.handed.items()}
        return given_on | self._decoder.run(typed, options, weights=weights)

    def embed(self, feeds: Arrays, options: ort.RunOptions | None, /, *, weights: Weights = NO_WEIGHTS) -> Arrays:
        """{decoder input: embeddings [B, S, ...]} of the token ids among `feeds`, with the features among them."""
        known = {name: self.no_features(name) for name in self._features} | feeds
        known[self._own_ids] = feeds[self._ids].astype(self._embedding.inputs[self._own_ids].dtype, copy=False)
        made = self._embedding.run(known, options, weights=weights)
        return {name: made[given] for name, given in self.handed.items()}

    def in_shape(self, name: str, features: NDArray[Any]) -> NDArray[Any]:
        """Features [N, H] with the axes, and in the type, that the embedding wants."""
        info = self._embedding.inputs[name]
        return info.wanted(features.reshape((1,) * (len(info.shape) - 2) + features.shape))

    def no_features(self, name: str) -> NDArray[Any]:
        """What the embedding gets where there is no image or sound."""
        info = self._embedding.inputs[name]
        sizes = [size if isinstance(size, int) and size > 0 else 0 for size in info.shape]
        return np.zeros(sizes, info.dtype)


def open_embedded(config: Config) -> Embedded:
    """Load model.embedding and model.decoder, and model.vision and model.speech where the config names files.

    Raises:
        ModelFolderError: a file is missing or damaged, or they do not fit.
    """
    section = config.model.embedding or {}
    options = section.get("session_options")
    embedding = open_session(config, section["filename"], options, "model.embedding.filename")
    decoder = open_session(config, config.model.decoder.filename)
    return Embedded(embedding, decoder, config, open_encoders(config, embedding))
