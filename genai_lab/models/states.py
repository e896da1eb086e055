"""Which state a generator's rows need: what the drivers may rely on, and the choice by the kind of graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import StateError
from genai_lab.models.batch import BatchState, Reading
from genai_lab.models.decoder import DecoderState
from genai_lab.models.encoder_decoder import EncoderDecoderState
from genai_lab.models.extras import RunExtras
from genai_lab.models.growing import GrowingState
from genai_lab.models.model import Model
from genai_lab.models.places import Encoding
from genai_lab.models.seeing import SeeingState
from genai_lab.models.seeing_rows import SeeingRows
from genai_lab.models.window import ONE_ROW, WindowedState, slides_inputs


class OneRow(Protocol):
    """A running decoder with one sequence."""

    extras: RunExtras
    terminated: bool

    # [S] new tokens after `cached` ones; without `every` nobody looks at logits but the last token's
    def prepare(self, tokens: NDArray[np.int32], cached: int, *, every: bool = False) -> None: ...
    def run(self) -> None: ...
    def read_logits(self) -> NDArray[np.float32]: ...  # [V], of the last token; the next run overwrites them
    def read_all_logits(self) -> NDArray[np.float32]: ...  # [S or 1, V], of every position that the graph gives
    def output(self, name: str, length: int) -> NDArray[Any]: ...
    def input(self, name: str) -> NDArray[Any]: ...
    def take_prefix(self, source: Any, length: int) -> None: ...
    def admit(self, tokens: NDArray[np.int32], length: int, /) -> NDArray[np.int32]: ...  # as they enter the text
    def rewind(self, length: int) -> int: ...  # how many of the first `length` tokens are still held
    def snapshot(self) -> None: ...  # a place for a later rewind
    def encode(self, tokens: NDArray[np.int32], start: int, /) -> Sequence[Encoding]: ...  # of images and sounds
    def forget(self, length: int) -> None: ...  # what was encoded from there on


class ManyRows(Protocol):
    """A running decoder with several sequences."""

    extras: RunExtras

    @property
    def lengths(self) -> NDArray[np.int64]: ...  # [rows]
    def read_rows(self, prompts: Sequence[NDArray[np.int32]], chunk_size: int | None, /) -> list[Reading]: ...
    def decode(self, tokens: NDArray[np.int32]) -> None: ...  # [rows]
    def last_logits(self) -> NDArray[np.float32]: ...  # [rows, V]; the next run overwrites them
    def reorder(self, parents: Sequence[int], begin: Sequence[int], /) -> None: ...
    def clear(self) -> None: ...
    def encode(self, tokens: NDArray[np.int32], start: int, /) -> Sequence[Encoding]: ...  # of images and sounds
    def forget(self, length: int) -> None: ...  # what was encoded
    def input(self, name: str) -> NDArray[Any]: ...
    def output(self, name: str) -> NDArray[Any]: ...


def make_one(model: Model, capacity: int, *, sees: bool = False) -> OneRow:
    """The state of one sequence of at most `capacity` tokens; `sees`: its driver calls `encode`."""
    model.check_has_rows()
    if sees and model.encoders:
        return SeeingState(model, capacity)
    if model.encoder is not None:
        return EncoderDecoderState(model, 1, capacity)
    if slides_inputs(model.config):
        return WindowedState(model, capacity)
    return DecoderState(model, capacity) if model.appends_in_place else GrowingState(model, 1, capacity)


def make_rows(model: Model, rows: int, capacity: int, *, sees: bool = False) -> ManyRows:
    """The state of `rows` sequences of at most `capacity` tokens; `sees`: its driver calls `encode`."""
    model.check_has_rows()
    if sees and model.encoders:
        return SeeingRows(model, rows, capacity)
    if model.encoder is not None:
        return EncoderDecoderState(model, rows, capacity)
    if slides_inputs(model.config):
        raise StateError(ONE_ROW.format(rows=rows))
    return BatchState(model, rows, capacity) if model.appends_in_place else GrowingState(model, rows, capacity)
