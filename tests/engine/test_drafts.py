"""Proposed tokens change how many runs an answer takes, not the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Engine, EngineEvent, Request
from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError
from genai_lab.types import FinishReason
from tests.engine.asking import SAMPLED, alone, drain, prompts, skip_without_pages, turn
from tests.tiny import tiny_model_folder

BACKENDS = [{"block_size": 4}, {"block_size": 32, "kv_backend": "vm"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    """One whose graph gives the logits of every position."""
    folder = tmp_path_factory.mktemp("all-logits") / "model"
    return genai_lab.Model(tiny_model_folder(folder, extra_options={"prune_lm_head": False}))


def answer(engine: Engine, request: Request, whole: list[int], mistakes: int, size: int) -> tuple[list[int], int]:
    """Proposes what comes next, every `mistakes`-th token wrong; the answer, and in how many steps it came."""
    found: list[int] = []
    steps, buffer = 0, engine.create_event_buffer(100)
    while engine.has_pending_requests():
        if found and len(found) < len(whole) and engine._states[request.number].turn.finish is None:  # type: ignore[union-attr]
            ahead = np.array(whole[len(found) : len(found) + size], np.int32)
            ahead[mistakes - 1 :: mistakes] = 9
            request.set_draft_tokens(ahead)
        steps += 1
        found += [event.token for event in engine.run(buffer) if event.token is not None]
        assert engine._cache.check() == []
    return found, steps


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS, ids=["slots", "vm"])
@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("mistakes", [1, 3, 100])
def test_the_answer_stays_the_same(
    model: genai_lab.Model, backend: dict[str, object], options: dict[str, object], mistakes: int
) -> None:
    skip_without_pages(backend)
    asked = prompts(21)[0]
    whole = alone(model, asked, 30, 7 if options else None, **options)
    engine = Engine(model, max_session_tokens=100, check_invariants=True, **backend)  # type: ignore[arg-type]
    request = engine.create_request()
    request.begin_turn(asked, turn(30, seed=7 if options else None, **options))
    found, steps = answer(engine, request, whole, mistakes, 5)
    assert found == whole
    stats = engine.get_speculative_stats()
    assert stats["draft_tokens_accepted"] + stats["rounds"] == stats["tokens_emitted"]
    assert len(whole) - stats["draft_tokens_accepted"] == steps, "each accepted token saves a run"
    assert stats["target_forward_passes"] == steps
    if mistakes == 1:
        assert stats["draft_tokens_accepted"] == 0 and stats["acceptance_rate"] == 0.0
    if mistakes == 100:
        assert stats["full_accept_rounds"] == stats["rounds"] > 3 and stats["acceptance_rate"] == 1.0 and steps <= 7
    # the conversation goes on as if nobody had proposed anything
    assert request.tokens().tolist() == [*asked.tolist(), *whole]


def test_others_are_answered_beside_it(model: genai_lab.Model) -> None:
    asked = prompts(21, 30, 4)
    engine = Engine(model, max_session_tokens=100, check_invariants=True)
    requests = [engine.create_request() for _ in asked]
    for request, prompt in zip(requests, asked, strict=True):
        request.begin_turn(prompt, turn(12))
    engine.step()
    whole = alone(model, asked[0], 12)
    requests[0].set_draft_tokens(whole[1:6])
    decisions = {d.request: d.num_tokens for d in engine.step()}
    assert decisions == {0: 6, 1: 1, 2: 1}
    found: dict[int, list[int]] = {r.number: [] for r in requests}
    for event in drain(engine):
        if event.token is not None and event.request is not None:
            found[event.request.number].append(event.token)
    assert list(found.values()) == [alone(model, prompt, 12) for prompt in asked]


def test_a_turn_that_ends_among_accepted_tokens(model: genai_lab.Model) -> None:
    asked = prompts(21)[0]
    whole = alone(model, asked, 12)
    stop = model.tokenizer.decode(np.array(whole[:4], np.int32))[-3:]
    engine = Engine(model, max_session_tokens=100, block_size=4, check_invariants=True)
    plain, proposed = engine.create_request(), engine.create_request()
    plain.begin_turn(asked, turn(12, stop_strings=[stop]))
    expected = tokens(drain(engine))
    proposed.begin_turn(asked, turn(12, stop_strings=[stop]))
    engine.step()
    proposed.set_draft_tokens(whole[1:9])
    events = drain(engine)
    assert tokens(events) == expected and events[-1].finish_reason is FinishReason.STOP_STRING
    assert engine._states[proposed.number].computed <= proposed.tokens().size
    proposed.begin_turn([5, 6, 7], turn(5))
    plain.begin_turn([5, 6, 7], turn(5))
    assert [view.lost for view in engine.view().running] == [0, 0], "what was cut off is not read a second time"
    both: dict[Request | None, list[int]] = {plain: [], proposed: []}
    for event in drain(engine):
        if event.token is not None:
            both[event.request].append(event.token)
    assert both[plain] == both[proposed]
    assert [engine._states[request.number].recomputed for request in (plain, proposed)] == [0, 0]


def test_a_grammar_is_kept(model: genai_lab.Model) -> None:
    """Its state follows what was accepted, not what was proposed."""
    engine = Engine(model, max_session_tokens=100)
    plain, proposed = engine.create_request(), engine.create_request()
    options = turn(20)
    options.set_guidance("regex", "(abc|de|[0-9]{3})+")
    plain.begin_turn(prompts(20)[0], options)
    whole = tokens(drain(engine))
    for wrong_at in (0, 3, 5):
        proposed.begin_turn(prompts(20)[0], options)
        engine.step()
        ahead = [*whole[1:6], 9]
        ahead[wrong_at] = 9
        proposed.set_draft_tokens(ahead)
        engine.step()
        assert proposed.tokens().size == 20 + 1 + wrong_at + 1
        assert tokens(drain(engine)) == whole
        proposed.rewind_to_start_of_turn(engine._states[proposed.number].last_turn)


def tokens(events: list[EngineEvent]) -> list[int]:
    """Of events."""
    return [event.token for event in events if event.token is not None]


def test_when_tokens_can_be_proposed(model: genai_lab.Model, tiny_folder: Path) -> None:
    engine = Engine(model, max_session_tokens=60)
    assert engine.max_draft_tokens_per_proposal() == 16
    request = engine.create_request()
    with pytest.raises(StateError, match="not about to be decoded"):
        request.set_draft_tokens([5])
    request.begin_turn([5, 6, 7], turn(4))
    with pytest.raises(StateError, match="not about to be decoded"):
        request.set_draft_tokens([5])
    engine.step()
    with pytest.raises(ArgumentError, match="17 tokens were proposed; at most 16"):
        request.set_draft_tokens([5] * 17)
    for wrong in ("hi", None, {1, 2}, ["hi"]):
        with pytest.raises(ArgumentTypeError, match=r"tokens is .*'hi'|tokens is None|tokens is \{1, 2\}"):
            request.set_draft_tokens(wrong)  # type: ignore[arg-type]
    request.set_draft_tokens([5] * 16)  # no more than the turn may generate are read
    assert engine.view().running[0].next_tokens == 3
    for other in (Engine(model, max_session_tokens=60, exact=True), Engine(genai_lab.Model(tiny_folder))):
        assert other.max_draft_tokens_per_proposal() == 0
        request = other.create_request()
        request.begin_turn([5, 6, 7], turn(4))
        other.step()
        with pytest.raises(StateError, match="cannot verify proposed tokens"):
            request.set_draft_tokens([5])
