"""A thousand requests in a storm of cancels, closes, dropped handles, rewinds and failing runs, in a pool of a tenth of
what they want: each ends rightly, nothing is lost, memory stays flat."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from pathlib import Path

import pytest

import genai_lab
from genai_lab.engine import Engine
from genai_lab.engine.invariants import same_tokens_as_alone
from genai_lab.types import FinishReason
from tests.engine.asking import alone
from tests.engine.storm import Asked, Storm

CROWD, BLOCK, LONGEST, POOL = 40, 4, 24, 36


@pytest.mark.slow
def test_a_thousand_requests_in_a_storm(tiny_folder: Path) -> None:
    model = genai_lab.Model(tiny_folder)
    engine = Engine(
        model,
        max_batch_size=8,
        max_scheduled_tokens=64,
        max_session_tokens=200,
        block_size=BLOCK,
        num_blocks=POOL,
        chunk_size=24,
        check_invariants=True,
    )
    allocated, ends, verdicts = [], Counter[FinishReason | None](), Counter[str]()
    step = engine.step

    def counting() -> object:
        decisions = step()
        verdicts.update(d.verdict for d in decisions)
        return decisions

    engine.step = counting  # type: ignore[method-assign, assignment]
    for seed, total in enumerate((300, 350, 350)):
        storm = Storm(engine, seed, total, CROWD, LONGEST)
        storm.blow()
        judge(model, storm.asked)
        ends.update(asked.finish for asked in storm.asked.values())
        assert storm.faults > 10 and storm.forks > 10
        wanted = sorted(-(-(a.prompt.size + a.count) // BLOCK) for a in storm.asked.values())
        assert CROWD * sum(wanted) / len(wanted) * 1.1 >= POOL * 10
        del storm  # its event buffer keeps the requests of its last events alive
        gc.collect()
        nothing_is_left(engine)
        allocated.append(sys.getallocatedblocks())
    assert allocated[2] - allocated[1] < 3000
    assert verdicts["preempt"] > 10
    expected = {FinishReason.MAX_GENERATED_TOKENS, FinishReason.EOS, FinishReason.CANCELLED, FinishReason.FAILED, None}
    assert set(ends) == expected


def judge(model: genai_lab.Model, asked: dict[int, Asked]) -> None:
    """One end each, unless its caller left; and the tokens that it gets alone."""
    for number, one in asked.items():
        assert one.gone or one.ends == one.turns, number
        assert one.finish is not FinishReason.FAILED or (one.prompt.size > POOL * BLOCK and not one.tokens)
    early = {n for n, one in asked.items() if one.gone or one.finish in (FinishReason.CANCELLED, FinishReason.FAILED)}
    sample = list(asked)[::5] + [n for n, one in asked.items() if one.turns == 2 and n % 2]
    expected = {n: alone(model, asked[n].prompt, asked[n].count, asked[n].seed, **asked[n].options) for n in sample}
    assert same_tokens_as_alone({n: one.tokens for n, one in asked.items()}, expected, early) == []


def nothing_is_left(engine: Engine) -> None:
    """No request, event, block or row."""
    assert not engine.has_pending_requests()
    assert (engine._states, engine._conversations.handles, list(engine._outbox.events)) == ({}, {}, [])
    assert engine._cache.requests == ()
    assert engine._cache.usage().blocks_used == 0
    assert engine._rows.free == engine.limits.max_batch_size
    assert engine._cache.check() == []
