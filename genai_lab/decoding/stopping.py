"""When a sequence ends."""

from __future__ import annotations

from dataclasses import dataclass

from genai_lab.types import FinishReason


@dataclass(frozen=True, slots=True)
class StopRule:
    """Ends at an end-of-sequence token or at max_length, prompt included."""

    eos_token_ids: frozenset[int]
    max_length: int

    def after(self, token: int, length: int) -> FinishReason | None:
        """Why a sequence that has just chosen `token` and then counts `length` tokens is finished; None while it goes
        on."""
        if token in self.eos_token_ids:
            return FinishReason.EOS
        if length >= self.max_length:
            return FinishReason.MAX_SESSION_TOKENS
        return None
