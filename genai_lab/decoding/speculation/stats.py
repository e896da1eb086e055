"""What is counted of speculation, under onnxruntime-genai's names (get_speculative_stats)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class SpeculativeStats:
    """Counters of one generator, cumulative. Times in milliseconds."""

    rounds: int = 0
    completed_rounds: int = 0
    interrupted_rounds: int = 0
    draft_tokens_proposed: int = 0
    draft_tokens_evaluated: int = 0
    draft_tokens_accepted: int = 0
    correction_tokens: int = 0
    bonus_tokens: int = 0
    tokens_queued: int = 0
    tokens_emitted: int = 0
    tokens_discarded: int = 0
    draft_forward_passes: int = 0
    standard_fallback_steps: int = 0
    full_accept_rounds: int = 0
    partial_accept_rounds: int = 0
    zero_accept_rounds: int = 0
    target_verify_forward_passes: int = 0
    target_reanchor_forward_passes: int = 0
    target_reconciliation_forward_passes: int = 0
    ngram_lookup_hits: int = 0
    ngram_lookup_misses: int = 0
    ngram_lookup_tokens_proposed: int = 0
    ngram_chained_tokens_proposed: int = 0
    ngram_grammar_candidate_rejections: int = 0
    ngram_history_syncs: int = 0
    ngram_history_tokens_synced: int = 0
    total_draft_ms: float = 0.0
    total_reconciliation_ms: float = 0.0
    total_target_verify_ms: float = 0.0
    total_target_reanchor_ms: float = 0.0
    total_ngram_history_sync_ms: float = 0.0
    total_ngram_lookup_ms: float = 0.0
    rounds_by_width: dict[int, int] = field(default_factory=dict)  # {proposed tokens: rounds}
    guided: bool = False  # a grammar takes part: the formulas do not hold

    def count_round(self, proposed: int, evaluated: int, accepted: int, queued: int) -> None:
        """A round was verified.

        Args:
            evaluated: proposed tokens that were looked at, and not forced by a grammar.
            queued: tokens that it decided.
        """
        self.rounds += 1
        self.rounds_by_width[proposed] = self.rounds_by_width.get(proposed, 0) + 1
        self.draft_tokens_proposed += proposed
        self.draft_tokens_accepted += accepted
        self.draft_tokens_evaluated += evaluated
        self.bonus_tokens += queued > proposed
        self.correction_tokens += accepted < evaluated
        self.tokens_queued += queued

    def complete_round(self, evaluated: int, accepted: int) -> None:
        """Everything that a round decided was handed out."""
        self.completed_rounds += 1
        self.full_accept_rounds += 0 < accepted == evaluated
        self.partial_accept_rounds += 0 < accepted < evaluated
        self.zero_accept_rounds += accepted == 0 < evaluated

    def as_og_dict(self, **state: Any) -> dict[str, Any]:
        """Every field that onnxruntime-genai reports. `state`: what describes the present moment."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("rounds_by_width", "guided")}
        passes = (
            self.target_verify_forward_passes
            + self.target_reanchor_forward_passes
            + self.target_reconciliation_forward_passes
        )
        zeros = dict.fromkeys(_NEVER_HERE, 0) | {"acceptance_length_histogram": [0] * 8}  # an engine's
        return own | zeros | self._formulas() | {"target_forward_passes": passes} | state

    def _formulas(self) -> dict[str, Any]:
        """The analytical estimates; source: onnxruntime-genai's documentation of its statistics."""
        target = self.total_target_verify_ms + self.total_target_reanchor_ms
        supported = self.rounds > 0 and not self.guided
        acceptance = _ratio(self.draft_tokens_accepted, self.draft_tokens_evaluated)
        draft_a_token = _ratio(self.total_draft_ms, self.draft_tokens_proposed)
        proposed_a_round = _ratio(self.draft_tokens_proposed, self.rounds)
        emitted_a_round = _ratio(self.tokens_emitted, self.rounds)
        expected = _ratio(
            sum(count * sum(acceptance**i for i in range(width + 1)) for width, count in self.rounds_by_width.items()),
            self.rounds,
        )
        target_a_round = _ratio(target, self.rounds)
        baseline = _ratio(self.total_target_reanchor_ms, self.target_reanchor_forward_passes)
        known = supported and baseline > 0
        overhead = target_a_round / baseline - 1 if known else 0.0
        cost = 1 + proposed_a_round * draft_a_token / baseline + overhead if known else 0.0
        return {
            "formula_supported": supported,
            "total_target_ms": target,
            "avg_draft_ms_per_token": draft_a_token,
            "acceptance_rate": acceptance,
            "avg_draft_tokens_per_round": proposed_a_round,
            "mean_emitted_tokens_per_round": emitted_a_round,
            "expected_tokens_per_round": expected if supported else 0.0,
            "avg_target_ms_per_round": target_a_round,
            "target_baseline_ms_per_token": baseline,
            "target_overhead_ratio": overhead,
            "estimated_speedup": expected / cost if cost > 0 else 0.0,
            "observed_speedup": emitted_a_round / cost if cost > 0 else 0.0,
        }


_NEVER_HERE = (
    "mtp_failures",
    "dflash2_failures",
    "dflash2_disables",
    "dflash2_admission_misses",
)
"""Counters of things that genai_lab does not do, or that cannot happen here."""

NOTHING_YET = dict.fromkeys(
    (
        "active_rounds",
        "tokens_buffered",
        "effective_k",
        "adaptive_k_increases",
        "adaptive_k_decreases",
        "adaptive_k_observations",
        "adaptive_k_probes",
        "cooldown_entries",
        "cooldown_steps",
        "cooldown_remaining",
    ),
    0,
) | {"adaptive_k_throughput": 0.0}
"""The present moment of a generator that does not speculate."""


def _ratio(a: float, b: float) -> float:
    return a / b if b else 0.0
