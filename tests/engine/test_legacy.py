"""Scripts written for the engine before onnxruntime-genai 0.17: their loops, and what was wrong with a call."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import genai_lab as og
from genai_lab.engine import Decision, Engine, Fcfs, QueueView, Reason, Request, StepPlan, Verdict
from genai_lab.errors import ArgumentError, ArgumentTypeError, CapacityError, StateError
from tests.engine.asking import Tokens, alone, prompts

SAMPLED = {"do_sample": True, "top_k": 20, "temperature": 1.5}


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


@pytest.fixture
def engine(model: og.Model) -> Engine:
    return Engine(model, max_batch_size=3, max_session_tokens=120, block_size=8)


def made(model: og.Model, prompt: Tokens, count: int, **options: object) -> Request:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + count, **options)
    request = Request(params)
    request.add_tokens(prompt)
    return request


def test_one_question_in_a_loop(model: og.Model, engine: Engine) -> None:
    prompt = prompts(12)[0]
    request = made(model, prompt, 10)
    engine.add_request(request)
    found = []
    while ready := engine.step():
        assert ready is request
        while ready.has_unseen_tokens():
            found.append(ready.get_unseen_token())
    assert found == alone(model, prompt, 10)
    assert request.is_turn_complete() and request.is_done()
    engine.remove_request(request)
    assert engine._states == {}
    assert engine._cache.usage().blocks_used == 0


def test_a_pool_of_requests_with_a_sink_each(model: og.Model, engine: Engine) -> None:
    asked = prompts(20, 7, 12, 31, 5)
    sinks: list[list[int]] = [[] for _ in asked]
    for number, (prompt, sink) in enumerate(zip(asked, sinks, strict=True)):
        request = made(model, prompt, 14, random_seed=number, **SAMPLED)
        request.set_opaque_data(sink)
        engine.add_request(request)
    del request  # the engine holds it until it is removed
    gc.collect()
    removed = 0
    while engine.has_pending_requests():
        ready = engine.step()
        assert ready is not None
        while ready.has_unseen_tokens():
            ready.get_opaque_data().append(ready.get_unseen_token())
        if ready.is_turn_complete():
            engine.remove_request(ready)
            removed += 1
    assert removed == len(asked)
    assert sinks == [alone(model, prompt, 14, number, **SAMPLED) for number, prompt in enumerate(asked)]
    assert engine.step() is None


def test_stepping_without_looking_and_reading_at_the_end(model: og.Model, engine: Engine) -> None:
    asked = prompts(9, 14)
    first, second = (made(model, prompt, 8) for prompt in asked)
    engine.add_request(first)
    steps = 0
    while engine.has_pending_requests():
        steps += 1
        if steps == 4:
            engine.add_request(second)
        engine.step()
    for request, prompt in ((first, asked[0]), (second, asked[1])):
        engine.remove_request(request)
        found = []
        while request.has_unseen_tokens():
            found.append(request.get_unseen_token())
        assert found == alone(model, prompt, 8)


def test_a_conversation_goes_on(model: og.Model, engine: Engine) -> None:
    first, second = prompts(12, 9)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=60)
    request = Request(params)
    request.add_tokens(first[:5])
    request.add_tokens(first[5:])
    engine.add_request(request)
    with pytest.raises(StateError, match="not done; step until it is"):
        request.continue_with(second)
    engine.step()
    request._live()._conversations.cancel_turn(request.number, 1)
    assert request.is_turn_complete()
    answered = request.tokens()
    request.continue_with(second)
    assert not request.is_turn_complete()
    while engine.step():
        pass
    tokens = request.tokens()
    assert tokens.size == 60
    assert tokens[: answered.size + 9].tolist() == [*answered, *second]
    with pytest.raises(CapacityError):
        request.add_tokens(second)
    assert request.is_turn_complete()


def test_a_turn_that_fails_is_an_error_of_step(model: og.Model) -> None:
    engine = Engine(model, max_session_tokens=120, block_size=4, num_blocks=6)
    request = made(model, prompts(60)[0], 10)
    engine.add_request(request)
    with pytest.raises(CapacityError, match="whole pool"):
        engine.step()
    assert request.is_turn_complete()
    assert engine.step() is None


def test_a_policy_that_rejects_is_heard_in_step(model: og.Model) -> None:
    class Never(Fcfs):
        def plan(self, view: QueueView) -> StepPlan:
            rejected = [Decision(r.request, Verdict.REJECT, Reason.POLICY, words="not today") for r in view.waiting]
            return StepPlan((), tuple(rejected))

    engine = Engine(model, policy=Never())
    engine.add_request(made(model, prompts(8)[0], 10))
    with pytest.raises(StateError, match="policy rejected request 0, and says: not today"):
        engine.step()


def test_requests_of_both_ages_share_an_engine(model: og.Model, engine: Engine) -> None:
    asked = prompts(9, 14)
    old, new = made(model, asked[0], 8), engine.create_request()
    turn = og.TurnOptions(new)
    turn.set_max_generated_tokens(8)
    new.begin_turn(asked[1], turn)
    engine.add_request(old)
    found: list[int] = []
    while ready := engine.step():
        while ready.has_unseen_tokens():
            found.append(ready.get_unseen_token())
    assert found == alone(model, asked[0], 8)
    assert [e.token for e in engine.run(engine.create_event_buffer(20))] == alone(model, asked[1], 8)
    assert isinstance(old, og.Request) and isinstance(new, og.Request)


CALLS: list[tuple[Callable[[SimpleNamespace], object], type[Exception], str]] = [
    (lambda s: Request("model"), ArgumentTypeError, "params is str; a GeneratorParams is allowed"),  # type: ignore[arg-type]
    (lambda s: s.engine.add_request(Request(og.GeneratorParams(s.model))), StateError, "no tokens"),
    (lambda s: s.old.add_tokens([]), ArgumentError, "empty"),
    (lambda s: s.old.continue_with([1]), StateError, "in no engine"),
    (lambda s: s.old.begin_turn([1]), StateError, "in no engine"),
    (lambda s: s.old.get_unseen_token(), StateError, "all tokens were seen"),
    (lambda s: s.engine.remove_request(s.old), ArgumentError, "does not belong to this engine"),
    (lambda s: s.new.add_tokens([1]), StateError, r"made by engine.create_request\(\)"),
    (lambda s: s.engine.add_request(s.new), StateError, r"made by engine.create_request\(\)"),
    (lambda s: (s.engine.add_request(s.old), s.engine.add_request(s.old)), StateError, "added once"),
    (lambda s: s.engine.add_request(made(s.model, np.full(130, 5), 10)), CapacityError, "leave no room"),
]


@pytest.mark.parametrize(("call", "error", "words"), CALLS)
def test_bad_calls(
    model: og.Model, engine: Engine, call: Callable[[SimpleNamespace], object], error: type[Exception], words: str
) -> None:
    scene = SimpleNamespace(model=model, engine=engine, new=engine.create_request(), old=made(model, prompts(5)[0], 5))
    assert "not in an engine" in repr(scene.old)
    with pytest.raises(error, match=words):
        call(scene)


def test_params_of_another_model_are_refused(model: og.Model, engine: Engine, tiny_folder: Path) -> None:
    other = made(og.Model(tiny_folder), prompts(5)[0], 5)
    with pytest.raises(ArgumentError, match="another model"):
        engine.add_request(other)


def test_a_removed_request_has_no_turn(model: og.Model, engine: Engine) -> None:
    """Removing it again is nothing; by another engine it is an error while it is in one."""
    request, other = made(model, prompts(5)[0], 2), Engine(model, max_batch_size=1)
    engine.add_request(request)
    with pytest.raises(StateError, match="initial input before submission"):
        request.add_tokens([7])
    with pytest.raises(ArgumentError, match="does not belong to this engine"):
        other.remove_request(request)
    while engine.step() is not None:
        pass
    assert request.is_turn_complete()
    engine.remove_request(request)
    assert not request.is_turn_complete() and request.is_done() and request.has_unseen_tokens()
    for one in (engine, other):
        one.remove_request(request)
    with pytest.raises(StateError, match="closed request"):
        request.continue_with([7])
