"""Models that keep more of a text than its blocks: rings of blocks for a layer with a window, and states of one size.
Whatever an engine does with a request meanwhile, it gets what it gets alone, read in one piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Engine, Verdict
from genai_lab.errors import ArgumentError, ModelFolderError
from tests.engine.asking import SAMPLED, Tokens, answers, drain, turn
from tests.engine.test_paged_graph import asked
from tests.graphs_paged import paged_decoder

KINDS: dict[str, dict[str, Any]] = {
    "rings": {"window": 5, "ring_blocks": "ring_blocks", "chunk": 3, "logits": "tokens"},
    "states": {"state": True},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(paged_decoder(tmp_path_factory.mktemp("beside") / request.param, **KINDS[request.param]))


@pytest.fixture(scope="module")
def reference(model: genai_lab.Model, tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    """With a window, one whose layer hides what is outside of it by a mask over all blocks."""
    if model.paged is not None and model.paged.rings:
        return genai_lab.Model(paged_decoder(tmp_path_factory.mktemp("reference") / "mask", window=5))
    return model


def alone(model: genai_lab.Model, prompt: Tokens, count: int, seed: int | None = None, **options: Any) -> list[int]:
    """The answer of a fresh engine with nobody else, the prompt in one piece."""
    engine = Engine(model, max_batch_size=1, prefix_caching=False, chunk_size=64)
    request = engine.create_request()
    request.begin_turn(prompt, turn(count, seed=seed, **options))
    return [event.token for event in drain(engine) if event.token is not None]


MODES: dict[str, dict[str, Any]] = {
    "roomy": {},
    "one at a time": {"max_batch_size": 1},
    "pieces of one": {"chunk_size": 1},
    "small budget": {"chunk_size": 2, "max_scheduled_tokens": 5},
    "exact": {"exact": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_many_requests_get_what_each_gets_alone(
    model: genai_lab.Model, reference: genai_lab.Model, mode: dict[str, Any], options: dict[str, Any]
) -> None:
    prompts = asked(10, 5, 21, 2, 1, 12, 8)
    expected = [alone(reference, p, 18, n if options else None, **options) for n, p in enumerate(prompts)]
    assert answers(Engine(model, check_invariants=True, **mode), prompts, 18, **options) == expected


def test_who_gave_way_reads_again(model: genai_lab.Model, reference: genai_lab.Model) -> None:
    engine, prompts = Engine(model, max_batch_size=4), asked(20, 20, 20, 20)
    requests, verdicts = [engine.create_request() for _ in prompts], set()
    tokens: dict[int, list[int]] = {}
    for request, prompt in zip(requests, prompts, strict=True):
        request.begin_turn(prompt, turn(30))
    while engine.has_pending_requests():
        verdicts |= {decision.verdict for decision in engine.step()}
        for event in engine._outbox.take(99, engine._states, engine._conversations.handles):
            if event.token is not None and event.request is not None:
                tokens.setdefault(event.request.number, []).append(event.token)
    assert Verdict.PREEMPT in verdicts
    assert [tokens[request.number] for request in requests] == [alone(reference, p, 30) for p in prompts]


@pytest.mark.parametrize(("read", "most", "shared"), [(11, 1, 0), (12, 1, 12), (11, 3, 12), (10, 4, 12)])
def test_where_a_beginning_is_shared(
    model: genai_lab.Model, reference: genai_lab.Model, read: int, most: int, shared: int
) -> None:
    """A ring never; a state where a run ended with a full block, at a prompt's end or inside of an answer."""
    engine, head = Engine(model, check_invariants=True), asked(15)[0]
    answer = answers(engine, [head[:read]], most)[0]
    again = np.array([*head[:read], *answer, *asked(4, seed=7)[0]], np.int32)
    request = engine.create_request()
    request.begin_turn(again, turn(5))
    events = drain(engine)
    assert model.paged is not None
    assert events[-1].usage.cached_prompt_tokens == (0 if model.paged.rings else shared)
    assert [event.token for event in events if event.token is not None] == alone(reference, again, 5)


def test_forks_take_all_of_it(model: genai_lab.Model, reference: genai_lab.Model) -> None:
    engine, prompt = Engine(model, check_invariants=True), asked(10)[0]
    request = engine.create_request()
    request.begin_turn(prompt, turn(5))
    first = [event.token for event in drain(engine) if event.token is not None]
    twin, more = request.fork(), asked(4, seed=5)[0]
    tokens: dict[int, list[int]] = {}
    for one in (request, twin):
        one.begin_turn(more, turn(9))
    for event in drain(engine):
        if event.token is not None and event.request is not None:
            tokens.setdefault(event.request.number, []).append(event.token)
    expected = alone(reference, np.array([*prompt, *first, *more], np.int32), 9)
    assert tokens == {request.number: expected, twin.number: expected}


