"""The same scripts of calls, driven through onnxruntime-genai's Engine and ours on one synthetic model: the same
tokens, flags, finish reasons, stop indices and usage in every event, request by request.

What onnxruntime-genai does on a CPU with such a model is static batching: rows of a batch begin together, and nobody
joins until all have ended. (With a graph that reads block tables it does more: `test_og_paged_engine`.) So events of
different requests may come in another order here; each request's own events may not.
What cannot be compared on a CPU, and why, stands in `NOT_COMPARED`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab
from tests.tiny import tiny_model_folder

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og

LIBRARIES = (og, genai_lab)
NOT_COMPARED = {
    "dynamic batching, paged KV, chunked prefill": "a model with rows of its own is batched statically there; "
    "others are compared in test_og_paged_engine",
    "cached_prompt_tokens above 0": "its prefix cache belongs to the paged engine; ours is compared with 0 where the "
    "cache is off",
    "stop strings, seeds": "its static engine refuses them ('require an Engine configured for dynamic batching')",
    "set_draft_tokens": "its static engine cannot verify proposals (max_draft_tokens_per_proposal is 0)",
    "CAPACITY_BLOCKED, CAPACITY_DEFERRED, EXECUTION_CAPACITY_EXCEEDED": "its static engine has no blocks to run out of",
    "RETRYABLE events": "they come from paged executions that failed before their commit",
    "get_capabilities sizes": "0 means 'no limit' there; ours are the engine's own sizes",
    "token ids outside the vocabulary": "there the run fails and the engine is lost; here begin_turn refuses them",
}

Script = Callable[[Any, Any], list[Any]]  # library, its engine -> what the caller saw


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Any]:
    """Makes an engine of a library, without prefix reuse, on a graph that gives the logits of every position."""
    folder = tiny_model_folder(tmp_path_factory.mktemp("synthetic") / "model", extra_options={"prune_lm_head": False})
    models = {library: library.Model(str(folder)) for library in LIBRARIES}

    def make(library: Any) -> Any:
        if library is og:
            return og.Engine(models[og])
        return genai_lab.Engine(models[library], prefix_caching=False, max_session_tokens=256)

    return make


def prompt(size: int, seed: int = 0) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(3, 250, size).astype(np.int32)


def options(library: Any, request: Any, most: int, **given: Any) -> Any:
    made = library.TurnOptions(request)
    made.set_max_generated_tokens(most)
    for name, value in given.items():
        getattr(made, f"set_{name}")(value)
    return made


def told(event: Any) -> tuple[Any, ...]:
    """What an event says, in numbers that both libraries share."""
    usage = event.usage
    return (
        int(event.flags),
        event.turn_id,
        event.token,
        event.finish_reason.name,
        event.error_code.name,
        event.matched_stop_string_index,
        (usage.prompt_tokens, usage.generated_tokens, usage.cached_prompt_tokens),
    )


def drain(engine: Any, requests: list[Any], capacity: int = 8) -> list[list[tuple[Any, ...]]]:
    """Run until nothing is left; each request's events."""
    found: list[list[tuple[Any, ...]]] = [[] for _ in requests]
    buffer = engine.create_event_buffer(capacity)
    while engine.has_pending_requests():
        engine.run(buffer)
        for index in range(len(buffer)):
            event = buffer[index]
            place = next(i for i, request in enumerate(requests) if event.request is request)
            found[place].append(told(event))
    return found


def test_logits_of_the_last_position_are_enough_here_and_not_there(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path / "model")
    errors = []
    for library in LIBRARIES:
        engine = library.Engine(library.Model(str(folder)))
        request = engine.create_request()
        request.begin_turn(prompt(5), options(library, request, 3))
        errors.append([error for *_, error, _, _ in drain(engine, [request])[0]])
    assert set(errors[0]) == {"ENGINE_EXECUTION_FAILURE"}
    assert errors[1] == ["NONE"] * 3


