"""Prompts that begin alike and come together: the beginning is read once, and nobody waits for who does not read it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import genai_lab
from genai_lab.engine import (
    Decision,
    Engine,
    Fcfs,
    PriorityFirst,
    QueueView,
    Reason,
    RequestOptions,
    StepPlan,
    Verdict,
)
from genai_lab.engine.view import LOOKED_AT
from tests.engine.asking import alone, answers, drain, prompts, skip_without_pages, turn

SHARED, COUNT = 40, 6  # two and a half blocks
WHOLE_BLOCKS = SHARED // 16 * 16


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> genai_lab.Model:
    return genai_lab.Model(tiny_folder)


def read_tokens(engine: Engine) -> tuple[int, Counter[Reason]]:
    """Prompt tokens that were computed until nothing is left, and how often each reason was given."""
    read, reasons = 0, Counter[Reason]()
    while engine.has_pending_requests():
        for decision in engine.step():
            reasons[decision.reason] += 1
            read += decision.num_tokens if decision.verdict is Verdict.PREFILL else 0
        engine._outbox.events.clear()
    return read, reasons


@pytest.mark.slow
@pytest.mark.parametrize("mode", [{}, {"chunk_size": 8}, {"max_scheduled_tokens": 24}, {"kv_backend": "vm"}], ids=str)
@pytest.mark.parametrize("options", [{}, {"do_sample": True, "top_k": 20}], ids=["greedy", "seeded"])
def test_answers_are_those_of_each_alone(
    model: genai_lab.Model, mode: dict[str, object], options: dict[str, object]
) -> None:
    skip_without_pages(mode)
    asked = prompts(5, 9, 20, 3, 30, shared=SHARED)
    seeds = range(len(asked)) if options else [None] * len(asked)
    expected = [alone(model, prompt, COUNT, seed, **options) for prompt, seed in zip(asked, seeds, strict=True)]
    assert answers(Engine(model, check_invariants=True, **mode), asked, COUNT, **options) == expected  # type: ignore[arg-type]


def test_each_token_of_the_beginning_is_computed_once(model: genai_lab.Model) -> None:
    asked = prompts(5, 9, 20, 3, shared=SHARED)
    read = {}
    for read_once in (True, False):
        with Engine(model, policy=Fcfs(read_once=read_once)) as engine:
            requests = [engine.create_request() for _ in asked]
            for request, prompt in zip(requests, asked, strict=True):
                request.begin_turn(prompt, turn(COUNT))
            read[read_once], reasons = read_tokens(engine)
            assert (reasons[Reason.SAME_BEGINNING] > 0) is read_once
    whole = sum(map(len, asked))
    assert read == {False: whole, True: whole - (len(asked) - 1) * WHOLE_BLOCKS}


def test_another_salt_is_another_beginning(model: genai_lab.Model) -> None:
    asked = prompts(5, 5, shared=SHARED)
    engine = Engine(model)
    requests = []
    for salt, prompt in zip(("a", "b"), asked, strict=True):
        options = RequestOptions()
        options.salt = salt
        requests.append(engine.create_request(options=options))
        requests[-1].begin_turn(prompt, turn(COUNT))
    _, reasons = read_tokens(engine)
    assert reasons[Reason.SAME_BEGINNING] == 0


def test_without_a_prefix_cache_nobody_waits(model: genai_lab.Model) -> None:
    engine = Engine(model, prefix_caching=False)
    requests = [engine.create_request() for _ in range(3)]
    for request, prompt in zip(requests, prompts(5, 9, 7, shared=SHARED), strict=True):
        request.begin_turn(prompt, turn(COUNT))
    assert [d.verdict for d in engine.step()] == [Verdict.PREFILL] * 3


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_when_the_reader_goes_away_another_reads(model: genai_lab.Model, steps: int) -> None:
    asked = prompts(5, 9, 20, shared=SHARED)
    engine = Engine(model, chunk_size=8, check_invariants=True)
    requests = [engine.create_request() for _ in asked]
    for request, prompt in zip(requests, asked, strict=True):
        request.begin_turn(prompt, turn(COUNT))
    for _ in range(steps):
        waits = [d for d in engine.step() if d.reason is Reason.SAME_BEGINNING]
        assert [d.request for d in waits] == [request.number for request in requests[1:]]
    requests[0].close()
    drain(engine)
    for request, prompt in zip(requests[1:], asked[1:], strict=True):
        assert request.tokens()[len(prompt) :].tolist() == alone(model, prompt, COUNT)


@pytest.mark.slow
def test_who_is_urgent_is_first_of_any_queue(model: genai_lab.Model) -> None:
    with Engine(model, policy=PriorityFirst(), max_batch_size=1, max_session_tokens=40, num_blocks=40) as engine:
        requests = []
        for priority in [5] * 150 + [-5]:
            options = RequestOptions()
            options.priority = priority
            requests.append(engine.create_request(options=options))
            requests[-1].begin_turn(prompts(7, seed=len(requests))[0], turn(2))
        view = engine.view()
        assert [r.request for r in view.waiting] == [r.number for r in requests], "a policy sees everybody"
        decisions = engine.step()
        assert [d.request for d in decisions if d.verdict is Verdict.PREFILL] == [requests[-1].number]
        assert len(decisions) == 65
        while engine._has_turns():
            engine.step()
        assert all(request.tokens().size >= 8 for request in requests), "nobody is forgotten"


def test_what_waiting_requests_would_take_over_is_always_up_to_date(model: genai_lab.Model) -> None:
    """The kept prefixes equal fresh ones after every step, while blocks come and are evicted."""
    found: set[int] = set()
    with Engine(model, max_batch_size=2, max_session_tokens=80, block_size=4, num_blocks=24) as engine:
        sizes, other = range(5, 13), prompts(*[40] * 8, seed=1, shared=12)
        asked = prompts(*sizes, shared=16) + other + prompts(*sizes, shared=16)
        requests = [engine.create_request() for _ in asked]
        for request, prompt in zip(requests, asked, strict=True):
            request.begin_turn(prompt, turn(6))
        while engine._has_turns():
            engine.step()
            for seen in engine.view().waiting:
                state = engine._states[seen.request]
                match = engine._cache.match_prefix(engine._memory.findable(state))
                assert (seen.num_computed, seen.held_blocks) == (match.num_cached_tokens, len(match.blocks))
                found.add(seen.num_computed)
            assert set(engine._cache._waiting._kept) == {seen.request for seen in engine.view().waiting}
    assert {0, 12, 16} <= found and len(engine._cache.evictions) > 0


@pytest.mark.slow
def test_of_a_long_queue_the_first_and_the_most_urgent_are_seen(model: genai_lab.Model) -> None:
    engine = Engine(model, max_batch_size=1, policy=PriorityFirst())
    requests = []
    for number in range(2 * LOOKED_AT):
        options = RequestOptions()
        options.priority = 5 if number < 2 * LOOKED_AT - 1 else -5
        requests.append(engine.create_request(options=options))
        requests[-1].begin_turn([5, 6, number % 200], turn(1))
    view = engine.view()
    seen = [request.request for request in view.waiting]
    assert len(seen) <= LOOKED_AT
    assert len(seen) + view.unseen == len(requests)
    assert seen == sorted(seen), "in the queue's order"
    assert {requests[0].number, requests[-1].number} <= set(seen)
    with genai_lab.record() as trace:
        assert [d.request for d in engine.step() if d.verdict is Verdict.PREFILL] == [requests[-1].number]
    assert trace.steps()["num_waiting"].tolist() == [len(requests)]
    assert "no word" in trace.why(requests[LOOKED_AT].number, 0)
    drain(engine)
    assert all(request.tokens().size > 3 for request in requests)


class Interrupting(Fcfs):
    """Takes the place of everybody who runs, in one step."""

    def plan(self, view: QueueView) -> StepPlan:
        if view.step != 2:
            return super().plan(view)
        words = "for once"
        return StepPlan(
            (),
            tuple(Decision(r.request, Verdict.PREEMPT, Reason.POLICY, words=words) for r in view.running)
            + tuple(Decision(r.request, Verdict.WAIT, Reason.POLICY, words=words) for r in view.waiting),
        )


@pytest.mark.slow
@pytest.mark.parametrize("size", [16, 17, 18, 33])
def test_who_reads_again_reads_no_piece_of_one_token(model: genai_lab.Model, size: int) -> None:
    """A prompt whose last token is the first of a block: after a preemption, all before it are in the cache."""
    asked = prompts(size, size)
    engine = Engine(model, max_session_tokens=100, block_size=4, policy=Interrupting(), check_invariants=True)
    requests = [engine.create_request() for _ in asked]
    for request, prompt in zip(requests, asked, strict=True):
        request.begin_turn(prompt, turn(20))
    pieces: list[int] = []
    while engine.has_pending_requests():
        pieces += [d.num_tokens for d in engine.step() if d.verdict is Verdict.PREFILL]
        engine._outbox.events.clear()
    assert len(pieces) == (2 if size == 16 else 4), "a prompt that is not whole in blocks is read again"
    assert 1 not in pieces
    for request, prompt in zip(requests, asked, strict=True):
        assert request.tokens()[size:].tolist() == alone(model, prompt, 20)
