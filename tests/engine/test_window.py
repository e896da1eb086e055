"""A model with local attention in the engine: the tokens of a run that keeps everything, of a pool of windows."""

from __future__ import annotations

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Engine, Verdict
from tests.engine.asking import SAMPLED, Tokens, alone, answers, drain, prompts, skip_without_pages, turn
from tests.local_window import local_folder

WINDOW = 24


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(local_folder(tmp_path_factory.mktemp("local") / "model", WINDOW))


def make(model: genai_lab.Model, **options: object) -> Engine:
    skip_without_pages(options)
    sizes = {"max_batch_size": 4, "max_session_tokens": 300, "block_size": 8, "chunk_size": 16}
    return Engine(model, **(sizes | {"check_invariants": True} | options))  # type: ignore[arg-type]


MODES = {
    "roomy": {},
    "a pool of three windows": {"num_blocks": 20},
    "one chunk": {"chunk_size": 300},
    "no prefix cache": {"prefix_caching": False, "num_blocks": 30},
    "mapped pages": {"kv_backend": "vm", "block_size": 32},
    "mapped pages, small pool": {"kv_backend": "vm", "block_size": 32, "num_blocks": 7},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_the_tokens_are_those_of_a_run_that_keeps_everything(
    model: genai_lab.Model, mode: dict[str, object], options: dict[str, object]
) -> None:
    asked, engine = prompts(120, 3, 200, 30, 77), make(model, **mode)
    expected = [alone(model, p, 40, n if options else None, **options) for n, p in enumerate(asked)]
    assert answers(engine, asked, 40, **options) == expected


def test_a_conversation_longer_than_the_pool(model: genai_lab.Model) -> None:
    """Two prompts of 250 tokens (63 blocks in all) side by side in a pool of 14 blocks, none preempted."""
    asked, engine = prompts(250, 254), make(model, num_blocks=14)
    verdicts: set[Verdict] = set()
    most, step = 0, engine._one_step

    def watching() -> object:
        nonlocal most
        decisions = step()
        verdicts.update(decision.verdict for decision in decisions)
        most = max([most, *(len(r.block_table) for r in engine._cache.snapshot().requests)])
        return decisions

    engine._one_step = watching  # type: ignore[method-assign, assignment]
    assert answers(engine, asked, 40) == [alone(model, p, 40) for p in asked]
    assert Verdict.PREEMPT not in verdicts and Verdict.REJECT not in verdicts
    assert most <= -(-(WINDOW - 1 + 16) // 8) + 1


def finish(engine: Engine, prompt: Tokens) -> tuple[list[int], int]:
    """The answer, and how many tokens of the prompt were in the cache."""
    request = engine.create_request()
    request.begin_turn(prompt, turn(8))
    events = drain(engine)
    cached = max(event.usage.cached_prompt_tokens for event in events)
    request.close()
    return [event.token for event in events if event.token is not None], cached


@pytest.mark.parametrize(
    "backend", [{"block_size": 8, "num_blocks": 12}, {"kv_backend": "vm", "block_size": 32, "num_blocks": 4}]
)
def test_a_prefix_is_taken_over_though_its_beginning_is_evicted(
    model: genai_lab.Model, backend: dict[str, object]
) -> None:
    engine = make(model, max_batch_size=1, **backend)
    size = engine.limits.block_size
    long = prompts(161)[0]
    assert finish(engine, long) == (alone(model, long, 8), 0)
    again = np.concatenate([long[:160], prompts(9, seed=5)[0]])
    answer, cached = finish(engine, again)
    assert answer == alone(model, again, 8)
    assert cached == 160 // size * size > (engine.limits.num_blocks - 2) * size


def test_going_back_past_the_window_reads_again(model: genai_lab.Model) -> None:
    asked, engine = prompts(90, 12), make(model)
    request = engine.create_request()
    first = request.begin_turn(asked[0], turn(20))
    drain(engine)
    request.rewind_to_start_of_turn(first)
    request.begin_turn(asked[1], turn(10))
    found = [event.token for event in drain(engine) if event.token is not None]
    assert found == alone(model, asked[1], 10)


@pytest.mark.parametrize("backend", [{}, {"kv_backend": "vm", "block_size": 32}], ids=["slots", "vm"])
def test_forks_share_the_window(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(130)[0], make(model, **backend)
    first = engine.create_request()
    first.begin_turn(asked, turn(15, seed=0, **SAMPLED))
    both = [first, first.fork(seed=1)]
    found: dict[int, list[int]] = {request.number: [] for request in both}
    for event in drain(engine):
        if event.token is not None and event.request is not None:
            found[event.request.number].append(event.token)
    assert list(found.values()) == [alone(model, asked, 15, seed, **SAMPLED) for seed in (0, 1)]


def test_recording_it_changes_nothing_and_shows_what_is_held(model: genai_lab.Model) -> None:
    asked = prompts(100)[0]
    with genai_lab.record() as trace:
        engine = make(model)
        assert answers(engine, [asked], 12) == [alone(model, asked, 12)]
    assert trace.steps()["blocks_used"].max() <= 6


@pytest.mark.parametrize("backend", [{}, {"kv_backend": "vm", "block_size": 32}], ids=["slots", "vm"])
def test_refused_proposals_leave_the_window_right(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(90, 30), make(model, **backend)
    expected = alone(model, asked[0], 60)
    request, buffer, found = engine.create_request(), engine.create_event_buffer(20), []
    request.begin_turn(asked[0], turn(60))
    while engine.has_pending_requests():
        engine.run(buffer)
        found += [event.token for event in (buffer[place] for place in range(len(buffer))) if event.token is not None]
        if found and len(found) < len(expected) - 6:
            drafts = np.array(expected[len(found) : len(found) + 5], np.int32)
            drafts[len(found) % 5] += 1
            request.set_draft_tokens(drafts)
    assert found == expected
    assert engine.get_speculative_stats()["draft_tokens_accepted"] > 0
    request.begin_turn(asked[1], turn(10))
    whole = np.concatenate([asked[0], np.array(expected, np.int32), asked[1]])
    assert [event.token for event in drain(engine) if event.token is not None] == alone(model, whole, 10)


@pytest.mark.slow
def test_a_trace_knows_what_fell_out_of_the_window(model: genai_lab.Model) -> None:
    engine, held = make(model), []
    step = engine._one_step

    def watching() -> object:
        decisions = step()
        held.append([(n, engine._cache.first_block(n), engine._cache.block_table(n)) for n in engine._cache.requests])
        return decisions

    engine._one_step = watching  # type: ignore[method-assign, assignment]
    with genai_lab.record() as trace:
        answers(engine, prompts(120, 77), 40)
    for number, expected in enumerate(held):
        state = trace.state_at(number)
        assert [(h.request, h.first_block, h.block_table) for h in state.holders] == expected
        blocks, size = trace.blocks(number), state.block_size
        for holder in state.holders:
            mine = blocks[blocks["request"] == holder.request]
            assert mine["index"].tolist() == [holder.first_block + place for place in range(len(mine))]
            assert mine["filled"].sum() == holder.num_tokens - holder.first_block * size
    assert max(first for step in held for _, first, _ in step) > 10
