"""What every policy promises, whatever the queue looks like, and what each is for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_lab.engine import (
    Decision,
    Fcfs,
    OrderedPolicy,
    PolicyError,
    PrefixFirst,
    PriorityFirst,
    QueueView,
    Reason,
    RequestView,
    ShortestFirst,
    Static,
    Status,
    StepPlan,
    Verdict,
)
from genai_lab.engine.checking import check_plan
from genai_lab.errors import ArgumentError, ArgumentTypeError
from tests.engine.views import queue_views

EACH_FOR_ITSELF = Fcfs(read_once=False)
POLICIES = [Fcfs(), Fcfs(skip_blocked=True), EACH_FOR_ITSELF, PriorityFirst(), ShortestFirst(), PrefixFirst(), Static()]
policies = st.sampled_from(POLICIES)


@pytest.mark.slow
@given(queue_views(), policies)
def test_every_plan_can_be_carried_out_and_explains_everybody(view: QueueView, policy: OrderedPolicy) -> None:
    plan = check_plan(policy.plan(view), view, policy)
    decided = [d.request for d in (*plan.scheduled, *plan.others)]
    assert sorted(decided) == sorted(r.request for r in (*view.waiting, *view.running))
    for decision in (*plan.scheduled, *plan.others):
        words = decision.in_words()
        assert words and "?" not in words and "{" not in words


@given(queue_views(), policies)
def test_blocks_and_rows_are_never_promised_twice(view: QueueView, policy: OrderedPolicy) -> None:
    plan = policy.plan(view)
    requests = {r.request: r for r in (*view.waiting, *view.running)}
    freed = sum(requests[d.request].held_blocks for d in plan.others if d.verdict is Verdict.PREEMPT)
    needed = sum(view.new_blocks(requests[d.request], d.num_tokens) for d in plan.scheduled)
    assert needed <= view.free_blocks + freed


@given(queue_views(), policies)
def test_planning_is_pure(view: QueueView, policy: OrderedPolicy) -> None:
    assert policy.plan(view) == policy.plan(view)


@pytest.mark.slow
@given(queue_views(), policies)
def test_answers_under_way_run_before_prompts(view: QueueView, policy: OrderedPolicy) -> None:
    plan = policy.plan(view)
    running = {r.request for r in view.running}
    order = [d.verdict for d in plan.scheduled if d.request in running]
    assert order == sorted(order, key=lambda v: v is not Verdict.DECODE)


@pytest.mark.slow
@given(queue_views(), policies)
def test_no_chunk_of_one_token_is_made_or_left(view: QueueView, policy: OrderedPolicy) -> None:
    requests = {r.request: r for r in (*view.waiting, *view.running)}
    for decision in policy.plan(view).scheduled:
        request = requests[decision.request]
        if decision.verdict is Verdict.PREFILL:
            assert decision.num_tokens >= 2 or request.next_tokens == 1
            assert request.next_tokens - decision.num_tokens != 1


@pytest.mark.slow
@given(queue_views(), policies)
def test_nothing_new_is_admitted_in_a_step_that_preempted(view: QueueView, policy: OrderedPolicy) -> None:
    plan = policy.plan(view)
    if any(d.verdict is Verdict.PREEMPT for d in plan.others):
        waiting = {r.request for r in view.waiting}
        assert not waiting & {d.request for d in plan.scheduled}


@pytest.mark.slow
@given(queue_views(), policies)
def test_who_waits_for_a_beginning_waits_for_one_that_is_read_now(view: QueueView, policy: OrderedPolicy) -> None:
    plan = policy.plan(view)
    beginnings = {r.request: r.beginning for r in (*view.waiting, *view.running)}
    scheduled = {d.request for d in plan.scheduled}
    for decision in plan.others:
        if decision.reason is Reason.SAME_BEGINNING:
            leader = dict(decision.operands)["leader"]
            assert leader in scheduled
            assert beginnings[leader] == beginnings[decision.request] is not None


@given(queue_views())
def test_it_works_when_there_is_work(view: QueueView) -> None:
    """Work-conserving: with rows, budget and blocks for the first in line, somebody runs."""
    plan = Fcfs().plan(view)
    running = {r.request for r in view.running}
    if running and not plan.scheduled:
        held_up = [d for d in plan.others if d.request in running and d.verdict is Verdict.WAIT]
        assert all(d.reason in {Reason.NO_BLOCKS, Reason.NO_BUDGET} for d in held_up)
    if not view.running and view.waiting and not plan.scheduled:
        assert all(d.reason is not Reason.BEHIND for d in plan.others[:1])


def waiting(number: int, **changes: object) -> RequestView:
    view = RequestView(number, Status.WAITING, number, 0, 20, 0, 20, False, 0, 0)
    return view._replace(**changes)  # type: ignore[arg-type]


def queue(*requests: RequestView, **changes: object) -> QueueView:
    view = QueueView(100, requests, (), 512, 1, 40, 40, 16, 128, 1)
    return replace(view, **changes)


def admitted(policy: OrderedPolicy, view: QueueView) -> list[int]:
    return [d.request for d in policy.plan(view).scheduled]


def test_each_policy_picks_whom_it_is_for() -> None:
    first, short = waiting(1, arrival_step=90), waiting(2, arrival_step=95, num_tokens=8, next_tokens=8)
    cached = waiting(3, arrival_step=95, num_tokens=40, num_computed=32, next_tokens=8, held_blocks=2)
    urgent = waiting(4, arrival_step=99, priority=-1)
    view = queue(first, short, cached, urgent)
    assert admitted(Fcfs(), view) == [1]
    assert admitted(ShortestFirst(), view) == [2]
    assert admitted(PrefixFirst(), view) == [3]
    assert admitted(PriorityFirst(), view) == [4]


@pytest.mark.parametrize("policy", [ShortestFirst(patience=50), PrefixFirst(patience=50), PriorityFirst(patience=20)])
def test_patience_ends(policy: OrderedPolicy) -> None:
    old = waiting(1, arrival_step=0, num_tokens=90, next_tokens=90, priority=1)
    new = waiting(2, arrival_step=99, num_tokens=40, num_computed=32, next_tokens=8, held_blocks=2)
    assert admitted(policy, queue(old, new)) == [1]


def test_a_common_beginning_is_read_once() -> None:
    first, second, other = waiting(1, beginning=1), waiting(2, beginning=1), waiting(3)
    view = queue(first, second, other, free_rows=3, rows=3)
    plan = Fcfs().plan(view)
    assert [d.request for d in plan.scheduled] == [1, 3], "who waits for a beginning holds up nobody"
    assert [(d.request, d.reason) for d in plan.others] == [(2, Reason.SAME_BEGINNING)]
    assert "request 1" in plan.others[0].in_words()
    reader = second._replace(status=Status.RUNNING)
    assert admitted(Fcfs(), replace(view, waiting=(first, other), running=(reader,))) == [2, 3]
    for each_for_itself in (EACH_FOR_ITSELF, PriorityFirst(read_once=False), Static()):
        assert admitted(each_for_itself, view) == [1, 2, 3]


def test_the_head_of_the_line_is_not_overtaken_unless_asked_for() -> None:
    big, small = waiting(1, num_tokens=400, next_tokens=400), waiting(2, num_tokens=8, next_tokens=8)
    view = queue(big, small, free_blocks=5, free_rows=2, rows=2)
    plan = Fcfs().plan(view)
    assert [d.reason for d in plan.others] == [Reason.NO_BLOCKS, Reason.BEHIND]
    assert "21 more would have admitted it" in plan.others[0].in_words()
    assert "behind request 1" in plan.others[1].in_words()
    assert admitted(Fcfs(skip_blocked=True), view) == [2]


def test_what_can_never_fit_is_rejected_at_once() -> None:
    plan = Fcfs().plan(queue(waiting(1, num_tokens=1000, next_tokens=1000)))
    assert plan.others[0].verdict is Verdict.REJECT
    assert "63 blocks, the whole pool has 40" in plan.others[0].in_words()


@pytest.mark.parametrize("skip_blocked", [False, True])
def test_a_long_queue_is_served_in_order_and_explained_in_short(skip_blocked: bool) -> None:
    crowd = [waiting(n, priority=5, arrival_step=0) for n in range(300)]
    view = queue(*crowd, waiting(300, priority=-5))
    plan = PriorityFirst(skip_blocked=skip_blocked).plan(view)
    assert [d.request for d in plan.scheduled] == [300]
    assert [d.request for d in plan.others] == list(range(64))
    never = waiting(301, priority=9, num_tokens=1000, next_tokens=1000)
    plan = PriorityFirst(skip_blocked=skip_blocked).plan(replace(view, waiting=(*view.waiting, never)))
    assert [d.request for d in plan.others if d.verdict is Verdict.REJECT] == [301] * skip_blocked
    static = Static().plan(replace(view, running=(waiting(999)._replace(status=Status.RUNNING, num_computed=2),)))
    assert sum(d.verdict is Verdict.WAIT for d in static.others) == 64


def test_a_policy_may_be_two_lines_in_a_cell() -> None:
    class LongestFirst(OrderedPolicy):
        def key(self, request: RequestView, view: QueueView) -> int:
            return -request.remaining

    assert admitted(LongestFirst(), queue(waiting(1), waiting(2, num_tokens=30, next_tokens=30))) == [2]


class Fixed:
    def __init__(self, plan: object) -> None:
        self.answer = plan

    def plan(self, view: QueueView) -> StepPlan:
        return self.answer  # type: ignore[return-value]


def run(number: int, tokens: int, verdict: Verdict = Verdict.PREFILL) -> Decision:
    return Decision(number, verdict, Reason.POLICY, tokens)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (None, "returned NoneType"),
        (StepPlan((run(9, 2),)), "request 9, which is not in the view"),
        (StepPlan((run(1, 2), run(1, 2))), "decided twice about request 1"),
        (StepPlan((run(1, 21),)), "21 tokens of request 1; allowed is 1 to 20"),
        (StepPlan((run(1, 0),)), "0 tokens of request 1"),
        (StepPlan((run(1, 1, Verdict.DECODE),)), "its next run is a prefill"),
        (StepPlan((run(1, 20), run(2, 20))), "scheduled 40 tokens; the budget is 30"),
        (StepPlan((run(1, 5), run(2, 5))), "admitted 2 requests; 1 rows are free"),
        (StepPlan((), (run(1, 0, Verdict.PREEMPT),)), "preempted request 1, which is not running"),
    ],
)
def test_a_plan_that_is_nonsense_names_what_it_did(plan: object, words: str) -> None:
    view = queue(waiting(1), waiting(2), budget=30)
    with pytest.raises(PolicyError, match=words):
        check_plan(Fixed(plan).plan(view), view, Fixed(plan))


REJECT = (1, Verdict.REJECT, Reason.POLICY)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (StepPlan(({},), ()), "a part of StepPlan.scheduled {} .dict.; allowed is a Decision"),  # type: ignore[arg-type]
        (StepPlan((), (None,)), "a part of StepPlan.others None .NoneType.; allowed is a Decision"),  # type: ignore[arg-type]
        (StepPlan(None, None), "StepPlan.scheduled None .NoneType.; allowed is a tuple of Decisions"),  # type: ignore[arg-type]
        (StepPlan((), run(1, 2)), "StepPlan.others Decision.*; allowed is a tuple of Decisions"),  # type: ignore[arg-type]
        (StepPlan((run("1", 2),)), "request '1' .str.; allowed is a number that the view has"),  # type: ignore[arg-type]
        (StepPlan((run([], 2),)), "request .* .list.; allowed is a number"),  # type: ignore[arg-type]
        (StepPlan((run(1, "2"),)), "request 1: num_tokens '2' .str.; allowed is a whole number"),  # type: ignore[arg-type]
        (StepPlan((run(1, True),)), "num_tokens True .bool.; allowed is a whole number"),
        (StepPlan((run(1, 2.0),)), "num_tokens 2.0 .float.; allowed is a whole number"),  # type: ignore[arg-type]
        (StepPlan((run(1, 2**70),)), "num_tokens .*; allowed is a whole number"),
        (StepPlan((run(1, 2, "prefill"),)), "verdict 'prefill' .str.; allowed is a Verdict .DECODE, PREFILL, WAIT"),  # type: ignore[arg-type]
        (StepPlan((), (Decision(1, Verdict.WAIT, "policy"),)), "reason 'policy' .str.; allowed is a Reason"),  # type: ignore[arg-type]
        (StepPlan((), (Decision(*REJECT, words=None),)), "words None .NoneType.; allowed is a text"),  # type: ignore[arg-type]
        (StepPlan((), (Decision(*REJECT, operands=None),)), "operands None .NoneType.; allowed is a tuple of"),  # type: ignore[arg-type]
        (StepPlan((), (Decision(*REJECT, operands=(("a", "b"),)),)), "operands .*; allowed is a tuple of .name"),  # type: ignore[arg-type]
        (StepPlan((), (Decision(*REJECT, operands=(("a", 2**70),)),)), "operands .*; allowed is a tuple of .name"),
        (StepPlan((), (Decision(1, Verdict.WAIT, Reason.NO_ROW),)), "Reason.NO_ROW and without the operands rows"),
        (StepPlan((), (run(1, 2),)), "request 1 as prefill of 2 tokens into StepPlan.others; WAIT, PREEMPT and"),
        (StepPlan((), (run(1, 2, Verdict.WAIT),)), "request 1 as wait of 2 tokens into StepPlan.others"),
        (StepPlan((run(1, 2, Verdict.WAIT),)), "scheduled request 1 as wait; its next run is a prefill"),
    ],
)
def test_a_plan_with_wrong_insides_names_what_it_returned(plan: object, words: str) -> None:
    view = queue(waiting(1), waiting(2))
    with pytest.raises(PolicyError, match=f"Fixed .*{words}"):
        check_plan(Fixed(plan).plan(view), view, Fixed(plan))


def test_numbers_of_numpy_and_lists_are_a_plan_too_and_become_plain() -> None:
    view = queue(waiting(1))
    operands: Any = [("budget", np.uint8(7))]
    given = Decision(np.int64(1), Verdict.PREFILL, Reason.POLICY, np.uint8(2), operands)  # type: ignore[arg-type]
    plan: Any = StepPlan([given], [])  # type: ignore[arg-type]
    (found,) = check_plan(plan, view, Fixed(plan)).scheduled
    operands.clear()  # whoever keeps its list cannot change what was decided
    assert found == (1, Verdict.PREFILL, Reason.POLICY, 2, (("budget", 7),), "")
    assert [type(n) for n in (found.request, found.num_tokens, found.operands[0][1])] == [int] * 3


def test_small_numbers_of_numpy_do_not_overflow_the_budget() -> None:
    view = queue(waiting(1), waiting(2), budget=150, free_rows=2)
    view = view_with(view, num_tokens=200, next_tokens=200)
    plan: Any = StepPlan((run(1, np.uint8(135)), run(2, np.uint8(135))))  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="scheduled 270 tokens; the budget is 150"):
        check_plan(plan, view, Fixed(plan))


def view_with(view: QueueView, **changes: object) -> QueueView:
    return replace(view, waiting=tuple(one._replace(**changes) for one in view.waiting))  # type: ignore[arg-type]


def test_who_reads_again_what_it_had_is_told_so() -> None:
    reader = waiting(1, num_tokens=30, num_computed=8, next_tokens=16, lost=21, preemptions=1)
    (decision,) = Fcfs().plan(queue(reader)).scheduled
    assert decision.reason is Reason.READS_AGAIN
    assert decision.in_words().startswith("16 tokens are read, 16 for the second time")
    answer = waiting(1, num_tokens=30, num_computed=28, next_tokens=1, is_decode=True, lost=1)._replace(
        status=Status.RUNNING
    )
    (decision,) = Fcfs().plan(replace(queue(), running=(answer,))).scheduled
    assert (decision.verdict, decision.reason) == (Verdict.DECODE, Reason.READS_AGAIN)
    assert decision.in_words().startswith("1 token is read, 1 for the second time")


def test_one_block_is_a_block() -> None:
    operands = (("needs_blocks", 1), ("free_blocks", 0), ("missing_blocks", 1))
    words = Decision(0, Verdict.WAIT, Reason.NO_BLOCKS, 0, operands).template
    assert "{needs_blocks} block, {free_blocks} are free" in words


def test_keys_without_an_order_are_refused_in_words() -> None:
    view = queue(waiting(0), waiting(1))
    for keys, words in (
        (lambda r: None, "request 0 None, which has no place"),
        (lambda r: (1, float("nan")), "request 0 .1, nan., which has no place"),
        (lambda r: "x" if r.request else 1, "keys that cannot be put in order .*'x' for request 1"),
    ):

        class Own(OrderedPolicy):
            def key(self, request: RequestView, view: QueueView, keys: Any = keys) -> Any:
                return keys(request)

        with pytest.raises(PolicyError, match=f"Own.key gives {words}"):
            Own().plan(view)


@pytest.mark.parametrize("policy", [PriorityFirst, ShortestFirst, PrefixFirst])
def test_policies_check_what_they_are_made_of(policy: Any) -> None:
    for bad in (0, -1, "x", 1.5):
        with pytest.raises(ArgumentError if isinstance(bad, int) else ArgumentTypeError, match="patience is"):
            policy(patience=bad)
    with pytest.raises(ArgumentTypeError, match="skip_blocked"):
        policy(skip_blocked="no")
