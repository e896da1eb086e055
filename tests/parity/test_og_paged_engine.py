"""The same scripts of calls through onnxruntime-genai's paged Engine and ours, on a graph of plain operators that reads
block tables: on such a one its dynamic batching runs on a CPU too, with prefix reuse, stop strings and seeds, which its
static batching (`test_og_engine`) refuses. Every event is compared, in the order in which it came.

Left out: top_k=0 with top_p below 1, which keeps other tokens there (`test_og_generator`); stop strings beside half a
character, which there takes the next letter with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab
from tests.graphs import VOCABULARY
from tests.graphs_paged import add_tokenizer, paged_decoder
from tests.parity.test_og_engine import options, refusal, told

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og

LIBRARIES = (og, genai_lab)
Script = Callable[[Any, Any], list[Any]]  # library, its engine -> what the caller saw


FOLDERS: dict[str, dict[str, Any]] = {
    "blocks": {},
    "rings": {"window": 5, "ring_blocks": 8, "chunk": 3},  # a layer sees 5 tokens, in 2 blocks of 4 for each of 4 rows
    "states": {"state": True},
    "every token": {"logits": "tokens"},  # proposals can be verified
    "chosen tokens": {"logits": "selected"},
}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any, str], Any]:
    models: dict[tuple[Any, str], Any] = {}
    for name, given in FOLDERS.items():
        folder = paged_decoder(tmp_path_factory.mktemp("paged") / name, engine={"max_batch_size": 4}, **given)
        add_tokenizer(folder)
        models |= {(library, name): library.Model(str(folder)) for library in LIBRARIES}
    return lambda library, name: library.Engine(models[library, name])


def prompt(size: int, seed: int = 0) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(2, VOCABULARY, size).astype(np.int32)


def taken(engine: Any, requests: list[Any], capacity: int = 8) -> list[Any]:
    """The next events. (There `run` also comes back after a piece of a prompt, with none.)"""
    buffer = engine.create_event_buffer(capacity)
    while engine.has_pending_requests() and not len(buffer):
        engine.run(buffer)
    return [(place(requests, buffer[i].request), *told(buffer[i])) for i in range(len(buffer))]


def run(engine: Any, requests: list[Any], capacity: int = 8) -> list[Any]:
    """What was handed over at a time, request by place; until nothing is left."""
    seen: list[Any] = []
    while engine.has_pending_requests():
        seen.append(taken(engine, requests, capacity))
    return seen


def place(requests: list[Any], request: Any) -> int | None:
    return next((number for number, one in enumerate(requests) if one is request), None)


def ask(library: Any, engine: Any, tokens: Any, most: int, request: Any = None, **given: Any) -> list[Any]:
    """One turn, alone."""
    asked = request if request is not None else engine.create_request()
    number = asked.begin_turn(np.asarray(tokens, np.int32), options(library, asked, most, **given))
    return [number, run(engine, [asked])]


def tokens_of(seen: list[Any]) -> list[int]:
    return [event[3] for events in seen[1] for event in events if event[3] is not None]


def one_turn(library: Any, engine: Any) -> list[Any]:
    return [
        ask(library, engine, prompt(size, size), most) for size, most in ((1, 1), (2, 9), (9, 12), (33, 3), (40, 20))
    ]


def prefixes(library: Any, engine: Any) -> list[Any]:
    """Beginnings that end inside of a block, at its end, and one token after; with the first request open or closed."""
    seen, first = [], engine.create_request()
    seen.append(ask(library, engine, prompt(16), 3, first))
    for shared in (0, 1, 3, 4, 5, 8, 11, 12, 15, 16):
        tokens = np.concatenate([prompt(16)[:shared], prompt(3, 50 + shared)])
        seen.append(ask(library, engine, tokens, 3))
    for size in (4, 8, 16):
        seen.append(ask(library, engine, prompt(16)[:size], 3))  # the last token is always read
    first.close()
    return [*seen, ask(library, engine, prompt(16), 3)]


def answers_as_prompts(library: Any, engine: Any) -> list[Any]:
    first = ask(library, engine, prompt(5), 11)
    again = [*prompt(5).tolist(), *tokens_of(first)]
    return [first, *(ask(library, engine, again[:size], 2) for size in (6, 9, 13, 16))]


def a_conversation(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    return [ask(library, engine, prompt(size, size), most, request) for size, most in ((14, 5), (9, 3), (1, 4), (2, 1))]


def two_conversations(library: Any, engine: Any) -> list[Any]:
    """The second goes the same way for two turns; the prefix cache has its first turns."""
    seen = []
    for last in (3, 4):
        request = engine.create_request()
        for size in (8, 5, last):
            seen.append(ask(library, engine, prompt(size, size), 3, request))
        request.close()
    return seen


def several_at_once(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(4)]
    for number, request in enumerate(requests):
        request.begin_turn(prompt(5 + 3 * number, number), options(library, request, 1 + number))
    return run(engine, requests, capacity=3)


def joining_a_batch(library: Any, engine: Any) -> list[Any]:
    """A request that comes later joins those under way."""
    requests, seen = [engine.create_request() for _ in range(3)], []
    for number, request in enumerate(requests):
        request.begin_turn(prompt(6, number), options(library, request, 7))
        seen += [taken(engine, requests) for _ in range(2)]
    return [*seen, run(engine, requests)]


def the_same_prompt_side_by_side(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(3)]
    for request in requests:
        request.begin_turn(prompt(9), options(library, request, 4))
    return [run(engine, requests), ask(library, engine, prompt(9), 2)]


def one_leaves(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(3)]
    for number, request in enumerate(requests):
        request.begin_turn(prompt(9, number), options(library, request, 6))
    first = taken(engine, requests)
    requests[1].close()
    return [first, run(engine, requests), refusal(lambda: requests[1].begin_turn(prompt(3)))]


def a_dropped_handle(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(2)]
    for number, request in enumerate(requests):
        request.begin_turn(prompt(9, number), options(library, request, 3))
    first = taken(engine, requests)
    del request, requests[1:]
    return [first, run(engine, requests)]


def cancelling(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    seen: list[Any] = [refusal(lambda: request.cancel_turn(0))]
    seen.append(request.begin_turn(prompt(9), options(library, request, 9)))
    seen += [request.cancel_turn(1), request.cancel_turn(1), refusal(lambda: request.begin_turn(prompt(3)))]
    seen.append(run(engine, [request]))  # before anything was read
    seen.append(request.begin_turn(prompt(9, 1), options(library, request, 9)))
    seen += [taken(engine, [request]), request.cancel_turn(9), request.cancel_turn(2), run(engine, [request])]
    return [*seen, ask(library, engine, prompt(3, 2), 4, request), request.cancel_turn(3)]


def rewinding(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    seen: list[Any] = [refusal(lambda: request.rewind_to_start_of_turn(1))]
    seen += [ask(library, engine, prompt(size, size), 3, request) for size in (13, 9, 5)]
    request.rewind_to_start_of_turn(2)
    seen.append(refusal(lambda: request.rewind_to_start_of_turn(3)))
    seen.append(ask(library, engine, prompt(9, 9), 3, request))
    request.rewind_to_start_of_turn(1)
    return [*seen, ask(library, engine, prompt(13, 13), 3, request)]


def end_tokens(library: Any, engine: Any) -> list[Any]:
    """Prompts until some answers end by themselves."""
    seen = []
    for seed in range(40):
        request = engine.create_request()
        seen.append(ask(library, engine, prompt(4, seed), 40, request, repetition_penalty=1.4))
        request.close()
    return seen


def full_sessions(library: Any, engine: Any) -> list[Any]:
    limit = library.RequestOptions()
    limit.set_max_session_tokens(25)
    request = engine.create_request(options=limit)
    seen: list[Any] = []
    for size in (40, 25):
        seen.append(refusal(lambda size=size: request.begin_turn(prompt(size))))  # type: ignore[misc]
    seen.append(ask(library, engine, prompt(20), 50, request))
    seen.append(refusal(lambda: request.begin_turn(prompt(5))))
    long = engine.create_request()
    return [
        *seen,
        ask(library, engine, prompt(60), 50, long),
        refusal(lambda: engine.create_request().begin_turn(prompt(64))),
    ]


def text(library: Any, folder: Any, tokens: list[int]) -> str:
    return str(library.Tokenizer(folder).decode(np.array(tokens, np.int32)))


def stop_strings(library: Any, engine: Any) -> list[Any]:
    """Stops made of the answer itself: within a token, over two and three, the first and the second of several, the
    prompt's end with the answer's beginning, one that comes with the last token that is allowed."""
    letters = [*"abcdefghijklmnopqrstuvwxyz", "ab", "st", "op", "stop", "xyz", " ", " a", "", "", "no", "yes", "."]
    seen: list[Any] = []
    for seed in (10, 12, 13, 19, 24, 28):
        asked = prompt(5, seed)
        answer = tokens_of(ask(library, engine, asked, 10))
        words = [letters[token - 2] if token > 1 else "" for token in answer]
        assert len(words) >= 6
        whole = "".join(words[:6])
        stops = [[word] for word in dict.fromkeys(words) if word]
        stops += [["".join(words[1:3])], ["".join(words[2:5])], ["never", whole[-2:]], [whole[3:5], whole[2:4]]]
        stops.append([letters[int(asked[-1]) - 2] + words[0]])
        for stop in stops:
            if all(stop):
                seen.append((stop, ask(library, engine, asked, 10, stop_strings=stop)))
        seen.append(ask(library, engine, asked, 2, stop_strings=[words[1] or "never"]))
    return seen


def stops_over_turns(library: Any, engine: Any) -> list[Any]:
    """What a turn left half matched means nothing to the next."""
    request, seen = engine.create_request(), []
    for size in (5, 3, 4):
        seen.append(ask(library, engine, prompt(size, size), 3, request, stop_strings=["ab", "st", "op", "e"]))
    return seen


def seeds(library: Any, engine: Any) -> list[Any]:
    sampled = {"do_sample": True, "top_k": 20, "temperature": 1.5}
    seen = [
        ask(library, engine, prompt(5), 12, seed=seed, **sampled) for seed in (0, 1, 2**31, 5, 2**33 + 5, 2**64 - 1)
    ]
    request = engine.create_request()
    for again in ({"seed": 99}, {}, {"seed": 99}):
        seen.append(ask(library, engine, prompt(3, 1), 6, request, **sampled, **again))
    for given in ({"top_p": 0.7}, {"top_k": 40}, {"repetition_penalty": 1.3}, {"min_generated_tokens": 5}):
        seen.append(ask(library, engine, prompt(4, 2), 9, seed=7, **(sampled | given)))
    return seen


def seeds_in_company(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(3)]
    for number, request in enumerate(requests):
        given = {"do_sample": True, "top_k": 20, "temperature": 1.5, "seed": number}
        request.begin_turn(prompt(4 + number, number), options(library, request, 8, **given))
    return run(engine, requests)


def a_cancelled_turn_and_its_seed(library: Any, engine: Any) -> list[Any]:
    """A turn that ends before it draws leaves the stream as it was."""
    sampled = {"do_sample": True, "top_k": 20, "temperature": 1.5}
    request = engine.create_request()
    seen = [ask(library, engine, prompt(5), 4, request, seed=3, **sampled)]
    number = request.begin_turn(prompt(3), options(library, request, 4, seed=99, **sampled))
    seen += [request.cancel_turn(number), run(engine, [request])]
    return [*seen, ask(library, engine, prompt(4), 6, request, **sampled)]


def greedy_policies(library: Any, engine: Any) -> list[Any]:
    """Options that mean greedy, or mean nothing to it."""
    given: list[dict[str, Any]] = [
        {"top_k": 1},
        {"temperature": 0.0},
        {"do_sample": False, "top_k": 1},
        {"do_sample": False, "temperature": 0.0},
        {"do_sample": False, "top_p": 1.0, "top_k": 0},
        {"do_sample": True, "top_k": 1, "temperature": 0.0},
        {"do_sample": False, "temperature": 1.0},
        {"no_repeat_ngram_size": 2},
        {"repetition_penalty": 1.5},
        {"min_generated_tokens": 6},
    ]
    return [ask(library, engine, prompt(6), 6, **one) for one in given]


def refused_policies(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    given: list[dict[str, Any]] = [
        {"do_sample": False, "temperature": 0.7},
        {"do_sample": True, "top_k": 1, "top_p": 0.9},
        {"do_sample": False, "top_k": 40},
        {"do_sample": True, "temperature": 0.0, "top_k": 40},
        {"top_k": 1, "temperature": 0.5},
        {"top_k": 1, "top_p": 0.5},
        {"temperature": 0.0, "top_p": 0.5},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"do_sample": False, "top_p": 0.0},
        {"do_sample": True, "top_p": 2.0},
        {"do_sample": True, "top_p": -0.1},
        {"do_sample": True, "temperature": -1.0},
        {"repetition_penalty": -1.0},
        {"repetition_penalty": 0.0},
        {"min_generated_tokens": 9},
        {"stop_strings": [""]},
        {"stop_strings": []},
        {"no_repeat_ngram_size": -1},
        {"do_sample": True, "top_k": -1},
    ]
    seen: list[Any] = []
    for one in given:
        seen.append((one, refusal(lambda one=one: request.begin_turn(prompt(4), options(library, request, 2, **one)))))  # type: ignore[misc]
        if seen[-1][1] == "done":
            run(engine, [request])
    for tokens in (np.zeros(0, np.int32), np.zeros((1, 3), np.int32)):
        seen.append(refusal(lambda tokens=tokens: request.begin_turn(tokens)))  # type: ignore[misc]
    return [*seen, ask(library, engine, prompt(4), 2, request)]


def small_buffers(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(3)]
    for number, request in enumerate(requests):
        request.begin_turn(prompt(5, number), options(library, request, 2))
    empty = engine.create_event_buffer(0)
    engine.run(empty)
    return [len(empty), engine.has_pending_requests(), run(engine, requests, capacity=1)]


def an_event_not_taken(library: Any, engine: Any) -> list[Any]:
    requests = [engine.create_request() for _ in range(2)]
    for number, request in enumerate(requests):
        request.begin_turn(prompt(5, number), options(library, request, 1))
    seen: list[Any] = [taken(engine, requests, capacity=1), refusal(lambda: requests[1].begin_turn(prompt(3)))]
    return [*seen, run(engine, requests), ask(library, engine, prompt(3), 2, requests[1])]


def proposing(library: Any, engine: Any, wrong: Callable[[int], list[int]], **given: Any) -> list[Any]:
    """A turn in which the next two tokens are proposed after each step, followed by `wrong` ones."""
    asked = prompt(9)
    right = tokens_of(ask(library, engine, asked, 14, **given))
    request, seen = engine.create_request(), []
    request.begin_turn(asked, options(library, request, 14, **given))
    count = 0
    while engine.has_pending_requests():
        seen.append(taken(engine, [request]))
        count += sum(event[3] is not None for event in seen[-1])
        drafts = [*right[count : count + 2], *wrong(count)]
        if 0 < count < len(right) - 2 and drafts:
            request.set_draft_tokens(np.array(drafts, np.int32))
    stats = engine.get_speculative_stats()
    # (What is beyond the turn's end counts as proposed there, and as not proposed here.)
    kept = ("rounds", "completed_rounds", "draft_tokens_evaluated", "draft_tokens_accepted", "target_forward_passes",
            "full_accept_rounds")  # fmt: skip
    return [right, seen, {name: stats[name] for name in kept}]


def right_and_wrong_proposals(library: Any, engine: Any) -> list[Any]:
    """(With a repetition penalty, or before the fewest tokens are there, it takes none there; here it does.)"""
    every: list[Callable[[int], list[int]]] = [
        lambda n: [],
        lambda n: [5],
        lambda n: [5, 6, 7],
        lambda n: [5] * (n % 3),
    ]
    return [proposing(library, engine, wrong) for wrong in [*every, lambda n: [1]]]


def proposals_and_stops(library: Any, engine: Any) -> list[Any]:
    """The stop string ends within what was proposed, at its end, and in the token after it."""
    texts = [["never"], ["k"], ["ckc"], ["cb"], ["bb"], ["bbb"], ["t", "kc"], ["bbt"], ["tc"]]  # of "ckcbbbbbbtcbbb"
    return [proposing(library, engine, lambda n: [5], stop_strings=stops) for stops in texts]


def refused_proposals(library: Any, engine: Any) -> list[Any]:
    request = engine.create_request()
    seen: list[Any] = [refusal(lambda: request.set_draft_tokens(np.array([5], np.int32)))]
    request.begin_turn(prompt(9), options(library, request, 5))
    seen.append(refusal(lambda: request.set_draft_tokens(np.array([5], np.int32))))
    seen.append(taken(engine, [request]))
    for drafts in ([5] * 17, [], [5]):
        seen.append((drafts, refusal(lambda drafts=drafts: request.set_draft_tokens(np.array(drafts, np.int32)))))  # type: ignore[misc]
    seen.append(run(engine, [request]))
    return [*seen, refusal(lambda: request.set_draft_tokens(np.array([5], np.int32)))]


SCRIPTS = [
    one_turn,
    prefixes,
    answers_as_prompts,
    a_conversation,
    two_conversations,
    several_at_once,
    joining_a_batch,
    one_leaves,
    a_dropped_handle,
    cancelling,
    rewinding,
    end_tokens,
    full_sessions,
    stop_strings,
    stops_over_turns,
    seeds,
    seeds_in_company,
    a_cancelled_turn_and_its_seed,
    greedy_policies,
    refused_policies,
    small_buffers,
    an_event_not_taken,
]
ANY_MODEL = [script for script in SCRIPTS if script is not stop_strings]  # that one knows the answers of one graph


def reused(seen: Any) -> list[int]:
    """The cached tokens of every event."""
    if isinstance(seen, tuple) and seen and isinstance(seen[-1], tuple):
        return [seen[-1][2]]
    return [count for one in seen for count in reused(one)] if isinstance(seen, list) else []


def without_reuse(seen: Any) -> Any:
    """The same, with no word of cached tokens."""
    if isinstance(seen, tuple) and seen and isinstance(seen[-1], tuple):
        return (*seen[:-1], seen[-1][:2])
    return [without_reuse(one) for one in seen] if isinstance(seen, list) else seen


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.__name__ for script in SCRIPTS])
def test_both_engines_tell_the_same(engines: Callable[[Any, str], Any], script: Script) -> None:
    theirs, ours = (script(library, engines(library, "blocks")) for library in LIBRARIES)
    assert ours == theirs


@pytest.mark.parametrize("name", ["rings", "states"])
@pytest.mark.parametrize("script", ANY_MODEL, ids=[script.__name__ for script in ANY_MODEL])
def test_so_they_do_with_more_than_blocks(engines: Callable[[Any, str], Any], script: Script, name: str) -> None:
    """(States are kept there for the ends of prompts, here for the end of every run that is a block's: never less.)"""
    theirs, ours = (script(library, engines(library, name)) for library in LIBRARIES)
    if name == "states":
        assert all(own >= other for own, other in zip(reused(ours), reused(theirs), strict=True))
        theirs, ours = without_reuse(theirs), without_reuse(ours)
    assert ours == theirs


@pytest.mark.parametrize("name", ["every token", "chosen tokens"])
@pytest.mark.parametrize("script", [right_and_wrong_proposals, proposals_and_stops, refused_proposals])
def test_proposals_are_verified_alike(engines: Callable[[Any, str], Any], script: Script, name: str) -> None:
    theirs, ours = (script(library, engines(library, name)) for library in LIBRARIES)
    assert ours == theirs


def test_the_same_prompt_side_by_side(engines: Callable[[Any, str], Any]) -> None:
    """There each reads it for itself; here it is read once and taken over, so that events come at other times."""
    theirs, ours = (the_same_prompt_side_by_side(library, engines(library, "blocks")) for library in LIBRARIES)

    def answers(seen: list[Any]) -> list[list[int]]:
        return [[event[3] for events in seen[0] for event in events if event[0] == number] for number in range(3)]

    assert answers(ours) == answers(theirs)
    assert ours[1] == theirs[1]


# ---- what differs on purpose (docs/COMPATIBILITY.md)


def test_a_place_of_an_idle_conversation(engines: Callable[[Any, str], Any]) -> None:
    """There it is kept until somebody closes it; here it is given up, and read again when it goes on."""
    seen = {}
    for library in LIBRARIES:
        engine = engines(library, "blocks")
        requests = [engine.create_request() for _ in range(5)]
        for number, request in enumerate(requests):
            request.begin_turn(prompt(5, number), options(library, request, 2))
        found = [taken(engine, requests) for _ in range(6)]
        seen[library] = {event[0] for events in found for event in events}
        if library is og:
            assert [found[-1][0][i] for i in (0, 1, 3, 5)] == [None, 4, None, "CAPACITY_DEFERRED"]
    assert seen == {og: {0, 1, 2, 3, None}, genai_lab: {0, 1, 2, 3, 4}}


def test_proposals_beside_a_penalty(engines: Callable[[Any, str], Any]) -> None:
    for library, answer in zip(LIBRARIES, ("refused", "done"), strict=True):
        engine = engines(library, "every token")
        request = engine.create_request()
        request.begin_turn(prompt(9), options(library, request, 5, repetition_penalty=1.3))
        taken(engine, [request])
        assert refusal(lambda: request.set_draft_tokens(np.array([5], np.int32))) == answer  # noqa: B023


def test_a_stop_after_half_a_character(engines: Callable[[Any, str], Any]) -> None:
    """There the broken character takes the letter after it along."""
    ends = {}
    for library in LIBRARIES:
        seen = ask(library, engines(library, "blocks"), prompt(5, 11), 10, stop_strings=["b"])
        assert tokens_of(seen)[:5] == [23, 35, 35, 35, 3]  # 35 is the first half of an e with an accent, 3 is "b"
        ends[library] = len(tokens_of(seen))
    assert ends == {og: 8, genai_lab: 5}


def test_a_piece_of_a_prompt_has_no_events(engines: Callable[[Any, str], Any]) -> None:
    for library, events in zip(LIBRARIES, (0, 1), strict=True):
        engine = engines(library, "rings")
        request, buffer = engine.create_request(), engine.create_event_buffer(4)
        request.begin_turn(prompt(9), options(library, request, 2))
        engine.run(buffer)
        assert len(buffer) == events


def test_a_state_inside_of_an_answer(engines: Callable[[Any, str], Any]) -> None:
    """A prompt that repeats an answer begins there at its beginning, here at the last block that a run ended with."""
    cached = {}
    for library in LIBRARIES:
        engine = engines(library, "states")
        answer = tokens_of(ask(library, engine, prompt(5), 11))
        cached[library] = ask(library, engine, [*prompt(5).tolist(), *answer], 2)[1][-1][-1][-1][-1]
    assert cached == {og: 0, genai_lab: 12}
