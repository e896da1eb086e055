"""Forks share what was read, go their own ways, and get the tokens of separate requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Engine, EngineEventFlags, Reason, Request, TurnOptions, Verdict
from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError
from tests.engine.asking import SAMPLED, Tokens, alone, drain, prompts, skip_without_pages, turn

BACKENDS = [{"block_size": 16}, {"block_size": 32, "kv_backend": "vm"}]
pytestmark = pytest.mark.parametrize("backend", BACKENDS, ids=["slots", "vm"])


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> genai_lab.Model:
    return genai_lab.Model(tiny_folder)


def make(model: genai_lab.Model, backend: dict[str, object], **options: object) -> Engine:
    skip_without_pages(backend)
    sizes = {"max_batch_size": 5, "max_session_tokens": 140, "check_invariants": True}
    return Engine(model, **(sizes | backend | options))  # type: ignore[arg-type]


def collect(engine: Engine, requests: list[Request]) -> list[list[int]]:
    """What each answers from here on."""
    found: dict[int, list[int]] = {request.number: [] for request in requests}
    for event in drain(engine):
        if event.token is not None and event.request in requests:
            found[event.request.number].append(event.token)
    return [found[request.number] for request in requests]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 33, 50])
def test_samples_of_one_prompt_are_those_of_separate_requests(
    model: genai_lab.Model, backend: dict[str, object], size: int
) -> None:
    asked, engine = prompts(size)[0], make(model, backend)
    first = engine.create_request()
    first.begin_turn(asked, turn(20, seed=0, **SAMPLED))
    all_of_them = [first, *(first.fork(seed=seed) for seed in (1, 2, 3))]
    decisions = engine.step()
    assert sum(d.num_tokens for d in decisions) == size, "the prompt is read once"
    assert [d.reason for d in decisions].count(Reason.SHARED) == 3
    assert "takes over all that request 0 read" in decisions[-1].in_words()
    used = engine._cache.usage().blocks_used
    assert used == -(-size // int(str(backend["block_size"]))), "and lies in memory once"
    assert collect(engine, all_of_them) == [alone(model, asked, 20, seed, **SAMPLED) for seed in range(4)]


def test_samples_wait_while_the_prompt_is_read_in_chunks(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(60)[0], make(model, backend, chunk_size=20, max_batch_size=2)
    first = engine.create_request()
    first.begin_turn(asked, turn(8, seed=0, **SAMPLED))
    requests = [first, *(first.fork(seed=seed) for seed in (1, 2))]
    requests.append(requests[-1].fork(seed=3))  # a fork of one that waits
    follows = [d for d in engine.step() if d.reason is Reason.FOLLOWS]
    assert len(follows) == 3 and all(d.verdict is Verdict.WAIT for d in follows)
    assert "It waits for request 0" in follows[0].in_words()
    # two rows only: one fork shares, the others read for themselves when a row is free
    assert collect(engine, requests) == [alone(model, asked, 8, seed, **SAMPLED) for seed in range(4)]


@pytest.mark.parametrize("rewound", [False, True])
def test_a_fork_that_is_asked_something_else_reads_for_itself(
    model: genai_lab.Model, backend: dict[str, object], rewound: bool
) -> None:
    first_prompt, other_prompt = prompts(30, 9)
    engine = make(model, backend)
    first = engine.create_request()
    turn_id = first.begin_turn(first_prompt, turn(12))
    fork = first.fork()
    assert fork.cancel_turn(turn_id)
    engine.run(engine.create_event_buffer(8))  # takes the event of the cancelled turn
    if rewound:
        fork.rewind_to_start_of_turn(turn_id)
    fork.begin_turn(other_prompt, turn(12))
    whole = other_prompt if rewound else np.concatenate([first_prompt, other_prompt])
    assert collect(engine, [first, fork]) == [alone(model, first_prompt, 12), alone(model, whole, 12)]


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_when_the_first_leaves_the_others_read(model: genai_lab.Model, backend: dict[str, object], end: str) -> None:
    asked, engine = prompts(60)[0], make(model, backend, chunk_size=20)
    first = engine.create_request()
    first.begin_turn(asked, turn(8, seed=0, **SAMPLED))
    twins = [first.fork(seed=seed) for seed in (1, 2)]
    engine.step()
    if end == "close":
        first.close()
    else:
        assert first.cancel_turn(1)
    assert collect(engine, twins) == [alone(model, asked, 8, seed, **SAMPLED) for seed in (1, 2)]


def test_a_fork_in_the_middle_of_an_answer(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(30)[0], make(model, backend)
    first = engine.create_request()
    first.begin_turn(asked, turn(24))
    for _ in range(7):
        engine.step()
    twin = first.fork()
    assert twin.tokens().tolist() == first.tokens().tolist()
    used = engine._cache.usage().blocks_used
    assert used == len(engine._cache.block_table(first.number))
    whole = alone(model, asked, 24)
    assert collect(engine, [first, twin]) == [whole, whole[7:]]


def test_a_fork_without_a_free_row_reads_again(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(30)[0], make(model, backend, max_batch_size=1)
    first = engine.create_request()
    first.begin_turn(asked, turn(12))
    for _ in range(5):
        engine.step()
    twin = first.fork()
    assert [view.lost for view in engine.view().waiting] == [0], "it has lost nothing: its origin had read it"
    whole = alone(model, asked, 12)
    assert collect(engine, [first, twin]) == [whole, whole[5:]]


def test_branches_of_a_conversation(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, *questions = prompts(30, 9, 14, 1)
    engine = make(model, backend)
    trunk = engine.create_request()
    trunk.begin_turn(asked, turn(11))
    drain(engine)
    branches = [trunk, trunk.fork(), trunk.fork()]
    for branch, question in zip(branches, questions, strict=True):
        assert branch.begin_turn(question, turn(9)) == 2
    found = collect(engine, branches)
    for question, answer in zip(questions, found, strict=True):
        other = make(model, backend)
        request = other.create_request()
        request.begin_turn(asked, turn(11))
        drain(other)
        request.begin_turn(question, turn(9))
        assert collect(other, [request]) == [answer]


@pytest.mark.slow
def test_idle_neighbours_do_not_write_into_what_others_read(model: genai_lab.Model, backend: dict[str, object]) -> None:
    """Rows between two running ones are carried along in a run; what they compute must land nowhere that counts."""
    (asked, question, other, third), engine = prompts(20, 12, 40, 40), make(model, backend)
    first = engine.create_request()
    first.begin_turn(asked, turn(7))
    drain(engine)
    first.begin_turn(question, turn(40))
    for _ in range(5):
        engine.step()
    twin = first.fork()  # row 1
    assert twin.cancel_turn(2)
    found = [e.token for e in engine.run(engine.create_event_buffer(50)) if e.request is first]
    twin.rewind_to_start_of_turn(2)  # holds the beginning of a block of which `first` reads more
    empty, last = engine.create_request(), engine.create_request()
    empty.begin_turn(other, turn(2))  # row 2
    last.begin_turn(third, turn(40))  # row 3
    for _ in range(4):
        engine.step()
    empty.close()  # nobody's row now, with blocks that can be found
    rest = collect(engine, [first, last])
    assert found + rest[0] == second_answer(make(model, backend), asked, question)
    assert rest[1] == alone(model, third, 40)
    again = engine.create_request()
    again.begin_turn(other, turn(40))
    events = drain(engine)
    assert events[-1].usage.cached_prompt_tokens == 32
    assert [e.token for e in events if e.token is not None] == alone(model, other, 40)


def second_answer(engine: Engine, asked: Tokens, question: Tokens) -> list[int]:
    """To `question`, of a conversation that nobody disturbs."""
    request = engine.create_request()
    request.begin_turn(asked, turn(7))
    drain(engine)
    request.begin_turn(question, turn(40))
    return collect(engine, [request])[0]


def test_forks_in_a_tight_pool_are_preempted_and_come_back(model: genai_lab.Model, backend: dict[str, object]) -> None:
    blocks = {16: 8, 32: 5}[int(str(backend["block_size"]))]
    asked, engine = prompts(40)[0], make(model, backend, num_blocks=blocks)
    first = engine.create_request()
    first.begin_turn(asked, turn(40, seed=0, **SAMPLED))
    requests = [first, *(first.fork(seed=seed) for seed in (1, 2))]
    verdicts = []
    step = engine.step

    def watching() -> object:
        decisions = step()
        verdicts.extend(d.verdict for d in decisions)
        return decisions

    engine.step = watching  # type: ignore[method-assign]
    assert collect(engine, requests) == [alone(model, asked, 40, seed, **SAMPLED) for seed in range(3)]
    assert Verdict.PREEMPT in verdicts


def test_stop_strings_count_from_the_answers_beginning(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(12)[0], make(model, backend)
    answer = alone(model, asked, 30)
    text = model.tokenizer.decode(np.array(answer, np.int32))
    first = engine.create_request()
    first.begin_turn(asked, turn(30, stop_strings=[text[6:12]]))
    for _ in range(4):
        engine.step()
    twin = first.fork()
    ends = {e.request: e for e in drain(engine) if e.flags & EngineEventFlags.TURN_FINISHED}
    assert ends[first].finish_reason is ends[twin].finish_reason
    assert ends[first].usage == ends[twin].usage


def test_n_answers_to_each_prompt(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(20, 9), make(model, backend)
    found = engine.generate_all(asked, n=3, seed=5, max_generated_tokens=8, **SAMPLED)
    assert found == [[alone(model, p, 8, seed, **SAMPLED) for seed in (5, 6, 7)] for p in asked]
    with pytest.warns(UserWarning, match="2 answers are the same without sampling: do_sample=True") as told:
        texts = engine.generate_all(["Hello", "Hello"], n=2, max_generated_tokens=4)
    assert len(told) == 1 and told[0].filename == __file__  # once, at the caller's line
    with pytest.warns(UserWarning, match="3 answers are the same"):
        assert len({tuple(a.result(60)) for a in engine.submit_many(asked[0], n=3, max_generated_tokens=4)}) == 1
    assert len(texts[0]) == 2 and texts[0][0] == texts[0][1]
    many = engine.submit_many(asked[0], n=2, seed=5, max_generated_tokens=8, **SAMPLED)
    assert [answer.result(60) for answer in many] == found[0][:2]
    for bad, error in ((0, ArgumentError), ("2", ArgumentTypeError), (True, ArgumentTypeError)):
        with pytest.raises(error, match="n is"):
            engine.generate_all(asked, n=bad)  # type: ignore[arg-type]
    with engine._lock:  # who is to be closed is closed when it is taken
        assert engine._states == {}


def test_a_fork_keeps_to_its_grammar(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(20)[0], make(model, backend)
    options = turn(16)
    options.set_guidance("regex", "(abc|de|[0-9]{3})+")
    first = engine.create_request()
    first.begin_turn(asked, options)
    for _ in range(5):
        engine.step()
    twin = first.fork()
    whole, rest = collect(engine, [first, twin])
    assert whole[5:] == rest
    with pytest.warns(UserWarning, match="the same"):
        twice = engine.generate_all([asked], n=2, max_generated_tokens=16, guidance=("regex", "(abc|de|[0-9]{3})+"))
    assert twice == [[whole, whole]]


def test_a_closed_request_is_not_forked(model: genai_lab.Model, backend: dict[str, object]) -> None:
    engine = make(model, backend)
    request = engine.create_request()
    request.begin_turn([5, 6], TurnOptions())
    for seed, error in (("5", ArgumentTypeError), (-1, ArgumentError)):
        with pytest.raises(error, match="seed is"):
            request.fork(seed=seed)  # type: ignore[arg-type]
    request.close()
    with pytest.raises(StateError, match="closed"):
        request.fork()
    assert engine._states == {}


def test_a_recording_tells_of_forks(model: genai_lab.Model, backend: dict[str, object]) -> None:
    asked, engine = prompts(40)[0], make(model, backend, chunk_size=30)
    with genai_lab.record() as trace:
        found = engine.generate_all([asked], n=3, seed=0, max_generated_tokens=6, **SAMPLED)
    assert found == [[alone(model, asked, 6, seed, **SAMPLED) for seed in range(3)]]
    assert "It waits for request 0, of which it is a fork" in trace.why(1, 0)
    assert "It takes over all that request 0 read" in trace.why(2, 1)
    tokens = trace.tokens()
    assert [tokens[tokens["run"] == run]["token"].tolist() for run in range(3)] == found[0]
    assert trace.requests()["cached_prompt_tokens"].tolist() == [0, 40, 40]
