"""One row of logits -> the few kilobytes a picture needs: the best candidates exactly, the rest as a histogram.

Receives raw logits [V] float32 and the ids already seen; returns a `Digest`. With the 64 best exact and 128 bins for the
others, softmax sums at other temperatures come out within 0.1 %, so a slider needs neither the model nor the whole row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import largest

CANDIDATES = 64  # best tokens kept exactly
BINS = 128  # histogram of all others


@dataclass(frozen=True, slots=True)
class Digest:
    """The distribution of one step. Logits are raw: before any processor, temperature or filter."""

    top_ids: NDArray[np.int32]  # [K], most likely first
    top_logits: NDArray[np.float32]  # [K]
    log_z: float  # ln sum exp(logit - top logit) over the whole vocabulary
    entropy: float  # bits
    prob: float  # of the chosen token
    rank: int  # of the chosen token, 1 = most likely
    tail_lo: float  # top logit minus logit: the interval of the tokens that are not in top_ids
    tail_hi: float
    tail_count: NDArray[np.uint32]  # [BINS] tokens per equal bin of [tail_lo, tail_hi]
    tail_seen: NDArray[np.uint16]  # [BINS] of those, how many the sequence already holds


def digest_logits(logits: NDArray[np.float32], chosen: int, seen: NDArray[np.int32]) -> Digest:
    """Digest one row.

    Args:
        logits: [V] float32, finite or -inf.
        chosen: the token that was picked.
        seen: distinct ids of the sequence before it, int32.
    """
    top = largest(logits, CANDIDATES)
    highest = float(logits[top[0]])
    delta = np.subtract(np.float32(highest), logits)  # [V], 0 = most likely; inf = forbidden by the model itself
    weights = np.exp(np.negative(delta))  # [V]
    z = float(weights.sum(dtype=np.float64))
    finite = np.where(np.isfinite(delta), delta, np.float32(0.0)) if np.isinf(delta.max()) else delta
    mean_delta = float(np.dot(weights, finite)) / z
    lo, hi, count, in_seen = _tail(delta, top, seen)
    return Digest(
        top_ids=top.astype(np.int32),
        top_logits=logits[top],
        log_z=float(np.log(z)),
        entropy=float((np.log(z) + mean_delta) / np.log(2.0)),
        prob=float(weights[chosen]) / z,
        rank=1 + int(np.count_nonzero(logits > logits[chosen])),
        tail_lo=lo,
        tail_hi=hi,
        tail_count=count,
        tail_seen=in_seen,
    )


def _tail(
    delta: NDArray[np.float32], top: NDArray[np.intp], seen: NDArray[np.int32]
) -> tuple[float, float, NDArray[np.uint32], NDArray[np.uint16]]:
    """Histogram of the deltas of the tokens outside `top`; forbidden ones (inf) are in no bin."""
    lo = float(delta[top[-1]])
    largest = float(delta.max())
    hi = largest if np.isfinite(largest) else float(np.max(delta, where=np.isfinite(delta), initial=lo))
    if delta.size == top.size or hi <= lo:
        rest = int(delta.size - top.size)
        count = np.zeros(BINS, np.uint32)
        count[0] = rest if hi <= lo else 0
        return lo, hi, count, np.zeros(BINS, np.uint16)
    scale = np.float32(BINS / (hi - lo))
    # bin BINS collects the top candidates and the forbidden ones; it is cut off below
    bins = np.clip((delta - np.float32(lo)) * scale, -1.0, np.float32(BINS - 1) if np.isfinite(largest) else BINS)
    bins[top] = BINS
    index = np.maximum(bins, 0.0).astype(np.intp)
    count = np.bincount(index, minlength=BINS + 1)[:BINS].astype(np.uint32)
    in_seen = np.bincount(index[seen], minlength=BINS + 1)[:BINS].astype(np.uint16) if seen.size else np.zeros(BINS, np.uint16)
    return lo, hi, count, in_seen
