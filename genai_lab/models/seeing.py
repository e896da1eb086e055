"""One sequence of a model that sees or hears: prompts come with tensors of images and sounds.

A prompt's tensors run through their graphs once, when it is appended; then the embedding graph puts their features in
the places that the prompt has for them. The decoder reads what came out as it reads any text. Images and sounds may
come with any prompt, not only with the first.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import StateError
from genai_lab.models.embedding import Embedded
from genai_lab.models.encoders import Staged
from genai_lab.models.extras import RunExtras
from genai_lab.models.growing import GrowingState
from genai_lab.models.media_cuts import QWEN_VL
from genai_lab.models.media_doubts import doubts
from genai_lab.models.model import Model
from genai_lab.models.mrope import Grids, Marks, has_pictures, rope_places
from genai_lab.models.places import Encoding
from genai_lab.models.session import Arrays
from genai_lab.models.turns import Turn, Turns

_GRID = "image_grid_thw"


def look(graph: Embedded, given: Arrays, extras: RunExtras) -> tuple[Arrays, list[Encoding]]:
    """Run the graphs for images and sounds over what was given: {input of the embedding graph: features}, and the
    runs."""
    found: Arrays = {}
    runs: list[Encoding] = []
    for name, encoder in graph.encoders.items():
        began = perf_counter_ns()
        features = encoder.features(given, extras.options)
        if features is not None:
            found[name] = graph.in_shape(name, features)
            runs.append(Encoding(encoder.stage, began, perf_counter_ns(), features.shape[0]))
    return found, runs


class SeeingState(GrowingState):
    """The past of one sequence, and what its prompts with images and sounds became.

    Args:
        model: a loaded model with encoders.
        capacity: tokens, prompts included.
    """

    graph: Embedded

    def __init__(self, model: Model, capacity: int) -> None:
        self._staged, self._turns = Staged(model.encoders), Turns()
        self._first: Arrays = {}  # tensors of a prompt at the beginning, for when it is read once more
        self._shown: Arrays = {}  # features that the embedding graph was given for the last run
        config = model.config
        super().__init__(model, 1, capacity, RunExtras(model.graph, config, staged=self._staged))
        places = self.graph.inputs.get(config.model.decoder.inputs.position_ids)
        has_three = places is not None and len(places.shape) == 3
        self._marks = Marks.of(config) if has_three and config.model.type in QWEN_VL else None

    def encode(self, tokens: NDArray[np.int32], start: int) -> Sequence[Encoding]:
        """Run the graphs for images and sounds over what was set, and embed the prompt with what they give.

        Raises:
            StateError: the tensors do not go with one another or with the prompt.
        """
        self._turns.cut(start)
        given = self._staged.take()
        found, runs = look(self.graph, given, self.extras)
        pictures = self._marks is not None and has_pictures(tokens, self._marks)
        if not found and not pictures:
            return ()
        self._check(tokens, start, given, {run.stage: run.n for run in runs})
        places = self._places(tokens, start, given)
        began = perf_counter_ns()
        embeds = self._embed(tokens, found)
        runs.append(Encoding("run_embedding", began, perf_counter_ns(), tokens.size))
        self._turns.add(Turn(start, embeds, found, places))
        if start == 0:
            self._first = given
        return runs

    def forget(self, length: int) -> None:
        """What `encode` made of tokens from `length` on belongs to no text."""
        self._turns.cut(length)

    def rewind(self, length: int) -> int:
        """The text was cut to `length` tokens. Cut to none, the tensors of its first prompt are set for the next one,
        unless others were."""
        held = super().rewind(length)
        self._turns.cut(length)
        if length == 0 and not self._staged.given:
            self._staged.given = dict(self._first)
        return held

    def take_prefix(self, source: GrowingState, length: int) -> None:
        """Hold the first `length` tokens that `source` holds."""
        super().take_prefix(source, length)
        if isinstance(source, SeeingState):
            self._turns, self._first = source._turns.copy(length), source._first

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last run, of the embedding graph or the decoder."""
        if name in self.graph.handed and self._outputs:
            return self.output(self.graph.handed[name])
        return np.array(self._shown[name]) if name in self._shown else super().input(name)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _check(self, tokens: NDArray[np.int32], start: int, given: Arrays, found: dict[str, int]) -> None:
        """A first prompt is read whatever its places are, as in onnxruntime-genai, with a warning; a later one not."""
        words = doubts(tokens, given, found, self.model.config)
        if words is None:
            return
        if start:
            raise StateError(f"{words}; make both of one prompt, with the model's own processor")
        warnings.warn(f"{words}: what has no place is not seen or heard", stacklevel=6)

    def _places(self, tokens: NDArray[np.int32], start: int, given: Arrays) -> NDArray[np.int64]:
        """[3, n] of a prompt behind the first `start` tokens."""
        first = self._turns.next_place(start)
        if self._marks is None:
            return np.broadcast_to(first + np.arange(tokens.size), (3, tokens.size)).copy()
        none = np.zeros((0, 3), np.int64)
        seconds = given.get("second_per_grid_ts", np.zeros(0, np.float32)).reshape(-1)
        grids = Grids(given.get(_GRID, none).reshape(-1, 3), given.get("video_grid_thw", none).reshape(-1, 3), seconds)
        return rope_places(tokens, grids, first, self._marks)

    def _embed(self, tokens: NDArray[np.int32], features: Arrays) -> Arrays:
        names = self.model.config.model.decoder.inputs
        feeds = self.extras.used | {names.input_ids: tokens[None]} | features
        return self.graph.embed(feeds, self.extras.options, weights=self.extras.weights)

    def _inputs_of(self, ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> Arrays:
        """What follows from [1, S] tokens, with their embeddings where they cannot be made of the ids alone."""
        total = mask.shape[1]
        start = total - ids.shape[1]
        feeds, turns = super()._inputs_of(ids, mask), self._turns.among(start, total)
        name = self.model.config.model.decoder.inputs.position_ids
        if self._marks is not None:
            info = self.graph.inputs[name]
            feeds[name] = self._turns.places(start, total)[:, None].astype(info.dtype)
        self._shown = {n: self.graph.no_features(n) for n in self.graph.encoders}
        if not turns:
            return feeds
        parts, at = [], start
        for turn in turns:
            if at < turn.start:
                parts.append(self._embed(ids[0, at - start : turn.start - start], {}))
            first, at = max(at, turn.start), min(turn.stop, total)
            parts.append({n: v[:, first - turn.start : at - turn.start] for n, v in turn.embeds.items()})
        if at < total:
            parts.append(self._embed(ids[0, at - start :], {}))
        embeds = {n: np.concatenate([part[n] for part in parts], axis=1) for n in parts[0]}
        self._shown |= turns[-1].features
        return feeds | embeds
