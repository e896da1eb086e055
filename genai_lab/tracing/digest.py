"""One row of logits -> the few kilobytes a picture needs: the best candidates exactly, the rest as a histogram.

Receives raw logits [V] float32 and the ids already seen; returns a `Digest`. With the 64 best exact and 128 bins for
the others, softmax sums at other temperatures come out within 0.1 %: a slider needs neither the model nor the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import largest
from genai_lab.tracing.changes import mask_of, promoted
from genai_lab.tracing.tracer import Change, Masking

CANDIDATES = 64  # best tokens kept exactly
BINS = 128  # histogram of all others
DIGEST_FIELDS = (
    "prob",
    "rank",
    "entropy",
    "log_z",
    "tail_lo",
    "tail_hi",
    "tail_count",
    "tail_seen",
    "exact",
    "allowed",
    "allowed_mass",
)
"""What of a digest is a column of its own name."""
_FORBIDDEN_DELTA = np.float32(1e30)  # logits this far below the best are -inf or the lowest float: forbidden


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
    exact: int  # so many of top_ids are the most likely, without a gap
    allowed: int = 0  # tokens that a grammar left; 0: there was none
    allowed_mass: float = float("nan")  # probability of the tokens that a grammar left; NaN: there was none

    @classmethod
    def of_one(cls, token: int) -> Digest:
        """Of a token that no distribution is known of: the model was not asked."""
        nothing = float("nan")
        return cls(
            top_ids=np.array([token], np.int32),
            top_logits=np.zeros(1, np.float32),
            log_z=0.0,
            entropy=nothing,
            prob=nothing,
            rank=0,
            tail_lo=0.0,
            tail_hi=0.0,
            tail_count=np.zeros(BINS, np.uint32),
            tail_seen=np.zeros(BINS, np.uint16),
            exact=1,
        )

    def for_token(self, token: int) -> Digest:
        """The same distribution with another token as the chosen one; prob NaN and rank 0 when it is not in
        `top_ids`."""
        slots = np.flatnonzero(self.top_ids == token)
        if slots.size == 0:
            return replace(self, prob=float("nan"), rank=0)
        slot = int(slots[0])
        prob = float(np.exp(np.float64(self.top_logits[slot]) - np.float64(self.top_logits[0]) - self.log_z))
        return replace(self, prob=prob, rank=1 + int(np.count_nonzero(self.top_logits > self.top_logits[slot])))


class Digester:
    """Digests rows of one length, in memory that is taken once: fresh temporaries would cost more than the
    arithmetic."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._delta = np.empty(vocab_size, np.float32)
        self._scratch = np.empty(vocab_size, np.float32)
        self._mask = np.empty(vocab_size, np.bool_)
        self._index = np.empty(vocab_size, np.intp)

    def digest(
        self,
        logits: NDArray[np.float32],
        chosen: int,
        seen: NDArray[np.int32],
        changes: Sequence[Change | Masking] = (),
    ) -> Digest:
        """Digest one row.

        Args:
            logits: [V] float32, finite or -inf.
            chosen: the token that was picked.
            seen: distinct ids of the sequence before it, int32.
            changes: what processors did to the row; decides which less likely tokens are shown too.
        """
        delta, scratch, mask = self._delta, self._scratch, self._mask
        top, exact = _shown(logits, chosen, changes)
        np.subtract(logits[top[0]], logits, out=delta)  # [V], 0 = most likely
        allowed = None if delta.max() < _FORBIDDEN_DELTA else delta < _FORBIDDEN_DELTA
        np.exp(np.negative(delta, out=scratch), out=scratch)  # [V], weights; 0 for a forbidden token
        z = float(scratch.sum())
        grammar = mask_of(changes)
        left = float("nan") if grammar is None else float(scratch[grammar.allowed()].sum()) / z
        prob = float(scratch[chosen]) / z
        if allowed is not None:
            delta[~allowed] = 0.0  # so that 0 * inf is 0 below; _tail puts them aside
        mean_delta = float(np.dot(scratch, delta)) / z
        np.greater(logits, logits[chosen], out=mask)
        lo, hi, count, in_seen = self._tail(allowed, top, exact, seen)
        return Digest(
            top_ids=top.astype(np.int32),
            top_logits=logits[top],
            log_z=float(np.log(z)),
            entropy=float((np.log(z) + mean_delta) / np.log(2.0)),
            prob=prob,
            rank=1 + int(np.count_nonzero(mask)),
            tail_lo=lo,
            tail_hi=hi,
            tail_count=count,
            tail_seen=in_seen,
            exact=exact,
            allowed=0 if grammar is None else grammar.count,
            allowed_mass=left,
        )

    def _tail(
        self, allowed: NDArray[np.bool_] | None, top: NDArray[np.intp], exact: int, seen: NDArray[np.int32]
    ) -> tuple[float, float, NDArray[np.uint32], NDArray[np.uint16]]:
        """Histogram of the deltas of the allowed tokens outside `top`: lo, hi, counts, counts of those already seen."""
        delta, scratch, index = self._delta, self._scratch, self._index
        last = top[exact - 1]
        forbidden_top = allowed is not None and not allowed[last]
        hi = float(delta.max())
        lo = hi if forbidden_top else float(delta[last])
        if forbidden_top or delta.size == top.size:
            return lo, hi, np.zeros(BINS, np.uint32), np.zeros(BINS, np.uint16)
        scale = np.float32(BINS / (hi - lo)) if hi > lo else np.float32(0.0)
        np.multiply(np.subtract(delta, np.float32(lo), out=scratch), scale, out=scratch)
        np.clip(scratch, np.float32(0.0), np.float32(BINS - 1), out=scratch)
        scratch[top] = BINS  # one bin more, cut off below, for what is not in the tail
        if allowed is not None:
            scratch[~allowed] = BINS
        index[:] = scratch
        count = np.bincount(index, minlength=BINS + 1)[:BINS].astype(np.uint32)
        in_seen = np.bincount(index[seen], minlength=BINS + 1)[:BINS].astype(np.uint16)
        return lo, hi, count, in_seen


def _shown(
    logits: NDArray[np.float32], chosen: int, changes: Sequence[Change | Masking]
) -> tuple[NDArray[np.intp], int]:
    """Ids of the candidates, most likely first, and how many of them have no gap before them."""
    top = largest(logits, CANDIDATES)
    lifted = promoted(changes, logits, float(logits[top[-1]]), chosen)
    if np.isin(lifted, top).all():
        return top, top.size
    exact = top.size - lifted.size
    while exact + 1 + np.count_nonzero(~np.isin(lifted, top[: exact + 1])) <= top.size:
        exact += 1  # some are among the most likely anyway
    behind = lifted[~np.isin(lifted, top[:exact])]
    behind = behind[np.argsort(-logits[behind], kind="stable")]
    return np.concatenate([top[:exact], behind]).astype(np.intp), exact


def digest_logits(logits: NDArray[np.float32], chosen: int, seen: NDArray[np.int32]) -> Digest:
    """Digest one row; see `Digester.digest`."""
    return Digester(logits.size).digest(logits, chosen, seen)
