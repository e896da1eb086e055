"""Speculation, the parts that decide: what an n-gram proposes, which proposals are taken, how wide to propose, what is
counted. No model and no cache; `generation.speculative` runs them."""

from __future__ import annotations

from genai_lab.decoding.speculation.acceptance import Proposal, Verdict, accept_by_ratio
from genai_lab.decoding.speculation.ngram import NgramLookup
from genai_lab.decoding.speculation.options import SpeculativeOptions
from genai_lab.decoding.speculation.stats import NOTHING_YET, SpeculativeStats
from genai_lab.decoding.speculation.width import AdaptiveWidth, Cooldown

__all__ = [
    "NOTHING_YET",
    "AdaptiveWidth",
    "Cooldown",
    "NgramLookup",
    "Proposal",
    "SpeculativeOptions",
    "SpeculativeStats",
    "Verdict",
    "accept_by_ratio",
]
