"""An engine's tables in chunks: what is put together is what was recorded, however it came."""

from __future__ import annotations

import re

import numpy as np
import pytest

from genai_lab.analysis.engine_frames import state_at
from genai_lab.kvcache.snapshots import BlockState
from genai_lab.tracing import Recorder
from genai_lab.widgets.codec import ChunkEncoder
from tests.widgets.chunks import Reader
from tests.widgets.recorded_engine import ScriptedEngine

SHARED = list(range(9))


def busy(recorder: Recorder) -> ScriptedEngine:
    """Seven conversations, three at a time, with a beginning in common and a pool that is too small to keep all."""
    engine = ScriptedEngine(recorder)
    for number in range(7):
        engine.ask([*SHARED, *range(20 * number + 100, 20 * number + 100 + 3 * number)], 6 + 2 * number)
    return engine


@pytest.fixture(scope="module")
def done() -> tuple[Recorder, ScriptedEngine]:
    recorder = Recorder()
    engine = busy(recorder)
    engine.run()
    return recorder, engine


def test_news_put_together_are_everything() -> None:
    recorder = Recorder()
    engine, encoder, live = busy(recorder), ChunkEncoder(), Reader()
    live.take(encoder.everything(recorder.snapshot()))
    while any(not one.done for one in engine.conversations):
        engine.run(steps=3)
        fresh = recorder.snapshot(encoder.next.tokens, encoder.next.stages, encoder.next.steps, owned_only=True)
        live.take(encoder.news(fresh, recorder.open_turns))
    whole = Reader().take(ChunkEncoder().everything(recorder.snapshot()))
    assert live.gaps == 0
    assert (live.turns, live.prompts) == (whole.turns, whole.prompts)
    assert live.columns.keys() == whole.columns.keys() >= {"steps.step", "tables.block", "pool.event"}
    for name in whole.columns.keys() - WORDS:
        np.testing.assert_array_equal(live.columns[name], whole.columns[name], name)
    for name in WORDS:
        assert spelled(live, name) == spelled(whole, name)


WORDS = {"decisions.verdict", "decisions.reason", "decisions.template", "operands.name", "pool.event", "pool.policy",
         "admissions.template", "admission_operands.name"}  # fmt: skip


def spelled(reader: Reader, name: str) -> list[str]:
    return [reader.words[number] for number in reader.columns[name]]


def pool_at(reader: Reader, step: int) -> tuple[dict[int, set[int]], set[int]]:
    """By the protocol's rules: block -> holders, and the blocks that are free but kept."""
    column = reader.columns
    holders: dict[int, set[int]] = {}
    for row in np.flatnonzero(column["holders.step"] == step):
        request, length = column["holders.request"][row], column["holders.num_blocks"][row]
        mine = (column["tables.request"] == request) & (column["tables.step"] <= step)
        table = dict(zip(column["tables.index"][mine].tolist(), column["tables.block"][mine].tolist(), strict=True))
        for place in range(length):
            holders.setdefault(table[place], set()).add(int(request))
    past = column["pool.step"] <= step
    events = [reader.words[number] for number in column["pool.event"][past]]
    last = dict(zip(column["pool.block"][past].tolist(), events, strict=True))
    return holders, {block for block, event in last.items() if event == "kept"} - holders.keys()


def test_every_block_of_every_step_is_as_the_cache_had_it(done: tuple[Recorder, ScriptedEngine]) -> None:
    recorder, engine = done
    reader = Reader().take(ChunkEncoder().everything(recorder.snapshot()))
    assert {"kept", "evicted"} <= set(spelled(reader, "pool.event"))
    for step, snapshot in enumerate(engine.snapshots):
        holders, kept = pool_at(reader, step)
        for block, state in enumerate(snapshot.states):
            expected = {BlockState.USED: block in holders, BlockState.CACHED: block in kept}
            assert expected.get(state, block not in holders and block not in kept), (step, block, state)
            assert holders.get(block, set()) == set(snapshot.owners[block])


def test_a_step_of_the_recording_knows_what_is_kept(done: tuple[Recorder, ScriptedEngine]) -> None:
    recorder, engine = done
    recording = recorder.snapshot()
    for step in range(0, engine.step, 5):
        states = engine.snapshots[step].states
        expected = tuple(block for block, state in enumerate(states) if state is BlockState.CACHED)
        assert state_at(recording, step).kept == expected


def test_prefix_hits_are_told_with_the_reason_why_there_are_not_more(done: tuple[Recorder, ScriptedEngine]) -> None:
    reader = Reader().take(ChunkEncoder().everything(done[0].snapshot()))
    cached = reader.columns["admissions.cached_tokens"].tolist()
    assert len(cached) == 7 and cached[0] == 0 and max(cached) == 8  # two full blocks of the nine shared tokens
    sentences = spelled(reader, "admissions.template")
    assert any("{token" in sentence for sentence in sentences)
    assert not re.search(r"(?<![\w.])\d", " ".join(sentences)), "numbers are operands"


def test_what_is_known_is_not_sent_again(done: tuple[Recorder, ScriptedEngine]) -> None:
    recorder, encoder = done[0], ChunkEncoder()
    encoder.everything(recorder.snapshot())
    quiet = recorder.snapshot(encoder.next.tokens, encoder.next.stages, encoder.next.steps, owned_only=True)
    reader = Reader()
    reader.take(encoder.news(quiet))
    assert (reader.columns, reader.turns, reader.prompts, reader.words) == ({}, {}, {}, [])
    again = Reader().take(encoder.everything(recorder.snapshot()))
    assert len(again.turns) == len(again.prompts) == 7
    assert again.prompts[0] == SHARED


def test_a_second_engine_whose_steps_begin_anew_follows_the_first() -> None:
    recorder = Recorder()
    for _ in range(2):
        engine = ScriptedEngine(recorder)
        engine.ask(SHARED, 4)
        engine.run()
    reader = Reader().take(ChunkEncoder().everything(recorder.snapshot()))
    assert reader.columns["steps.step"].tolist() == [0, 1, 2, 3] * 2
    assert reader.columns["decisions.step"].tolist() == list(range(8))


def test_steps_that_did_not_fit_leave_behind_what_they_kept(done: tuple[Recorder, ScriptedEngine]) -> None:
    recorder = Recorder(max_stages=6)
    engine = busy(recorder)
    engine.run()
    recording = recorder.snapshot()
    assert recording.dropped["steps"] == engine.step - 6
    for step in range(engine.step - 6, engine.step):
        assert state_at(recording, step) == state_at(done[0].snapshot(), step)
