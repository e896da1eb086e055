"""A digest against the whole row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_lab.sampling import FORBIDDEN
from genai_lab.tracing import BINS, CANDIDATES, digest_logits

NONE = np.empty(0, np.int32)


def row(seed: int, size: int, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


@given(st.integers(0, 1000), st.sampled_from([5, 63, 64, 65, 300, 5000, 40_000]), st.floats(0.01, 12))
def test_numbers_are_those_of_a_plain_softmax(seed: int, size: int, scale: float) -> None:
    logits = row(seed, size, scale)
    chosen = int(np.random.default_rng(seed + 1).integers(size))
    digest = digest_logits(logits, chosen, NONE)
    wide = logits.astype(np.float64)
    prob = np.exp(wide - wide.max())
    prob /= prob.sum()
    assert digest.prob == pytest.approx(prob[chosen], rel=1e-4, abs=1e-12)
    assert digest.rank == 1 + int((logits > logits[chosen]).sum())
    entropy = -np.sum(prob * np.log2(prob, where=prob > 0, out=np.zeros_like(prob)))
    assert digest.entropy == pytest.approx(entropy, rel=1e-3, abs=1e-4)
    assert digest.top_ids.tolist() == np.argsort(-logits, kind="stable")[:CANDIDATES].tolist()
    assert int(digest.tail_count.sum()) == max(0, size - CANDIDATES)


@pytest.mark.parametrize("temperature", [0.5, 0.8, 1.0, 1.5, 2.0])
def test_the_histogram_stands_for_the_tail_at_any_temperature(temperature: float) -> None:
    logits = row(1, 49_152)
    digest = digest_logits(logits, 0, NONE)
    wide = logits.astype(np.float64)
    exact = np.exp((wide - wide.max()) / temperature).sum()
    centres = digest.tail_lo + (np.arange(BINS) + 0.5) * (digest.tail_hi - digest.tail_lo) / BINS
    top = np.exp((digest.top_logits.astype(np.float64) - wide.max()) / temperature).sum()
    tail = (digest.tail_count * np.exp(-centres / temperature)).sum()
    assert (top + tail) == pytest.approx(exact, rel=2e-3)


def test_seen_tokens_are_counted_in_their_bins() -> None:
    logits = row(2, 5000)
    seen = np.arange(0, 5000, 7, dtype=np.int32)
    digest = digest_logits(logits, 0, seen)
    outside = np.setdiff1d(seen, digest.top_ids)
    assert int(digest.tail_seen.sum()) == outside.size
    assert (digest.tail_seen <= digest.tail_count).all()


@pytest.mark.parametrize("forbidden", [-np.inf, FORBIDDEN])
def test_a_model_that_forbids_tokens_itself(forbidden: float) -> None:
    logits = row(3, 5000)
    logits[100:4000] = forbidden
    digest = digest_logits(logits, 7, NONE)
    assert np.isfinite([digest.entropy, digest.log_z, digest.prob, digest.tail_lo, digest.tail_hi]).all()
    assert int(digest.tail_count.sum()) == 5000 - 3900 - CANDIDATES


def test_equal_logits_give_the_uniform_distribution() -> None:
    digest = digest_logits(np.zeros(1024, np.float32), 5, NONE)
    assert digest.entropy == pytest.approx(10.0, rel=1e-6)
    assert digest.rank == 1
    assert int(digest.tail_count.sum()) == 1024 - CANDIDATES
