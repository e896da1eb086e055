"""Medians, their ratios and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Ratio:
    """median(numerator) / median(denominator) with a 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio_of_medians(numerator: Sequence[float], denominator: Sequence[float], seed: int = 0) -> Ratio:
    """Resamples both sides independently, 4,000 times."""
    rng = np.random.default_rng(seed)
    top, bottom = np.asarray(numerator), np.asarray(denominator)
    tops = np.median(rng.choice(top, (4000, top.size)), axis=1)
    bottoms = np.median(rng.choice(bottom, (4000, bottom.size)), axis=1)
    low, high = np.quantile(tops / bottoms, [0.025, 0.975])
    return Ratio(float(np.median(top) / np.median(bottom)), float(low), float(high))


def spread(values: Sequence[float]) -> str:
    """Median and the middle half, such as `12.3 (11.9 to 13.0)`."""
    low, middle, high = np.quantile(np.asarray(values), [0.25, 0.5, 0.75])
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"
