"""Every request gets the tokens it would get alone, whatever the engine does with it meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import (
    Engine,
    EngineEventFlags,
    Fcfs,
    PrefixFirst,
    Request,
    RequestOptions,
    ShortestFirst,
    Static,
)
from genai_lab.errors import ArgumentError, ArgumentTypeError, CapacityError, GenaiLabError, StateError
from genai_lab.tracing import Recorder
from genai_lab.types import FinishReason
from tests.engine.asking import SAMPLED, alone, answers, drain, prompts, skip_without_pages, turn


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> genai_lab.Model:
    return genai_lab.Model(tiny_folder)


MODES = {
    "roomy": {},
    "one row": {"max_batch_size": 1},
    "small chunks": {"chunk_size": 3, "max_scheduled_tokens": 9},
    "tight pool": {"num_blocks": 14, "block_size": 8},
    "static": {"policy": Static()},
    "shortest first": {"policy": ShortestFirst()},
    "skipping": {"policy": Fcfs(skip_blocked=True), "num_blocks": 14, "block_size": 8},
    "no prefix cache": {"prefix_caching": False},
    "mapped pages": {"kv_backend": "vm", "block_size": 32},
    "mapped pages, tight pool": {"kv_backend": "vm", "block_size": 32, "num_blocks": 7},
}


@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_batched_equals_alone(model: genai_lab.Model, mode: dict[str, object], options: dict[str, object]) -> None:
    skip_without_pages(mode)
    asked = prompts(20, 33, 5, 40, 2, 17, 28)
    engine = Engine(model, **({"max_batch_size": 4, "max_session_tokens": 100, "block_size": 16} | mode))  # type: ignore[arg-type]
    expected = [alone(model, p, 24, n if options else None, **options) for n, p in enumerate(asked)]
    assert answers(engine, asked, 24, **options) == expected


def test_preemption_happens_in_a_tight_pool_and_changes_no_token(model: genai_lab.Model) -> None:
    asked = prompts(20, 20, 20)
    engine = Engine(model, max_batch_size=3, max_session_tokens=100, block_size=4, num_blocks=24)
    preempted: list[str] = []
    step = engine.step

    def watching() -> object:
        decisions = step()
        preempted.extend(d.in_words() for d in decisions if d.verdict.value == "preempt")
        return decisions

    engine.step = watching  # type: ignore[method-assign, assignment]
    assert answers(engine, asked, 30) == [alone(model, p, 30) for p in asked]
    assert preempted
    assert "needed a block, none was free" in preempted[0]


@pytest.mark.parametrize("mode", [{"block_size": 16}, {"block_size": 32, "kv_backend": "vm"}], ids=["slots", "vm"])
def test_a_warm_prefix_equals_a_cold_one(model: genai_lab.Model, mode: dict[str, object]) -> None:
    skip_without_pages(mode)
    asked = prompts(9, 12, 30, shared=64)
    engine = Engine(model, max_session_tokens=200, **mode)  # type: ignore[arg-type]
    cold = answers(engine, asked[:1], 10)
    request = engine.create_request()
    request.begin_turn(asked[1], turn(10))
    events = drain(engine)
    assert events[-1].usage.cached_prompt_tokens == 64
    assert [e.token for e in events if e.token is not None] == alone(model, asked[1], 10)
    assert cold == [alone(model, asked[0], 10)]


def test_generated_tokens_are_not_shared_with_prompts(model: genai_lab.Model) -> None:
    """A prompt that repeats a question and its answer is computed as a prompt, as it would be alone."""
    asked = prompts(20)[0]
    engine = Engine(model, max_session_tokens=200, block_size=4)
    answer = answers(engine, [asked], 20)[0]
    again = np.concatenate([asked, np.array([*answer, 9, 9], np.int32)])
    request = engine.create_request()
    request.begin_turn(again, turn(10))
    events = drain(engine)
    assert events[-1].usage.cached_prompt_tokens == 20
    assert [e.token for e in events if e.token is not None] == alone(model, again, 10)


def test_turns_continue_a_conversation(model: genai_lab.Model) -> None:
    first, second = prompts(12, 9)
    engine = Engine(model, max_session_tokens=200)
    request = engine.create_request()
    assert request.begin_turn(first, turn(8)) == 1
    drain(engine)
    assert request.begin_turn(second, turn(8)) == 2
    events = drain(engine)
    generator = genai_lab.Generator(model, genai_lab.GeneratorParams(model))
    generator.append_tokens(first)
    for _ in range(8):
        generator.generate_next_token()
    # the engine reads the last token of an answer by itself, then the new question
    generator.get_logits()
    generator.append_tokens(second)
    expected = []
    for _ in range(8):
        generator.generate_next_token()
        expected.append(int(generator.get_next_tokens()[0]))
    assert [e.token for e in events if e.token is not None] == expected
    assert events[-1].usage.prompt_tokens == 9
    request.rewind_to_start_of_turn(2)
    assert request.tokens().size == 20
    request.begin_turn(second, turn(8))
    assert [e.token for e in drain(engine) if e.token is not None] == expected


def test_an_idle_conversation_gives_way_and_comes_back(model: genai_lab.Model) -> None:
    engine = Engine(model, max_batch_size=1, max_session_tokens=100)
    asked = prompts(12, 15)
    idle, other = engine.create_request(), engine.create_request()
    idle.begin_turn(asked[0], turn(6))
    drain(engine)
    other.begin_turn(asked[1], turn(6))
    drain(engine)
    assert engine._conversations.state(idle.number).row is None
    idle.begin_turn(np.array([7, 8], np.int32), turn(6))
    assert len([e for e in drain(engine) if e.token is not None]) == 6


def test_stop_strings_end_a_turn(model: genai_lab.Model) -> None:
    asked = prompts(12)[0]
    text = model.tokenizer.decode(np.array(alone(model, asked, 30), np.int32))
    stop = text[6:9]
    engine = Engine(model, max_session_tokens=100)
    request = engine.create_request()
    request.begin_turn(asked, turn(30, stop_strings=["never seen", stop]))
    last = drain(engine)[-1]
    assert last.finish_reason is FinishReason.STOP_STRING
    assert last.matched_stop_string_index == 1


def test_cancelling_and_closing_leave_nothing_behind(model: genai_lab.Model) -> None:
    engine = Engine(model, max_batch_size=2, max_session_tokens=100, prefix_caching=False)
    kept, cancelled, closed = (engine.create_request() for _ in range(3))
    for request, prompt in zip((kept, cancelled, closed), prompts(20, 22, 24), strict=True):
        request.begin_turn(prompt, turn(10))
    engine.step()
    assert cancelled.cancel_turn(1)
    assert not cancelled.cancel_turn(1)
    closed.close()
    closed.close()
    finished = [e for e in drain(engine) if e.flags & EngineEventFlags.TURN_FINISHED]
    assert {e.finish_reason for e in finished} == {FinishReason.CANCELLED, FinishReason.MAX_GENERATED_TOKENS}
    kept.close()
    cancelled.close()
    assert engine._cache.usage().blocks_used == 0
    assert engine._rows.free == 2
    with pytest.raises(StateError, match="closed"):
        closed.begin_turn([1, 2])


def test_a_dropped_handle_closes_its_request(model: genai_lab.Model) -> None:
    engine = Engine(model, max_session_tokens=100)
    request: Request | None = engine.create_request()
    assert request is not None
    request.begin_turn(prompts(10)[0], turn(10))
    engine.step()
    request = None
    assert not engine.has_pending_requests()
    assert engine._cache.usage().blocks_used == 0


class BoomError(Exception):
    pass


@pytest.mark.parametrize("phase", ["reserve", "run", "choose"])
def test_a_failed_step_is_undone_and_the_next_one_goes_on(
    model: genai_lab.Model, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    asked = prompts(20, 33, 12)
    engine = Engine(model, max_batch_size=2, max_session_tokens=100, max_scheduled_tokens=40)
    requests = [engine.create_request() for _ in asked]
    for number, (request, prompt) in enumerate(zip(requests, asked, strict=True)):
        request.begin_turn(prompt, turn(10, seed=number, **SAMPLED))
    for _ in range(4):
        engine.step()
    before = engine._cache.snapshot(), engine.view()
    target = {"reserve": engine._runner.store, "run": engine._runner.executor, "choose": engine._runner}[phase]
    name = {"reserve": "reserve", "run": "decode", "choose": "choose"}[phase]

    def fail(*_args: object, **_kwargs: object) -> None:
        raise BoomError

    with monkeypatch.context() as patch:
        patch.setattr(target, name, fail)
        with pytest.raises(BoomError):
            engine.step()
    assert (engine._cache.snapshot(), engine.view()) == before
    found: dict[int, list[int]] = {request.number: [] for request in requests}
    for event in drain(engine):
        if event.token is not None and event.request is not None:
            found[event.request.number].append(event.token)
    for number, prompt in enumerate(asked):
        assert found[requests[number].number] == alone(model, prompt, 10, number, **SAMPLED)


def test_a_prompt_that_can_never_fit_is_refused_at_once(model: genai_lab.Model) -> None:
    engine = Engine(model, max_session_tokens=200, block_size=4, num_blocks=10)
    request = engine.create_request()
    request.begin_turn(prompts(60)[0], turn(5))
    event = drain(engine)[-1]
    assert event.flags & EngineEventFlags.FAILED
    assert event.finish_reason is FinishReason.FAILED


def test_bad_calls_are_told_what_to_do(model: genai_lab.Model) -> None:
    engine = Engine(model, max_session_tokens=40)
    options = RequestOptions()
    options.set_max_session_tokens(30)
    request = engine.create_request(options=options)
    with pytest.raises(CapacityError, match="allowed are 30"):
        request.begin_turn(prompts(30)[0])
    with pytest.raises(ArgumentError, match="do_sample is False"):
        request.begin_turn(prompts(5)[0], turn(5, temperature=0.5))
    request.begin_turn(prompts(5)[0], turn(2))
    with pytest.raises(StateError, match="after the current turn is complete"):
        request.begin_turn(prompts(5)[0])
    drain(engine)
    with pytest.raises(ArgumentError, match="turn_id is 2; the turns of request 0 are 1"):
        request.rewind_to_start_of_turn(2)
    for name, value in (("max_batch_size", -1), ("block_size", -1), ("chunk_size", 2), ("max_scheduled_tokens", 2)):
        with pytest.raises(ArgumentError, match=f"{name} is {value}"):
            Engine(model, **{name: value})  # type: ignore[arg-type]


def test_the_smallest_chunks_read_any_prompt(model: genai_lab.Model) -> None:
    """Pieces of one token would be other numbers; with pieces of three there is a way for every length."""
    asked = prompts(*range(1, 9))
    engine = Engine(model, max_batch_size=2, max_session_tokens=40, chunk_size=3, max_scheduled_tokens=3)
    assert answers(engine, asked, 4) == [alone(model, prompt, 4) for prompt in asked]


def test_prefix_first_runs_the_warm_request_first(model: genai_lab.Model) -> None:
    asked = prompts(9, 12, shared=48)
    engine = Engine(model, max_batch_size=1, max_session_tokens=200, policy=PrefixFirst())
    answers(engine, asked[:1], 4)
    cold, warm = engine.create_request(), engine.create_request()
    cold.begin_turn(prompts(57, seed=9)[0], turn(4))
    warm.begin_turn(asked[1], turn(4))
    finished = [e.request for e in drain(engine) if e.flags & EngineEventFlags.TURN_FINISHED]
    assert finished == [warm, cold]


@pytest.mark.parametrize("sizes", [{"num_blocks": 10**9}, {"block_size": 2**30}, {"max_batch_size": 2**31 - 1}])
def test_an_engine_that_cannot_fit_names_its_own_arguments(model: genai_lab.Model, sizes: dict[str, int]) -> None:
    with pytest.raises(CapacityError) as caught:
        Engine(model, **sizes)  # type: ignore[arg-type]
    words = str(caught.value)
    assert all(name in words for name in ("num_blocks", "block_size", "max_batch_size", "max_session_tokens"))
    assert "params" not in words


@pytest.mark.parametrize("name", ["chunk_size", "max_scheduled_tokens"])
def test_too_small_a_piece_says_why(model: genai_lab.Model, name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is 2; .* at least 3 .* no piece of a prompt has one token"):
        Engine(model, **{name: 2})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ("hi", r"tokens is 'hi' \(str\).*tokenizer\.encode\(text\)"),
        (None, r"tokens is None \(NoneType\); allowed is one sequence of token ids"),
        ({1, 2}, r"tokens is \{1, 2\} \(set\)"),
        (["hi"], r"tokens is \['hi'\] .*integers are allowed.*tokenizer\.encode"),
        ([1.5], r"tokens is \[1\.5\] \(dtype float64\); integers are allowed"),
    ],
)
def test_what_is_no_sequence_of_ids_is_named(model: genai_lab.Model, tokens: Any, words: str) -> None:
    with Engine(model, max_session_tokens=40) as engine, pytest.raises(ArgumentTypeError, match=words):
        engine.create_request().begin_turn(tokens)


def test_a_tracer_that_cannot_record_is_refused(model: genai_lab.Model) -> None:
    with genai_lab.record() as trace:
        pass
    for wrong in (3, trace, Recorder, "trace"):
        with pytest.raises(ArgumentTypeError, match=r"Engine: tracer is .* trace\.recorder"):
            Engine(model, tracer=wrong)  # type: ignore[arg-type]
    with Engine(model, max_session_tokens=40, tracer=trace.recorder) as engine:
        engine.generate_all([[5, 6]], max_generated_tokens=2)
    assert len(trace.tokens()) == 2


def test_a_class_is_no_policy(model: genai_lab.Model) -> None:
    with pytest.raises(ArgumentTypeError, match=r"a policy, not its class: policy=Fcfs\(\)"):
        Engine(model, policy=Fcfs)  # type: ignore[arg-type]


def test_options_of_a_request_are_checked_and_copied_when_it_is_made(model: genai_lab.Model) -> None:
    """Nobody's wrong attribute stops a step, and nobody's later change reaches a request that is there."""
    engine, options = Engine(model), RequestOptions()
    wrong: list[tuple[str, Any]] = [
        *(("salt", value) for value in (3, None, ["x"])),
        ("adapter", 3),
        *(("priority", value) for value in ("x", None, float("nan"), 1.5, True)),
        *(("max_session_tokens", value) for value in ("x", -5)),
    ]
    for name, value in wrong:
        setattr(options, name, value)
        with pytest.raises(GenaiLabError, match=name):
            engine.create_request(options=options)
        options = RequestOptions()
    assert not engine._states
    options.priority = np.int64(1)  # type: ignore[assignment]
    first = engine.create_request(options=options)
    options.priority, options.salt = 5, "other"
    second = engine.create_request(options=options)
    kept = [engine._states[request.number].options for request in (first, second)]
    assert [(one.priority, one.salt) for one in kept] == [(1, ""), (5, "other")]
