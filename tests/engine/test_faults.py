"""A step that fails anywhere before its commit has not been; one that fails in its commit ends the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Engine, Verdict
from genai_lab.errors import StateError
from genai_lab.kvcache import check_cache, raise_if_broken
from tests.engine.asking import SAMPLED, alone, drain, prompts, skip_without_pages, turn

TIGHT = [{"block_size": 4, "num_blocks": 24}, {"block_size": 32, "num_blocks": 5, "kv_backend": "vm"}]
IDS = ["slots", "vm"]
PHASES = {  # where, and at which call of it
    "the first reservation": ("store", "reserve", 0),
    "the last reservation": ("store", "reserve", -1),
    "the run": ("executor", "decode", 0),
    "the choice": ("runner", "choose", 0),
}


class BoomError(Exception):
    """An injected fault."""


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> genai_lab.Model:
    return genai_lab.Model(tiny_folder)


def state_of(engine: Engine) -> tuple[object, ...]:
    """Everything that a failed step must not change: books, rows, what the rows hold, random streams, turns."""
    states = engine._states.values()
    held = [engine._store.slab[:, :, s.row, :, : s.computed].tobytes() if s.row is not None else b"" for s in states]
    streams = [repr(s.stream.state) for s in states]
    places = [(s.row, s.computed, s.status, s.preemptions, s.high_water, s.recomputed) for s in states]
    evictions = tuple(engine._cache.evictions)
    return engine._cache.snapshot(), engine.view(), held, streams, places, evictions, list(engine._outbox.events)


def until_it_preempts(engine: Engine) -> None:
    """Step up to just before the step that preempts."""
    for _ in range(200):
        if any(d.verdict is Verdict.PREEMPT for d in engine.policy.plan(engine.view()).others):
            return
        engine.step()
    raise AssertionError("nothing is ever preempted")


def boom_at(real: Callable[..., Any], call: int) -> Callable[..., Any]:
    """Fails at the given call, after its work; -1: never, but counts."""
    calls = [0]

    def failing(*args: Any) -> Any:
        result = real(*args)
        calls[0] += 1
        if calls[0] == call + 1:
            raise BoomError
        return result

    failing.calls = calls  # type: ignore[attr-defined]
    return failing


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES.values(), ids=PHASES.keys())
@pytest.mark.parametrize("backend", TIGHT, ids=IDS)
def test_a_preemption_is_undone_with_its_step(
    model: genai_lab.Model, monkeypatch: pytest.MonkeyPatch, backend: dict[str, object], phase: tuple[str, str, int]
) -> None:
    skip_without_pages(backend)
    asked = prompts(20, 20, 20)
    engine = Engine(model, max_batch_size=3, max_session_tokens=100, check_invariants=True, **backend)  # type: ignore[arg-type]
    requests = [engine.create_request() for _ in asked]
    for number, (request, prompt) in enumerate(zip(requests, asked, strict=True)):
        request.begin_turn(prompt, turn(50, seed=number, **SAMPLED))
    until_it_preempts(engine)
    before = state_of(engine)
    where, name, call = phase
    owner = {"store": engine._runner.store, "executor": engine._runner.executor, "runner": engine._runner}[where]
    works = len(engine.policy.plan(engine.view()).scheduled)
    for _ in range(2):  # an undone step is undone again
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, boom_at(getattr(owner, name), call % works))
            with pytest.raises(BoomError):
                engine.step()
        assert state_of(engine) == before
        assert engine._cache.check() == []
    found: dict[int, list[int]] = {request.number: [] for request in requests}
    for event in drain(engine):
        if event.token is not None and event.request is not None:
            found[event.request.number].append(event.token)
    assert list(found.values()) == [alone(model, p, 50, n, **SAMPLED) for n, p in enumerate(asked)]


@pytest.mark.parametrize("backend", TIGHT, ids=IDS)
def test_a_refusal_is_undone_with_its_step(
    model: genai_lab.Model, monkeypatch: pytest.MonkeyPatch, backend: dict[str, object]
) -> None:
    """An answer that outgrew the pool ends when the step is committed, not before."""
    skip_without_pages(backend)
    blocks = int(str(backend["num_blocks"]))
    small = backend | {"num_blocks": blocks // 4 + 1}
    engine = Engine(model, max_batch_size=2, max_session_tokens=150, check_invariants=True, **small)  # type: ignore[arg-type]
    long, short = engine.create_request(), engine.create_request()
    long.begin_turn(prompts(20)[0], turn(100))
    for _ in range(200):
        plan = engine.policy.plan(engine.view())
        if any(d.verdict is Verdict.REJECT for d in plan.others):
            break
        engine.step()
    short.begin_turn(prompts(4)[0], turn(3))
    engine.run(engine.create_event_buffer(500))
    before = state_of(engine)
    with monkeypatch.context() as patch:
        patch.setattr(engine._runner, "choose", boom_at(engine._runner.choose, 0))
        with pytest.raises(BoomError):
            engine.step()
    assert state_of(engine) == before
    ends = {e.request: e.finish_reason.name for e in drain(engine) if e.finish_reason.name != "NONE"}
    assert ends == {long: "FAILED", short: "MAX_GENERATED_TOKENS"}
    raise_if_broken(check_cache(engine._cache.snapshot()))


def test_an_error_in_the_commit_ends_the_engine(model: genai_lab.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model, max_session_tokens=60)
    request = engine.create_request()
    request.begin_turn(np.array([5, 6, 7], np.int32), turn(9))
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(engine._runner, "commit", boom_at(engine._runner.commit, 0))
        with pytest.raises(BoomError):
            engine.step()
    for call in (engine.step, engine.create_request, lambda: request.begin_turn([5])):
        with pytest.raises(StateError, match=r"middle of its commit .*BoomError"):
            call()
    request.close()
    engine.close()
    assert engine._cache.requests == ()
