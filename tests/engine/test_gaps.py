"""Rows of ended requests are not carried along for long: the running ones are brought together, and nobody's answer
changes by it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import genai_lab
from genai_lab.engine import Engine, EngineEventFlags
from genai_lab.engine.gaps import TOKENS_A_ROW, Gaps, cheapest_swaps, cost_of
from genai_lab.engine.rows import RowTable, wasted_rows
from tests.engine.asking import SAMPLED, alone, prompts, skip_without_pages, turn

BACKENDS = [{"block_size": 16}, {"block_size": 32, "kv_backend": "vm"}]


def after(running: set[int], swaps: list[tuple[int, int]]) -> set[int]:
    places = dict(swaps)
    return {places.get(row, row) for row in running}


def test_swaps_make_neighbours_and_no_choice_is_cheaper() -> None:
    dice = random.Random(0)
    for _ in range(200):
        rows = dice.randint(1, 9)
        running = set(dice.sample(range(rows), dice.randint(1, rows)))
        tokens = [dice.choice([0, 0, 3, 50, 400]) for _ in range(rows)]
        swaps = cheapest_swaps(running, rows, tokens.__getitem__)
        together = sorted(after(running, swaps))
        assert together == list(range(together[0], together[0] + len(running)))
        assert len({row for pair in swaps for row in pair}) == 2 * len(swaps), "no row moves twice"
        for first in range(rows - len(running) + 1):
            place = set(range(first, first + len(running)))
            cost = sum(tokens[row] for row in place ^ running)
            assert cost_of(swaps, tokens.__getitem__) <= cost


def test_rows_move_once_the_gap_has_cost_as_much() -> None:
    gaps, tokens = Gaps(), 2 * TOKENS_A_ROW
    given = {"running": {0, 2}, "rows": 4, "cost": {0: tokens, 2: tokens, 3: 0, 1: 0}.__getitem__, "wasted": 1}
    assert gaps.to_swap(**given) == []  # type: ignore[arg-type]
    assert gaps.to_swap(**given) == [(2, 1)]  # type: ignore[arg-type]
    assert gaps.to_swap(**given) == [], "the account begins anew"  # type: ignore[arg-type]
    assert gaps.to_swap({0, 1}, 4, lambda row: 1, 0) == [], "no gap, nothing to pay"
    assert gaps.to_swap(**given) == [], "what was paid for an older gap is forgotten"  # type: ignore[arg-type]


def test_a_free_row_changes_places_too() -> None:
    table = RowTable(4)
    assert [table.take() for _ in range(3)] == [0, 1, 2]
    table.give_back(0)
    table.swap(0, 2)  # who had row 2 is in row 0
    table.swap(1, 0)  # two that are taken
    assert [table.take(), table.take(), table.free] == [2, 3, 0]


def running_rows(engine: Engine) -> list[int]:
    states = engine._states.values()
    return sorted(s.row for s in states if s.row is not None and s.turn is not None and s.turn.finish is None)


@pytest.mark.parametrize("backend", BACKENDS, ids=["slots", "vm"])
@pytest.mark.parametrize("is_closed", [False, True], ids=["idle", "closed"])
def test_answers_stay_what_they_are_when_rows_move(
    tiny_folder: Path, backend: dict[str, object], is_closed: bool
) -> None:
    skip_without_pages(backend)
    model = genai_lab.Model(tiny_folder)
    engine = Engine(model, max_batch_size=7, max_session_tokens=140, check_invariants=True, **backend)  # type: ignore[arg-type]
    asked, lengths = prompts(12, 30, 5, 41, 23, 9, 17, shared=18), [40, 3, 40, 5, 12, 3, 40]
    requests = [engine.create_request() for _ in asked]
    for seed, (request, prompt, count) in enumerate(zip(requests, asked, lengths, strict=True)):
        request.begin_turn(prompt, turn(count, seed=seed, **SAMPLED))
    answers: list[list[int]] = [[] for _ in asked]
    buffer = engine.create_event_buffer(16)
    wasted: list[int] = []
    rows: dict[int, dict[int, int]] = {}
    with genai_lab.record() as trace:
        while engine.has_pending_requests():
            engine.run(buffer)
            for event in [buffer[i] for i in range(len(buffer))]:
                assert event.request is not None
                if event.token is not None:
                    answers[event.request.number].append(event.token)
                if event.flags & EngineEventFlags.TURN_FINISHED and is_closed:
                    event.request.close()
            wasted.append(wasted_rows(running_rows(engine)))
            rows[engine.steps - 1] = {n: s.row for n, s in engine._states.items() if s.row is not None}
    gaps = sum(count > 0 for count in wasted)
    assert 0 < gaps <= len(asked) < len(rows) / 4, "a gap is closed one step after it came"
    assert answers == [
        alone(model, prompt, count, seed, **SAMPLED)
        for seed, (prompt, count) in enumerate(zip(asked, lengths, strict=True))
    ]
    told, last = trace.steps().set_index("step")["moved_rows"], dict[int, int]()
    for step, now in sorted(rows.items()):
        if not is_closed and step - 1 in rows:  # who is closed after a step stood somewhere in it
            assert told[step] == sum(now[request] != row for request, row in last.items())
        last = now
        recorded = {holder.request: holder.row for holder in trace.state_at(step).holders}
        assert now.items() <= recorded.items(), "a recording knows where everybody stood"
