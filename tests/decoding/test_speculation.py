"""Speculation's parts alone: lookups, acceptance, the width, the pause."""

from __future__ import annotations

import numpy as np
import pytest

from genai_lab.config import SpeculativeConfig
from genai_lab.decoding.speculation import (
    AdaptiveWidth,
    Cooldown,
    NgramLookup,
    SpeculativeOptions,
    SpeculativeStats,
    accept_by_ratio,
)
from genai_lab.decoding.speculation.acceptance import probabilities, probability
from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.sampling import RandomStream
from genai_lab.sampling.sampler import Candidates


def lookup(size: int, tokens: list[int]) -> NgramLookup:
    made = NgramLookup(size)
    made.sync(tokens)
    return made


def test_the_most_recent_earlier_occurrence_is_continued() -> None:
    assert lookup(3, [1, 2, 7, 1, 2, 8, 1, 2]).propose(3, chained=False) == [8, 1, 2]


def test_what_never_occurred_before_proposes_nothing() -> None:
    assert lookup(3, [1, 2, 3]).propose(4, chained=False) == []
    assert lookup(3, [1]).propose(4, chained=False) == []
    assert lookup(3, []).propose(4, chained=True) == []


def test_a_chain_goes_on_where_the_text_ends() -> None:
    tokens = [1, 2, 1, 2]
    assert lookup(3, tokens).propose(5, chained=False) == [1, 2]
    assert lookup(3, tokens).propose(5, chained=True) == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("seed", range(20))
def test_knowing_bit_by_bit_is_knowing_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 4, 60).tolist()
    made = NgramLookup(3)
    for stop in (3, 10, 11, 40, 25, 60):  # also after the text was cut
        made.sync(tokens[:stop])
        assert made.propose(4, chained=False) == lookup(3, tokens[:stop]).propose(4, chained=False)
    assert made.sync(tokens) == 0