@pytest.mark.parametrize(("size", "count"), [(2, 2), (9, 2), (1, 12)])
def test_going_back(model: genai_lab.Model, reference: genai_lab.Model, size: int, count: int) -> None:
    """A short way back is still in a ring; a long one, and any way back of a state, is read again."""
    engine, (first, second) = Engine(model, check_invariants=True), asked(7, size)
    request = engine.create_request()
    request.begin_turn(first, turn(6))
    answer = [event.token for event in drain(engine) if event.token is not None]
    expected = alone(reference, np.array([*first, *answer, *second], np.int32), count)
    for _ in range(3):
        number = request.begin_turn(second, turn(count))
        assert [event.token for event in drain(engine) if event.token is not None] == expected
        request.rewind_to_start_of_turn(number)


def test_a_failed_step_leaves_nothing(
    model: genai_lab.Model, reference: genai_lab.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other run fails after it has written."""
    engine, prompts = Engine(model, check_invariants=True), asked(10, 5)
    run = engine._runs.executor.run  # type: ignore[attr-defined]
    calls: list[int] = []

    def failing(parts: Any) -> Any:
        found = run(parts)
        calls.append(len(calls))
        if len(calls) % 2:
            raise RuntimeError("no more memory")
        return found

    monkeypatch.setattr(engine._runs.executor, "run", failing)
    requests = [engine.create_request() for _ in prompts]
    for request, prompt in zip(requests, prompts, strict=True):
        request.begin_turn(prompt, turn(8))
    tokens: dict[int, list[int]] = {}
    while engine.has_pending_requests():
        with pytest.raises(RuntimeError, match="no more memory"):
            engine.step()
        engine.step()
        for event in engine._outbox.take(99, engine._states, engine._conversations.handles):
            if event.token is not None and event.request is not None:
                tokens.setdefault(event.request.number, []).append(event.token)
    assert [tokens[request.number] for request in requests] == [alone(reference, p, 8) for p in prompts]


def test_proposals_fit_a_ring_and_never_a_state(model: genai_lab.Model, reference: genai_lab.Model) -> None:
    engine, prompt = Engine(model, check_invariants=True), asked(9)[0]
    assert model.paged is not None
    most = engine.max_draft_tokens_per_proposal()
    assert most == (2 if model.paged.rings else 0)
    expected, tokens = alone(reference, prompt, 20), []
    request, buffer = engine.create_request(), engine.create_event_buffer(8)
    request.begin_turn(prompt, turn(20))
    while engine.has_pending_requests():
        engine.run(buffer)
        tokens += [buffer[i].token for i in range(len(buffer)) if buffer[i].token is not None]
        if most and 0 < len(tokens) < 16:
            request.set_draft_tokens([expected[len(tokens)], 3])
    assert tokens == expected


# ---- refused


def test_rings_are_never_shared(tmp_path: Path) -> None:
    model = genai_lab.Model(paged_decoder(tmp_path / "model", **KINDS["rings"]))
    with pytest.raises(ArgumentError, match=r"prefix_caching is True, but .* in rings, which no two texts share"):
        Engine(model, prefix_caching=True)


def test_rings_of_a_fixed_number(tmp_path: Path) -> None:
    folder = paged_decoder(tmp_path / "model", window=5, ring_blocks=8, chunk=3)
    model = genai_lab.Model(folder)
    assert Engine(model).limits.chunk_size == 3
    for given in ({"max_batch_size": 2}, {"chunk_size": 9}):
        with pytest.raises(ArgumentError, match="the graph was made for 8 blocks"):
            Engine(model, **given)  # type: ignore[arg-type]


def test_a_window_that_the_folder_does_not_explain(tmp_path: Path) -> None:
    folder = paged_decoder(tmp_path / "model", window=5, ring_blocks=8, chunk=3)
    config = folder / "genai_config.json"
    config.write_text(config.read_text().replace('"layers": [1]', '"layers": [7]'))
    with pytest.raises(ModelFolderError, match="the numbers of layers that the graph has are needed"):
        Engine(genai_lab.Model(folder))
