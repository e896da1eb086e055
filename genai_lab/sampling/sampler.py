"""Selection: temperature, top-k, top-p, min-p, and the draw. Receives processed logits [V]; returns a `Choice`.

onnxruntime-genai's rules: top-k first; softmax at the temperature over what is left; top-p keeps the best until their
sum reaches p, inside the renormalised top-k. min-p (ours) then drops what is less likely than min_p times the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import largest
from genai_lab.sampling.mode import SelectionSettings
from genai_lab.sampling.random_stream import RandomStream

_FIRST_GUESS = 256  # candidates looked at before a nucleus makes us sort the whole vocabulary


class Choice(NamedTuple):
    """One selected token."""

    token: int
    probability: float  # it was drawn with; 1 when greedy
    kept: tuple[int, int, int]  # candidates left after top-k, top-p, min-p
    stop: str | None = None  # why a person's stopping rule ends the sequence after it


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the filters left, in the order in which the draw counts them."""

    ids: NDArray[np.intp]  # [n]
    weights: NDArray[np.float32]  # [n], their sum is not 1 after a filter
    kept: tuple[int, int, int]


def choose_greedy(logits: NDArray[np.float32]) -> Choice:
    """The most likely token; the lowest id among equals."""
    return Choice(int(logits.argmax()), 1.0, (1, 1, 1))


def choose_sample(logits: NDArray[np.float32], options: SelectionSettings, stream: RandomStream) -> Choice:
    """Draw one token from `logits` [V] float32 under `options`, with `stream`'s next random number."""
    candidates = filter_candidates(logits, options)
    drawn = stream.draw(candidates.weights)
    share = float(candidates.weights[drawn]) / float(candidates.weights.sum(dtype=np.float64))
    return Choice(int(candidates.ids[drawn]), share, candidates.kept)


def filter_candidates(logits: NDArray[np.float32], options: SelectionSettings) -> Candidates:
    """Apply temperature, top-k, top-p and min-p to `logits` [V]."""
    if options.top_k > 0:
        ids = largest(logits, options.top_k)
        weights = softmax(logits[ids], options.temperature)
        nucleus = nucleus_size(weights, options.top_p)
        left = min_p_size(weights[:nucleus], options.min_p)
        return Candidates(ids[:left], weights[:left], (ids.size, nucleus, left))
    weights = softmax(logits, options.temperature)
    return _filter_whole(weights, options)


def _filter_whole(weights: NDArray[np.float32], options: SelectionSettings) -> Candidates:
    """No top-k: the draw counts the kept tokens by id, as og does."""
    vocabulary = weights.size
    best = largest(weights, _FIRST_GUESS)
    if 0.0 < options.top_p < 1.0 and float(np.cumsum(weights[best])[-1]) < options.top_p:
        best = np.argsort(-weights, kind="stable")
    nucleus = vocabulary
    if 0.0 < options.top_p < 1.0:
        nucleus = nucleus_size(weights[best], options.top_p)
    left = nucleus
    if options.min_p > 0.0:
        above = np.flatnonzero(weights >= np.float32(options.min_p) * weights[best[0]])
        left = min(nucleus, above.size)
        if left > best.size:
            best = np.argsort(-weights, kind="stable")
    ids = np.arange(vocabulary) if left == vocabulary else np.sort(best[:left])
    return Candidates(ids, weights[ids], (vocabulary, nucleus, left))


def softmax(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """Probabilities [n] float32 of `logits` [n] at a temperature above 0."""
    with np.errstate(over="ignore"):  # a forbidden logit, the lowest float, becomes -inf at a temperature below 1
        scaled = (logits - logits.max()) / np.float32(temperature)
    weights = np.exp(scaled, dtype=np.float32)
    shares: NDArray[np.float32] = weights / weights.sum()
    return shares


def nucleus_size(weights: NDArray[np.float32], top_p: float) -> int:
    """How many of `weights`, sorted from the largest, are needed until their sum reaches `top_p`; all when it is
    off."""
    if not 0.0 < top_p < 1.0:
        return int(weights.size)
    reached = np.cumsum(weights, dtype=np.float32) >= np.float32(top_p)
    return int(reached.argmax()) + 1 if reached[-1] else int(weights.size)


def min_p_size(weights: NDArray[np.float32], min_p: float) -> int:
    """How many of the sorted `weights` are at least `min_p` times the first; at least one. Source: Nguyen et al.
    2024."""
    if min_p <= 0.0:
        return int(weights.size)
    return max(1, int(np.count_nonzero(weights >= np.float32(min_p) * weights[0])))