def candidates(weights: list[float]) -> Candidates:
    return Candidates(np.arange(len(weights)), np.array(weights, np.float32), (0, 0, 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "draft"),
    [([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), ([0.0, 0.6, 0.4], [0.9, 0.05, 0.05]), ([0.25, 0.25, 0.5], [0.25, 0.25, 0.5])],
)
def test_what_is_taken_is_distributed_as_the_target(target: list[float], draft: list[float]) -> None:
    stream, count = RandomStream(5), 4000
    taken = np.zeros(3)
    for _ in range(count):
        proposed = stream.draw(np.array(draft))
        verdict = accept_by_ratio(proposed, candidates(target), candidates(draft), stream)
        assert verdict.accepted == (verdict.token == proposed)
        taken[verdict.token] += 1
    expected = np.array(target) * count
    assert taken[expected == 0].sum() == 0
    chi = ((taken - expected)[expected > 0] ** 2 / expected[expected > 0]).sum()
    assert chi < 13.8  # 2 degrees of freedom, p = 0.001


def observed(width: AdaptiveWidth, accepted: int, milliseconds: float = 1.0, *, rounds: int = 1) -> None:
    """So many rounds in which `accepted` proposed tokens were taken and one more was written."""
    for _ in range(rounds):
        width.observe(accepted + 1, accepted, min(accepted + 1, width.width), milliseconds)


def test_a_wider_proposal_is_tried_when_most_is_taken_and_kept_when_it_pays() -> None:
    width = AdaptiveWidth(floor=2, fixed=4)
    observed(width, 2)
    assert (width.width, width.probes) == (2, 0)  # one round could be luck
    observed(width, 2)
    assert (width.width, width.probes) == (3, 1)
    observed(width, 3, rounds=2)
    assert (width.width, width.increases) == (3, 1)
    observed(width, 3)  # one round of rest after a success
    assert width.width == 3
    observed(width, 3)
    assert (width.width, width.probes) == (4, 2)


def test_a_wider_proposal_that_is_slow_is_taken_back() -> None:
    width = AdaptiveWidth(floor=2, fixed=4)
    observed(width, 2, rounds=2)
    observed(width, 3, milliseconds=10.0)
    assert (width.width, width.increases, width.decreases) == (2, 1, 1)
    observed(width, 2, rounds=6)  # rest after a failure
    assert width.width == 2
    observed(width, 2)
    assert width.width == 3


def test_a_narrower_proposal_is_tried_when_little_is_taken() -> None:
    width = AdaptiveWidth(floor=2, fixed=4)
    observed(width, 2, rounds=2)
    observed(width, 3, rounds=2)
    assert width.width == 3
    observed(width, 0, rounds=3)
    assert (width.width, width.probes, width.decreases) == (2, 2, 1)
    observed(width, 1, milliseconds=0.2, rounds=2)
    assert width.width == 2


def test_the_throughput_is_the_mean_of_tokens_by_the_mean_of_time() -> None:
    width = AdaptiveWidth(floor=2, fixed=4)
    assert width.throughput == 0
    observed(width, 2, milliseconds=3.0)
    assert width.throughput == pytest.approx(1.0)
    observed(width, 2, milliseconds=7.0)  # a quarter of what it says is taken over
    assert width.width == 3  # a probe, which says nothing yet: the width before it speaks
    assert width.throughput == pytest.approx(3 / 4)
    observed(width, 3, milliseconds=2.0)
    assert width.throughput == pytest.approx(2.0)
    width.reset()
    assert (width.width, width.throughput, width.observations, width.probes) == (2, 0, 3, 1)


def test_what_was_learnt_of_a_width_stays_known_when_it_is_tried_again() -> None:
    width = AdaptiveWidth(floor=2, fixed=4)
    observed(width, 2, rounds=2)
    observed(width, 3, milliseconds=100.0)
    assert width.width == 2
    observed(width, 2, rounds=7)
    assert width.width == 3
    observed(width, 3)  # fast this time, but three quarters of the estimate are the slow round's
    assert (width.width, width.decreases) == (2, 2)


def test_a_round_that_proves_nothing_teaches_nothing() -> None:
    width = AdaptiveWidth(floor=2, fixed=4)
    width.observe(2, 0, 0, milliseconds=1.0)
    width.observe(0, 2, 2, milliseconds=1.0)
    width.observe(3, 2, 2, milliseconds=0.0)
    assert (width.observations, width.width) == (0, 2)


def test_the_width_never_leaves_its_bounds() -> None:
    rng = np.random.default_rng(0)
    width = AdaptiveWidth(floor=3, fixed=4)
    for _ in range(500):
        accepted = int(rng.integers(0, width.width + 1))
        width.observe(accepted + 1, accepted, min(accepted + 1, width.width), float(rng.uniform(0.5, 2)))
        assert 3 <= width.width <= 16
    width.reset()
    assert width.width == 3


def test_a_fixed_width_learns_nothing() -> None:
    width = AdaptiveWidth(floor=0, fixed=5)
    width.observe(6, 5, 5, milliseconds=1.0)
    assert (width.width, width.observations) == (5, 0)


def test_a_pause_comes_after_three_rounds_in_vain() -> None:
    pause = Cooldown(enabled=True)
    for proposed, accepted in ((2, 0), (2, 0), (2, 1), (2, 0), (3, 0), (2, 0), (1, 0), (2, 0), (2, 0)):
        pause.observe(proposed, accepted, smallest=2)
        assert pause.remaining == 0
    pause.observe(2, 0, smallest=2)
    assert (pause.remaining, pause.entries) == (1, 1)
    pause.take_step()
    assert (pause.remaining, pause.steps) == (0, 1)
    off = Cooldown(enabled=False)
    for _ in range(5):
        off.observe(2, 0, smallest=2)
    assert off.remaining == 0


def test_a_reset_forgets_the_pause_and_keeps_the_count() -> None:
    pause = Cooldown(enabled=True)
    for _ in range(3):
        pause.observe(2, 0, smallest=2)
    pause.reset()
    assert (pause.remaining, pause.entries, pause.steps) == (0, 1, 0)


def test_options_are_checked_all_or_nothing() -> None:
    options = SpeculativeOptions.from_config(SpeculativeConfig())
    assert options.as_og_dict() == {
        "max_draft_tokens": 4.0,
        "ngram_size": 0.0,
        "ngram_chained_lookup": False,
        "min_adaptive_k": 0.0,
        "cooldown": False,
    }
    for bad in ({"max_draft_tokens": 0}, {"ngram_size": 1}, {"ngram_size": 17}, {"min_adaptive_k": 2.5}, {"n": 3}):
        with pytest.raises(ArgumentError, match=next(iter(bad))):
            options.with_options(cooldown=True, **bad)
    for wrong in ({"cooldown": 1}, {"max_draft_tokens": True}, {"ngram_size": "3"}):
        with pytest.raises(ArgumentTypeError, match=next(iter(wrong))):
            options.with_options(**wrong)
    assert options.with_options(ngram_size=3, cooldown=True).ngram_size == 3


def test_the_counters_add_up() -> None:
    stats = SpeculativeStats()
    for proposed, evaluated, accepted, queued in ((4, 4, 4, 5), (4, 2, 1, 2), (2, 1, 0, 1)):
        stats.count_round(proposed, evaluated, accepted, queued)
        stats.complete_round(evaluated, accepted)
    told = stats.as_og_dict()
    assert told["draft_tokens_evaluated"] == 4 + 2 + 1
    assert told["correction_tokens"] + told["bonus_tokens"] == told["rounds"] == 3
    assert (told["full_accept_rounds"], told["partial_accept_rounds"], told["zero_accept_rounds"]) == (1, 1, 1)
    assert told["acceptance_rate"] == pytest.approx(5 / 7)


@pytest.mark.parametrize("seed", range(5))
def test_probabilities_at_once_are_those_of_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(20)[:7]
    of = Candidates(ids, rng.random(7).astype(np.float32), (0, 0, 0))
    asked = np.arange(20)
    assert probabilities(of, asked).tolist() == [probability(of, token) for token in range(20)]
    assert probabilities(of, asked).sum() == pytest.approx(1.0)
