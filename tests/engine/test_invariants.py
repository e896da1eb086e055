"""Each rule of a step is broken by a record that breaks it, and by no other; a good record breaks none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Decision, Engine, Reason, Status, Verdict
from genai_lab.engine.invariants import check_step, raise_if_step_broken, same_tokens_as_alone
from genai_lab.engine.snapshot import EngineSnapshot, RequestSnapshot, StepRecord, take_snapshot
from genai_lab.errors import StateError
from genai_lab.types import FinishReason
from tests.engine.asking import drain, prompts, turn


@pytest.fixture(scope="module")
def record(tiny_folder: Path) -> StepRecord:
    """Two requests answer, a third waits for a row, a fourth is over."""
    engine = Engine(genai_lab.Model(tiny_folder), max_batch_size=2, max_session_tokens=60, block_size=4)
    requests = [engine.create_request() for _ in range(4)]
    for request, prompt in zip(requests, prompts(6, 7, 8, 9), strict=True):
        request.begin_turn(prompt)
    requests[3].cancel_turn(1)
    for _ in range(3):
        engine.step()
    before = take_snapshot(engine)
    record = StepRecord(before, engine.step(), take_snapshot(engine))
    assert [r.status for r in record.after.requests] == ["running", "running", "waiting", "idle"]
    return record


def changed(record: StepRecord, index: int, **changes: object) -> StepRecord:
    """The record with another request after the step."""
    requests = list(record.after.requests)
    requests[index] = replace(requests[index], **changes)  # type: ignore[arg-type]
    return replace(record, after=replace(record.after, requests=tuple(requests)))


def decided(record: StepRecord, *decisions: Decision) -> StepRecord:
    return replace(record, decisions=(*record.decisions, *decisions))


def after(record: StepRecord, **changes: object) -> StepRecord:
    return replace(record, after=replace(record.after, **changes))  # type: ignore[arg-type]


def at(record: StepRecord, index: int) -> RequestSnapshot:
    return record.after.requests[index]


def first_reads(record: StepRecord) -> StepRecord:
    reads = Decision(2, Verdict.PREFILL, Reason.FITS, 2)
    return replace(record, decisions=(Decision(0, Verdict.WAIT, Reason.NO_BUDGET), reads, *record.decisions[1:2]))


BROKEN: dict[str, tuple[str, Callable[[StepRecord], StepRecord]]] = {
    "a wait with tokens": ("the_budget_is_kept", lambda r: decided(r, Decision(7, Verdict.WAIT, Reason.FITS, 3))),
    "a run without": ("the_budget_is_kept", lambda r: decided(r, Decision(7, Verdict.DECODE, Reason.FITS, 0))),
    "too many tokens": ("the_budget_is_kept", lambda r: decided(r, Decision(7, Verdict.PREFILL, Reason.FITS, 9999))),
    "a row twice": ("rows_are_held_once", lambda r: changed(r, 1, row=at(r, 0).row)),
    "waits in a row": ("rows_are_held_once", lambda r: changed(r, 2, row=0)),
    "a row outside": ("rows_are_held_once", lambda r: changed(r, 1, row=9)),
    "a prompt before an answer": ("answers_come_before_prompts", first_reads),
    "idle to running": ("lives_are_legal", lambda r: changed(r, 3, status=Status.RUNNING, row=5, finish=None)),
    "running and over": ("lives_are_legal", lambda r: changed(r, 0, finish=FinishReason.EOS)),
    "ended before it began": ("lives_are_legal", lambda r: changed(r, 0, times=(5, 4, 6, 0))),
    "out of nowhere": ("lives_are_legal", lambda r: replace(r, before=without(r.before))),
    "a lost turn": ("turns_are_conserved", lambda r: after(r, begun=r.after.begun + 1)),
    "two reasons": ("who_waits_has_one_reason", lambda r: decided(r, r.decisions[-1])),
    "waits after a run": ("who_waits_has_one_reason", lambda r: replace(r, decisions=(ran(2),))),
    "a changed token": ("streams_only_grow", lambda r: changed(r, 0, tokens=b"\0" * len(at(r, 0).tokens))),
    "a token too many": ("streams_only_grow", lambda r: changed(r, 0, known=at(r, 0).known + 1)),
    "two tokens": ("streams_only_grow", lambda r: changed(r, 0, tokens=at(r, 0).tokens + bytes(4), known=0)),
    "other books": ("rows_hold_what_the_books_say", lambda r: changed(r, 0, computed=1)),
    "nothing left to read": ("rows_hold_what_the_books_say", lambda r: changed(r, 2, computed=at(r, 2).num_tokens)),
    "a broken cache": ("every_block_is_somewhere", lambda r: after(r, cache=replace(r.after.cache, free_queue=()))),
}


def ran(request: int) -> Decision:
    return Decision(request, Verdict.DECODE, Reason.FITS, 1)


def without(snapshot: EngineSnapshot) -> EngineSnapshot:
    return replace(snapshot, requests=snapshot.requests[:-1])


@pytest.mark.parametrize(("rule", "breaks"), BROKEN.values(), ids=BROKEN.keys())
def test_what_breaks_a_rule_is_named(record: StepRecord, rule: str, breaks: Callable[[StepRecord], StepRecord]) -> None:
    assert check_step(record) == []
    found = check_step(breaks(record))
    assert any(words.startswith(f"{rule}: ") for words in found), found
    with pytest.raises(StateError, match=f"step {record.before.step} left the engine.*{rule}"):
        raise_if_step_broken(breaks(record))


def test_the_live_check_finds_a_row_that_lies(tiny_folder: Path) -> None:
    engine = Engine(genai_lab.Model(tiny_folder), max_session_tokens=60, check_invariants=True)
    request = engine.create_request()
    request.begin_turn(prompts(6)[0])
    engine.step()
    commit = engine._runner.commit

    def forgetful(outcome: object) -> None:
        commit(outcome)  # type: ignore[arg-type]
        engine._conversations.state(request.number).computed -= 1

    engine._runner.commit = forgetful  # type: ignore[method-assign]
    with pytest.raises(StateError, match="rows_hold_what_the_books_say: request 0: the cache has 7 tokens, its row 6"):
        engine.step()


def test_taking_a_snapshot_changes_nothing(tiny_folder: Path) -> None:
    engine = Engine(genai_lab.Model(tiny_folder), max_session_tokens=60)
    request = engine.create_request()
    request.begin_turn(np.arange(3, 9))
    engine.step()
    assert take_snapshot(engine) == take_snapshot(engine)


def test_answers_are_compared_with_those_alone() -> None:
    alone = {1: [5, 6, 7], 2: [8, 9]}
    assert same_tokens_as_alone({1: [5, 6, 7], 2: [8], 3: [1]}, alone, [2]) == []
    assert same_tokens_as_alone({1: [5, 6, 7]}, alone) == ["request 2 differs from token 0 on: [], alone [8, 9]"]
    assert same_tokens_as_alone({1: [5, 1, 7], 2: [8, 9]}, alone) == [
        "request 1 differs from token 1 on: [1, 7], alone [6, 7]"
    ]


def test_a_second_question_of_one_token_is_a_prompt(tiny_folder: Path) -> None:
    engine = Engine(genai_lab.Model(tiny_folder), max_scheduled_tokens=9, check_invariants=True)
    first, second = engine.create_request(), engine.create_request()
    first.begin_turn([5, 6, 7], turn(1))
    second.begin_turn([8, 9, 10], turn(1))
    drain(engine)
    first.begin_turn(list(range(20, 60)), turn(1))
    second.begin_turn([11], turn(1))
    assert sum(event.token is not None for event in drain(engine)) == 2
