"""Filters against plain restatements, draws against theory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from genai_lab.arrays import largest
from genai_lab.config.search import SearchOptions
from genai_lab.sampling import (
    RandomStream,
    RepetitionPenalty,
    SamplingMode,
    choose_greedy,
    choose_sample,
    effective_mode,
)
from genai_lab.sampling.beam import BeamSearch
from genai_lab.sampling.sampler import filter_candidates


@dataclass(frozen=True)
class Options:
    do_sample: bool = True
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    min_p: float = 0.0


rows = st.lists(st.floats(-8, 8, width=32), min_size=3, max_size=60)
options = st.builds(
    Options,
    temperature=st.floats(0.2, 3.0),
    top_k=st.integers(0, 70),
    top_p=st.floats(0.0, 1.0),
    min_p=st.floats(0.0, 0.9),
)


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=2000), st.integers(1, 80))
def test_largest_equals_a_stable_sort(values: list[float], k: int) -> None:
    array = np.array(values, np.float32)
    assert largest(array, k).tolist() == np.argsort(-array, kind="stable")[:k].tolist()


def test_largest_takes_its_fast_way_on_a_vocabulary() -> None:
    values = np.random.default_rng(0).standard_normal(49_152).astype(np.float32)
    values[[5, 77, 40_000]] = values.max()  # equals, in the order of their ids
    assert largest(values, 64).tolist() == np.argsort(-values, kind="stable")[:64].tolist()


@given(rows, options)
def test_filters_keep_what_the_rules_say(row: list[float], settings: Options) -> None:
    logits = np.array(row, np.float32)
    kept = set(filter_candidates(logits, settings).ids.tolist())
    scaled = (logits.astype(np.float64) - logits.max()) / settings.temperature
    order = np.argsort(-logits, kind="stable")
    if settings.top_k > 0:
        order = order[: settings.top_k]
    weights = np.exp(scaled[order])
    weights /= weights.sum()
    if 0.0 < settings.top_p < 1.0:
        before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
        surely = before < settings.top_p - 1e-5
        perhaps = before < settings.top_p + 1e-5
    else:
        surely = perhaps = np.ones(order.size, bool)
    ratio = weights / weights[0]
    if settings.min_p > 0.0:
        surely = surely & (ratio >= settings.min_p * (1 + 1e-5))
        perhaps = perhaps & (ratio >= settings.min_p * (1 - 1e-5))
    surely[0] = True
    assert set(order[surely].tolist()) <= kept <= set(order[perhaps].tolist()) | {int(order[0])}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        Options(top_k=0),
        Options(top_k=5),
        Options(top_k=5, temperature=0.5),
        Options(top_k=20, top_p=0.8, temperature=1.4),
        Options(top_k=0, top_p=0.7),
        Options(top_k=0, min_p=0.1),
        Options(top_k=12, top_p=0.95, min_p=0.05),
    ],
)
def test_draws_follow_the_distribution(settings: Options) -> None:
    logits = (np.random.default_rng(3).standard_normal(30) * 2).astype(np.float32)
    candidates = filter_candidates(logits, settings)
    expected = np.zeros(30)
    expected[candidates.ids] = candidates.weights / candidates.weights.sum()
    stream, draws = RandomStream(11), 20_000
    counts = np.zeros(30)
    for _ in range(draws):
        counts[choose_sample(logits, settings, stream).token] += 1
    assert counts[expected == 0].sum() == 0
    common = expected * draws >= 5
    rest = ~common & (expected > 0)
    chi = ((counts - expected * draws)[common] ** 2 / (expected * draws)[common]).sum()
    if rest.any():
        chi += (counts[rest].sum() - expected[rest].sum() * draws) ** 2 / (expected[rest].sum() * draws)
    degrees = int(common.sum()) + int(rest.any()) - 1
    assert chi < degrees + 5 * np.sqrt(2 * degrees) + 10  # about six standard deviations: never by chance


@given(rows, options)
def test_the_reported_probability_is_the_drawn_ones_share(row: list[float], settings: Options) -> None:
    logits = np.array(row, np.float32)
    choice = choose_sample(logits, settings, RandomStream(5))
    candidates = filter_candidates(logits, settings)
    share = candidates.weights[candidates.ids == choice.token].sum() / candidates.weights.sum()
    assert choice.probability == pytest.approx(share, rel=1e-5)
    assert choice.kept == candidates.kept


def test_mt19937_words_are_the_standards() -> None:
    words = RandomStream(5489)._words.random_raw(10_000)
    assert int(words[-1]) == 4_123_659_995  # C++ standard, 26.6.5: the 10,000th word of a default mt19937


def test_one_candidate_costs_no_random_number() -> None:
    stream = RandomStream(1)
    before = stream.state
    assert stream.draw(np.array([3.0], np.float32)) == 0
    np.testing.assert_array_equal(stream.state["state"]["key"], before["state"]["key"])


def test_a_restored_stream_repeats_itself() -> None:
    stream, weights = RandomStream(None), np.ones(1000)
    state = stream.state
    first = [stream.draw(weights) for _ in range(20)]
    stream.restore(state)
    assert [stream.draw(weights) for _ in range(20)] == first


def test_greedy_takes_the_first_of_equals() -> None:
    assert choose_greedy(np.array([1, 3, 3, 2], np.float32)).token == 1


@pytest.mark.parametrize(
    ("settings", "og", "mode", "word"),
    [
        (Options(do_sample=False), False, SamplingMode.GREEDY, "do_sample"),
        (Options(top_k=1), False, SamplingMode.GREEDY, "top_k is 1"),
        (Options(temperature=0.0), False, SamplingMode.GREEDY, "temperature"),
        (Options(top_k=0, top_p=0.0), False, SamplingMode.SAMPLE, "whole distribution"),
        (Options(top_k=0, top_p=0.0), True, SamplingMode.GREEDY, "og_compat"),
        (Options(top_k=0, top_p=0.9), True, SamplingMode.SAMPLE, "filters"),
    ],
)
def test_the_effective_mode_says_why(settings: Options, og: bool, mode: SamplingMode, word: str) -> None:
    effective = effective_mode(settings, og_compat=og)
    assert effective.mode is mode
    assert word in effective.reason


@dataclass
class Seen:
    tokens: NDArray[np.int32]
    distinct: NDArray[np.int32]


SEEN = Seen(np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32))


@pytest.mark.parametrize("temperature", [1e-30, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("penalty", [1e-30, 1.0, 1e30])
def test_the_ends_of_what_is_allowed_stay_numbers(temperature: float, penalty: float) -> None:
    """Nothing overflows into NaN (numpy's warnings are errors here), whatever a model's logits are."""
    options = SearchOptions(context_length=8).with_options(
        do_sample=True, temperature=temperature, repetition_penalty=penalty, top_k=0, length_penalty=1e30
    )
    for scale in (1e-3, 1.0, 1e4):
        logits = (np.array([3, -2, 0, 5, -7, 1], np.float32) * np.float32(scale)).astype(np.float32)
        RepetitionPenalty(options.repetition_penalty)(logits, SEEN)
        assert np.isfinite(logits).all()
        weights = filter_candidates(logits, options).weights
        assert np.isfinite(weights).all() and abs(float(weights.sum()) - 1) < 1e-6


@pytest.mark.parametrize("penalty", [-1e30, -400.0, 400.0, 1e30])
def test_a_length_penalty_of_any_size_gives_a_score(penalty: float) -> None:
    scores = [BeamSearch(2, {0}, penalty)._penalised(-3.0, length) for length in (2, 900)]
    assert scores == ([0.0, 0.0] if penalty > 0 else [-np.inf, -np.inf])
