"""What an engine says of its pool: every block of every step is as the cache has it, through waits and preemptions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import genai_lab
from genai_lab.engine import Engine
from genai_lab.engine.pool_log import admission_fact
from genai_lab.engine.request import GENERATED_MARK
from genai_lab.kvcache.misses import Miss, MissReason
from genai_lab.kvcache.snapshots import BlockState, CacheSnapshot
from tests.engine.asking import prompts
from tests.engine.test_engine import answers

TIGHT = {"max_batch_size": 3, "max_session_tokens": 100, "block_size": 4, "num_blocks": 24}


def watched(engine: Engine) -> list[CacheSnapshot]:
    """The cache after each step of `engine`, as it goes on."""
    found: list[CacheSnapshot] = []
    step = engine._advance

    def watching() -> object:
        decisions = step()
        found.append(engine._cache.snapshot())
        return decisions

    engine._advance = watching  # type: ignore[method-assign, assignment]
    return found


def test_kept_blocks_are_those_of_the_cache(tiny_folder: Path) -> None:
    model = genai_lab.Model(tiny_folder)
    with genai_lab.record() as trace:
        engine = Engine(model, **TIGHT)  # type: ignore[arg-type]
        seen = watched(engine)
        answers(engine, prompts(20, 22, 24, 30), 24)
        answers(engine, prompts(20, 22, 24, 30), 4)
    assert trace.steps()["preempted"].sum() > 0
    for step, snapshot in enumerate(seen):
        state = trace.state_at(step)
        kept = tuple(block for block, now in enumerate(snapshot.states) if now is BlockState.CACHED)
        assert state.kept == kept, step
        assert len(kept) == state.blocks_cached


def test_a_recording_that_begins_later_knows_what_was_kept_before(tiny_folder: Path) -> None:
    engine = Engine(genai_lab.Model(tiny_folder), **TIGHT)  # type: ignore[arg-type]
    engine.generate_all([prompts(20)[0]], max_generated_tokens=4)
    with genai_lab.record() as trace:
        engine.generate_all([prompts(9)[0]], max_generated_tokens=2)
    state = trace.state_at(int(trace.steps()["step"].iloc[0]))
    assert len(state.kept) == state.blocks_cached > 0


def test_ids_are_told_without_the_marks_that_only_the_cache_knows() -> None:
    miss = Miss(MissReason.DIFFERENT_TOKEN, 3, 62, expected=7 | GENERATED_MARK, found=9)
    fact = admission_fact(1, 48, miss)
    assert dict(fact.operands) == {"n1": 3, "token2": 62, "id3": 7, "id4": 9}
    same = admission_fact(1, 48, replace(miss, found=7))
    assert "read another way" in same.template
