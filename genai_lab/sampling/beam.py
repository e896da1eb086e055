"""Beam search, the part that decides: candidates of one prompt's beams in, the next beams and the finished texts out.

Pure: it holds scores and finished token rows, no model and no cache. Rules and order are onnxruntime-genai's: a
finished text leaves its end token out; its score is the sum of its tokens' log-probabilities divided by
length^length_penalty, the prompt counted in the length.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import largest

_NEVER = np.float32(-1e9)
"""Score of the beams that are still copies of the first one: only the first may be continued from the prompt."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One beam continued by one token."""

    parent: int  # which of the prompt's beams, 0-based
    token: int
    score: float  # sum of log-probabilities


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished text."""

    tokens: NDArray[np.int32]  # [n], prompt included, end token left out
    score: float  # after the length penalty


@dataclass(frozen=True, slots=True)
class BeamStep:
    """What one step decided for one prompt."""

    chosen: tuple[Candidate, ...]  # one per beam, best first; empty when the search is done
    finished: tuple[Hypothesis, ...]  # texts that ended in this step
    done: bool


@dataclass(slots=True)
class BeamSearch:
    """The beams of one prompt.

    Args:
        num_beams: texts that are continued side by side.
        eos_token_ids: tokens that end a text.
        length_penalty: above 1 prefers long texts, below 1 short ones (og option length_penalty).
        early_stopping: stop as soon as num_beams texts are finished; otherwise only when none can get better.

    Source: onnxruntime-genai's beam search; Wu et al. 2016 for the length penalty's idea.
    """

    num_beams: int
    eos_token_ids: Collection[int]
    length_penalty: float = 1.0
    early_stopping: bool = True
    scores: NDArray[np.float32] = field(init=False)  # [num_beams]
    finished: list[Hypothesis] = field(init=False, default_factory=list)  # at most num_beams, best first
    done: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.scores = np.full(self.num_beams, _NEVER, np.float32)
        self.scores[0] = 0.0

    def candidates(self, logits: NDArray[np.float32]) -> list[Candidate]:
        """The best continuations, best first, of `logits` [num_beams, V] after the processors: so many that num_beams
        are left when every beam may end too."""
        totals = log_softmax(logits) + self.scores[:, None]
        best = largest(totals.reshape(-1), self.num_beams * (1 + max(1, len(self.eos_token_ids))))
        parents, tokens = np.divmod(best, logits.shape[1])
        scores = totals.reshape(-1)[best]
        return [
            Candidate(int(parent), int(token), float(score))
            for parent, token, score in zip(parents, tokens, scores, strict=True)
        ]

    def advance(self, candidates: Sequence[Candidate], rows: Sequence[NDArray[np.int32]]) -> BeamStep:
        """Choose the next beams.

        Args:
            candidates: best first, as `candidates` returns them.
            rows: [num_beams] the beams' tokens so far, prompt included.
        """
        chosen: list[Candidate] = []
        ended: list[Hypothesis] = []
        for rank, candidate in enumerate(candidates):
            if candidate.token in self.eos_token_ids:
                if rank < self.num_beams:  # an end that is worse than num_beams others is forgotten
                    ended.append(self._finish(rows[candidate.parent], candidate.score))
            else:
                chosen.append(candidate)
            if len(chosen) == self.num_beams:
                break
        self.scores[: len(chosen)] = [candidate.score for candidate in chosen]
        self.done = self._is_done(candidates[0].score, len(rows[0]))
        return BeamStep(() if self.done else tuple(chosen), tuple(ended), self.done)

    def results(self, rows: Sequence[NDArray[np.int32]], count: int) -> list[Hypothesis]:
        """The `count` best texts, best first; beams that did not end take part as they are."""
        found = list(self.finished)
        if not self.done:
            for row, score in zip(rows, self.scores, strict=True):
                found = self._with(found, Hypothesis(row.copy(), self._penalised(float(score), len(row))))
        return found[:count]

    def _finish(self, row: NDArray[np.int32], score: float) -> Hypothesis:
        text = Hypothesis(row.copy(), self._penalised(score, len(row)))
        self.finished = self._with(self.finished, text)
        return text

    def _with(self, texts: list[Hypothesis], text: Hypothesis) -> list[Hypothesis]:
        """The best num_beams of `texts` and `text`; among equals the earlier one stays ahead."""
        return sorted([*texts, text], key=lambda each: -each.score)[: self.num_beams]

    def _is_done(self, best_score: float, length: int) -> bool:
        if len(self.finished) < self.num_beams:
            return False
        return self.early_stopping or self.finished[-1].score >= self._penalised(best_score, length)

    def _penalised(self, score: float, length: int) -> float:
        with np.errstate(all="ignore"):  # a penalty of hundreds: the power is 0 or infinite, as in onnxruntime-genai
            return float(np.float32(score) / np.float32(length) ** np.float32(self.length_penalty))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-probabilities [rows, V] float32 of `logits` [rows, V]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    sums = np.exp(shifted).sum(axis=1, keepdims=True)
    logs: NDArray[np.float32] = shifted - np.log(sums)
    return logs
