"""Counts of tokens that callers proposed, by onnxruntime-genai's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genai_lab.decoding.speculation import NOTHING_YET, SpeculativeStats
from genai_lab.engine.work import Work

MOST_DRAFTS = 16  # tokens in one proposal


@dataclass(slots=True)
class DraftCounts:
    """One engine's."""

    passes: int = 0  # steps that ran the model, whoever was answered
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    emitted: int = 0
    full: int = 0  # rounds of which every token was right
    none: int = 0  # rounds of which none was

    def count(self, work: Work) -> None:
        """A run that read proposed tokens."""
        proposed, accepted = work.decision.num_tokens - 1, len(work.more)
        self.rounds += 1
        self.proposed += proposed
        self.accepted += accepted
        self.emitted += 1 + accepted
        self.full += accepted == proposed
        self.none += accepted == 0

    def stats(self) -> dict[str, Any]:
        """As `Engine.get_speculative_stats` gives them; what an engine has no use for here is 0."""
        return SpeculativeStats().as_og_dict(**NOTHING_YET) | {
            "rounds": self.rounds,
            "completed_rounds": self.rounds,
            "draft_tokens_evaluated": self.accepted + self.rounds - self.full,
            "target_forward_passes": self.passes,
            "draft_tokens_proposed": self.proposed,
            "draft_tokens_accepted": self.accepted,
            "tokens_emitted": self.emitted,
            "bonus_tokens": self.full,
            "correction_tokens": self.rounds - self.full,
            "full_accept_rounds": self.full,
            "partial_accept_rounds": self.rounds - self.full - self.none,
            "zero_accept_rounds": self.none,
            "target_verify_forward_passes": self.rounds,
            "acceptance_rate": self.accepted / self.proposed if self.proposed else 0.0,
            "mean_emitted_tokens_per_round": self.emitted / self.rounds if self.rounds else 0.0,
        }