def refusal(call: Callable[[], object]) -> str:
    """Whether a call is refused; the kinds of errors have other names in the two libraries."""
    try:
        call()
    except Exception:
        return "refused"
    return "done"


def one_turn(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    turn = request.begin_turn(prompt(20), options(library, request, 8))
    return [turn, drain(engine, [request]), engine.has_pending_requests()]


def sampling_options_without_chance(library: Any, engine: Any) -> list[Any]:
    seen: list[Any] = []
    request = engine.create_request()
    for given in ({"top_k": 1}, {"temperature": 0.0}, {"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 2}):
        request.begin_turn(prompt(9, len(seen)), options(library, request, 6, **given))
        seen.append(drain(engine, [request]))
    return seen


def least_tokens(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    request.begin_turn(prompt(12), options(library, request, 9, min_generated_tokens=7))
    return drain(engine, [request])


def a_conversation(library: Any, engine: Any) -> list[Any]:
    request, seen = engine.create_request(), []
    for size, most in ((20, 5), (9, 3), (1, 4), (2, 1)):
        seen.append(request.begin_turn(prompt(size, size), options(library, request, most)))
        seen.append(drain(engine, [request]))
    return seen


def rewinding(library: Any, engine: Any) -> list[Any]:
    request, seen = engine.create_request(), []
    for size in (20, 9, 5):
        seen.append(request.begin_turn(prompt(size, size), options(library, request, 3)))
        seen.append(drain(engine, [request]))
    request.rewind_to_start_of_turn(2)
    seen.append(refusal(lambda: request.rewind_to_start_of_turn(3)))
    seen.append(request.begin_turn(prompt(9, 9), options(library, request, 3)))
    seen.append(drain(engine, [request]))
    seen.append(refusal(lambda: request.rewind_to_start_of_turn(9)))
    request.rewind_to_start_of_turn(1)
    seen.append(request.begin_turn(prompt(7, 7), options(library, request, 3)))
    seen.append(drain(engine, [request]))
    return seen


def cancelling(library: Any, engine: Any) -> list[Any]:
    request, buffer = engine.create_request(), engine.create_event_buffer(1)
    request.begin_turn(prompt(20), options(library, request, 9))
    engine.run(buffer)
    seen: list[Any] = [told(buffer[0])]
    seen.append(refusal(lambda: request.begin_turn(prompt(3))))
    seen.append(refusal(lambda: request.rewind_to_start_of_turn(1)))
    seen += [request.cancel_turn(7), request.cancel_turn(1), request.cancel_turn(1)]
    seen.append(refusal(lambda: request.begin_turn(prompt(3))))  # an event was not taken
    seen.append(drain(engine, [request]))
    seen.append(request.begin_turn(prompt(9, 1), options(library, request, 2)))
    seen.append(drain(engine, [request]))
    return [*seen, request.cancel_turn(2)]


def a_full_session(library: Any, engine: Any) -> list[Any]:
    limit = library.RequestOptions()
    limit.set_max_session_tokens(25)
    request = engine.create_request(options=limit)
    seen: list[Any] = []
    for size in (40, 25):
        seen.append(refusal(lambda size=size: request.begin_turn(prompt(size))))  # type: ignore[misc]
    request.begin_turn(prompt(20), options(library, request, 50))
    seen.append(drain(engine, [request]))
    return [*seen, refusal(lambda: request.begin_turn(prompt(5)))]


def several_at_once(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(7)]
    for number, request in enumerate(requests):
        size, most = 5 + 3 * number, 1 + number % 4
        request.begin_turn(prompt(size, number), options(library, request, most))
    return drain(engine, requests, capacity=3)


def one_leaves(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(3)]
    for number, request in enumerate(requests):
        request.begin_turn(prompt(9, number), options(library, request, 6))
    buffer = engine.create_event_buffer(1)
    engine.run(buffer)
    requests[2].close()
    requests[2].close()
    rest = drain(engine, requests[:2])
    first = told(buffer[0])
    return [[first, *rest[0]], rest[1], refusal(lambda: requests[2].begin_turn(prompt(3)))]


def a_dropped_handle(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    request.begin_turn(prompt(20), options(library, request, 9))
    engine.run(engine.create_event_buffer(1))
    before = engine.has_pending_requests()
    del request
    return [before, engine.has_pending_requests()]


def bad_calls(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    given = (
        {"temperature": 0.5},
        {"do_sample": True, "top_p": 2.0},
        {"repetition_penalty": -1.0},
        {"min_generated_tokens": 9},
    )
    seen = [
        refusal(lambda one=one: request.begin_turn(prompt(4), options(library, request, 2, **one)))  # type: ignore[misc]
        for one in given
    ]
    for tokens in (np.zeros(0, np.int32), np.zeros((1, 3), np.int32)):
        seen.append(refusal(lambda tokens=tokens: request.begin_turn(tokens)))  # type: ignore[misc]
    seen.append(refusal(lambda: engine.create_event_buffer(-1)))
    seen.append(refusal(lambda: request.set_draft_tokens(np.array([5], np.int32))))  # nothing is under way
    buffer = engine.create_event_buffer(4)
    engine.run(buffer)
    return [*seen, len(buffer), refusal(lambda: buffer[0]), engine.has_pending_requests()]


def an_end_token(library: Any, engine: Any) -> list[Any]:
    """Prompts until some answers end by themselves."""
    seen = []
    for seed in range(24):
        request = engine.create_request()
        request.begin_turn(prompt(4, seed), options(library, request, 40, repetition_penalty=1.6))
        seen += drain(engine, [request])
        request.close()
    return seen


SCRIPTS = [
    one_turn,
    sampling_options_without_chance,
    least_tokens,
    a_conversation,
    rewinding,
    cancelling,
    a_full_session,
    several_at_once,
    one_leaves,
    a_dropped_handle,
    bad_calls,
    an_end_token,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.__name__ for script in SCRIPTS])
def test_both_engines_tell_the_same(engines: Callable[[Any], Any], script: Script) -> None:
    theirs, ours = (script(library, engines(library)) for library in LIBRARIES)
    assert ours == theirs


def test_an_end_token_was_among_the_answers(engines: Callable[[Any], Any]) -> None:
    reasons = {event[3] for events in an_end_token(og, engines(og)) for event in events}
    assert reasons == {"NONE", "EOS", "MAX_GENERATED_TOKENS"}


def test_what_is_not_compared_is_so(engines: Callable[[Any], Any], tmp_path: Path) -> None:
    """The reasons in NOT_COMPARED, as far as a call can show them."""
    engine = engines(og)
    request = engine.create_request()
    assert engine.max_draft_tokens_per_proposal() == 0
    for given in ({"stop_strings": ["x"]}, {"seed": 3, "do_sample": True}):
        with pytest.raises(RuntimeError, match="dynamic batching"):
            request.begin_turn(prompt(4), options(og, request, 4, **given))
    request.begin_turn(prompt(20), options(og, request, 4))
    engine.run(engine.create_event_buffer(1))
    with pytest.raises(RuntimeError, match="does not support speculative draft verification"):
        request.set_draft_tokens(np.array([5], np.int32))
    assert set(engine.get_speculative_stats()) >= set(engines(genai_lab).get_speculative_stats())
    assert all(NOT_COMPARED.values())


def test_steps_that_run_the_model_are_counted_alike(engines: Callable[[Any], Any]) -> None:
    found = []
    for library in (og, genai_lab):
        engine, counts = engines(library), []
        for lengths in ([5], [5, 5], [3, 6]):
            requests = [engine.create_request() for _ in lengths]
            for request, length in zip(requests, lengths, strict=True):
                request.begin_turn(prompt(4), options(library, request, length))
            buffer = engine.create_event_buffer(8)
            while engine.has_pending_requests():
                engine.run(buffer)
            for request in requests:
                request.close()
            counts.append(engine.get_speculative_stats()["target_forward_passes"])
        found.append(counts)
    assert found[1] == found[0]
    assert found[0][0] > 0
