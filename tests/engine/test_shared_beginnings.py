"""Prompts that begin alike and come together: the beginning is read once, and nobody waits for who does not read it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import genai_lab
from genai_lab.engine import Engine, Fcfs, Reason, RequestOptions, Verdict
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
