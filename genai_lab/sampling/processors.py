"""Logits processors: each changes one row of logits in place and returns which ids it changed.

Order and meaning are onnxruntime-genai's: guidance, min_length, repetition_penalty, no_repeat_ngram_size, then
selection. A person may put their own (`own`) between them and change the order.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import TokenMask

BUILT_IN = ("guidance", "min_length", "repetition_penalty", "no_repeat_ngram")
"""The names of our own processors, in og's order."""
FORBIDDEN = np.finfo(np.float32).min
"""The logit of a forbidden token: lowest finite float, so that softmax stays defined when everything is forbidden."""
NOTHING: NDArray[np.int32] = np.empty(0, np.int32)


class History(Protocol):
    """What a processor may read of the sequence so far (prompt and answer)."""

    @property
    def tokens(self) -> NDArray[np.int32]: ...  # [n]

    @property
    def distinct(self) -> NDArray[np.int32]: ...  # each id once, in order of first use

    @property
    def answer_start(self) -> int: ...  # index of the answer's first token


class LogitsProcessor(Protocol):
    """Changes `logits` [V] float32 in place; returns the changed ids, [k] int32, or the mask it put over them."""

    @property
    def name(self) -> str: ...

    def __call__(self, logits: NDArray[np.float32], history: History) -> NDArray[np.int32] | TokenMask: ...


class MaskSource(Protocol):
    """Says which tokens may follow an answer: a grammar's guide."""

    def mask(self, answer: NDArray[np.int32]) -> TokenMask: ...


class SearchSettings(Protocol):
    """The search options that processors are built from."""

    @property
    def min_length(self) -> int: ...
    @property
    def repetition_penalty(self) -> float: ...
    @property
    def no_repeat_ngram_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Guidance:
    """Forbids what a grammar does not allow after the answer so far (og: set_guidance)."""

    source: MaskSource
    name: str = "guidance"

    def __call__(self, logits: NDArray[np.float32], history: History) -> TokenMask:
        mask = self.source.mask(history.tokens[history.answer_start :])
        np.copyto(logits, FORBIDDEN, where=~mask.allowed())
        return mask


@dataclass(frozen=True, slots=True)
class MinLength:
    """No end token before the sequence, prompt included, has `min_length` tokens (og option min_length)."""

    min_length: int
    eos_token_ids: NDArray[np.int32]
    name: str = "min_length"

    def __call__(self, logits: NDArray[np.float32], history: History) -> NDArray[np.int32]:
        if history.tokens.size >= self.min_length:
            return NOTHING
        logits[self.eos_token_ids] = FORBIDDEN
        return self.eos_token_ids


@dataclass(frozen=True, slots=True)
class RepetitionPenalty:
    """Tokens of the sequence so far get less likely: positive logits are divided, negative ones multiplied, each id
    once.

    Source: Keskar et al. 2019 (CTRL), section 4.1; og option repetition_penalty.
    """

    penalty: float
    name: str = "repetition_penalty"

    def __call__(self, logits: NDArray[np.float32], history: History) -> NDArray[np.int32]:
        ids = history.distinct
        scores = logits[ids]
        penalty = np.float32(self.penalty)
        with np.errstate(over="ignore"):  # a forbidden token stays forbidden
            penalised = np.where(scores < 0, scores * penalty, scores / penalty)
        logits[ids] = np.maximum(penalised, FORBIDDEN)
        return ids


@dataclass(frozen=True, slots=True)
class NoRepeatNgram:
    """Forbids every token that would complete an n-gram that already occurred (og option no_repeat_ngram_size)."""

    size: int
    name: str = "no_repeat_ngram"

    def __call__(self, logits: NDArray[np.float32], history: History) -> NDArray[np.int32]:
        banned = ngram_continuations(history.tokens, self.size)
        logits[banned] = FORBIDDEN
        return banned


def ngram_continuations(tokens: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    """The distinct tokens that followed earlier occurrences of the last `size - 1` tokens.

    >>> ngram_continuations(np.array([5, 6, 7, 5, 6], np.int32), 3).tolist()
    [7]
    """
    if tokens.size < size:
        return NOTHING
    windows = np.lib.stride_tricks.sliding_window_view(tokens, size)  # [n - size + 1, size]
    prefix = tokens[tokens.size - size + 1 :]  # [size - 1]; empty for size 1: everything seen matches
    matches = (windows[:, :-1] == prefix).all(axis=1)
    found = np.unique(windows[matches, -1]).astype(np.int32)
    return found[found >= 0]  # a negative one stands for an image, and cannot be generated


def build_processors(options: SearchSettings, eos_token_ids: Seq[int]) -> tuple[LogitsProcessor, ...]:
    """The processors that these options switch on, in og's order."""
    processors: list[LogitsProcessor] = []
    if options.min_length > 0:
        processors.append(MinLength(options.min_length, np.array(eos_token_ids, np.int32)))
    if options.repetition_penalty != 1.0:
        processors.append(RepetitionPenalty(options.repetition_penalty))
    if options.no_repeat_ngram_size > 0:
        processors.append(NoRepeatNgram(options.no_repeat_ngram_size))
    return tuple(processors)
