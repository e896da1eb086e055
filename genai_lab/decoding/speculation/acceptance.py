"""Which proposed tokens are taken, so that the text is distributed as the target model alone would write it.

Source: Leviathan et al. 2023, Chen et al. 2023 (speculative sampling).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_lab.sampling import RandomStream
from genai_lab.sampling.sampler import Candidates


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that somebody guesses come next, and with which probabilities they were drawn."""

    tokens: tuple[int, ...]
    drawn_from: tuple[Candidates | None, ...] | None = None
    """One a token, when the draft drew them; None: they are certain. None for a token: the grammar forces it."""
    chained: int = 0  # of the tokens, found by looking up proposed tokens
    source: int | None = None  # place in the text of what is proposed again; None: it is nowhere there
    forced: frozenset[int] = frozenset()  # places in `tokens` of those that a grammar forces: nobody guessed them
    waiting: tuple[int, ...] = ()  # forced tokens behind all of them, for which there was no room


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one proposed token."""

    token: int  # that is taken: the proposed one, or the correction
    accepted: bool
    target_probability: float  # of the proposed token
    draft_probability: float
    drawn: float | None = None  # the number in [0, 1) that decided; None: nothing was drawn


def accept_by_ratio(proposed: int, target: Candidates, draft: Candidates, stream: RandomStream) -> Verdict:
    """Take `proposed`, drawn from `draft`, with probability min(1, p_target / p_draft); else draw the correction from
    what the target has more of, max(0, p_target - p_draft)."""
    wanted, given = probability(target, proposed), probability(draft, proposed)
    number = stream.uniform()
    if number * given < wanted:
        return Verdict(proposed, True, wanted, given, number)
    return Verdict(correction(target, draft, stream), False, wanted, given, number)


def correction(target: Candidates, draft: Candidates, stream: RandomStream) -> int:
    """A token drawn from max(0, p_target - p_draft), counted by id, as onnxruntime-genai does."""
    target = by_id(target)
    wanted = target.weights / target.weights.sum(dtype=np.float64)
    given = probabilities(draft, target.ids)
    left: NDArray[np.float64] = np.maximum(wanted - given, 0.0)
    if not left.any():  # equal but for rounding
        left = np.asarray(wanted, np.float64)
    return int(target.ids[stream.draw(left)])


def by_id(candidates: Candidates) -> Candidates:
    """The same, lowest id first."""
    order = np.argsort(candidates.ids)
    return Candidates(candidates.ids[order], candidates.weights[order], candidates.kept)


def probability(candidates: Candidates, token: int) -> float:
    """Of `token`, 0 when a filter left it out."""
    place = (candidates.ids == token).argmax()
    if candidates.ids[place] != token:
        return 0.0
    return float(candidates.weights[place]) / float(candidates.weights.sum(dtype=np.float64))


def probabilities(candidates: Candidates, ids: NDArray[np.intp]) -> NDArray[np.float64]:
    """[n] of each of `ids` [n]."""
    order = np.argsort(candidates.ids)
    known = candidates.ids[order]
    place = np.minimum(np.searchsorted(known, ids), known.size - 1)
    weights = candidates.weights[order].astype(np.float64) / candidates.weights.sum(dtype=np.float64)
    return np.where(known[place] == ids, weights[place], 0.0)
