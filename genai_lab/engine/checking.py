"""A policy's plan is a stranger's word: checked before anything is done with it."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from genai_lab.engine.plan import Decision, QueueView, Reason, RequestView, StepPlan, Verdict, operands_of
from genai_lab.errors import StateError

LARGEST = 2**63 - 1  # of a number that a trace can hold
LISTS = (tuple, list)
RUNS = (Verdict.DECODE, Verdict.PREFILL)


class PolicyError(StateError):
    """A policy returned a plan that cannot be carried out; the message names what it did."""


def check_plan(plan: StepPlan, view: QueueView, policy: object) -> StepPlan:
    """`plan`, if it can be carried out: with plain numbers and tuples, whatever the policy made them of.

    Raises:
        PolicyError: naming the policy, the request and the rule. Nothing was done.
    """
    name = type(policy).__name__
    if not isinstance(plan, StepPlan):
        raise PolicyError(f"{name}.plan returned {type(plan).__name__}; a StepPlan is allowed")
    plan = StepPlan(_decisions(plan.scheduled, "scheduled", name), _decisions(plan.others, "others", name))
    _check_others(plan, name)
    known = {r.request: r for r in (*view.waiting, *view.running)}
    waiting = {r.request for r in view.waiting}
    preempted = {d.request for d in plan.others if d.verdict is Verdict.PREEMPT}
    seen: set[int] = set()
    for decision in (*plan.scheduled, *plan.others):
        request = decision.request
        if request not in known:
            raise PolicyError(f"{name} decided about request {request}, which is not in the view")
        if request in seen:
            raise PolicyError(f"{name} decided twice about request {request}")
        seen.add(request)
    for decision in plan.scheduled:
        _check_scheduled(name, decision, known[decision.request])
    if plan.num_tokens > view.budget:
        raise PolicyError(f"{name} scheduled {plan.num_tokens} tokens; the budget is {view.budget}")
    admitted = sum(d.request in waiting for d in plan.scheduled)
    if admitted > view.free_rows:
        raise PolicyError(
            f"{name} admitted {admitted} requests; {view.free_rows} rows are free (that of a preempted request is free "
            "in the next step)"
        )
    if preempted & waiting:
        raise PolicyError(f"{name} preempted request {min(preempted & waiting)}, which is not running")
    return plan


def _decisions(decisions: object, part: str, name: str) -> tuple[Decision, ...]:
    """A part of a plan; everything in it is of the kind that a `Decision` says."""
    if not isinstance(decisions, LISTS) or isinstance(decisions, Decision):
        _refuse(name, f"StepPlan.{part}", decisions, "a tuple of Decisions; () when there are none")
    return tuple([_checked(decision, part, name) for decision in decisions])


def _check_others(plan: StepPlan, name: str) -> None:
    """Who runs is in `scheduled`."""
    for decision in plan.others:
        if decision.verdict in RUNS or decision.num_tokens != 0:
            raise PolicyError(
                f"{name} put request {decision.request} as {decision.verdict} of {decision.num_tokens} tokens into "
                "StepPlan.others; WAIT, PREEMPT and REJECT of 0 tokens are allowed there. Who runs is in scheduled"
            )


def _checked(decision: object, part: str, name: str) -> Decision:
    if not isinstance(decision, Decision):
        allowed = "a Decision(request.request, Verdict.WAIT, Reason.POLICY, words='why')"
        _refuse(name, f"a part of StepPlan.{part}", decision, allowed)
    number = decision.request
    if not _is_number(number):
        _refuse(name, "a Decision's request", number, "a number that the view has (RequestView.request)")
    wrong = _wrong_part(decision)
    if wrong is not None:
        part, allowed = wrong
        _refuse(name, f"the decision about request {number}: {part}", getattr(decision, part), allowed)
    if not decision.words:
        missing = operands_of(decision.reason).difference(dict(decision.operands))
        if missing:
            raise PolicyError(
                f"{name} returned the decision about request {number} with Reason.{decision.reason.name} and without "
                f"the operands {', '.join(sorted(missing))}, which its sentence names; give them, or words='...' of "
                "your own"
            )
    is_plain = type(decision) is Decision and type(number) is type(decision.num_tokens) is int
    return decision if is_plain and type(decision.operands) is tuple else _plain(decision)


def _plain(decision: Decision) -> Decision:
    """The same of Python's own kinds: numpy's small numbers would overflow, and a list could be changed later."""
    operands = tuple((str(operand), int(value)) for operand, value in decision.operands)
    return Decision(
        int(decision.request), decision.verdict, decision.reason, int(decision.num_tokens), operands, decision.words
    )


def _wrong_part(decision: Decision) -> tuple[str, str] | None:
    """Name of the first field that is not of its kind, and what is allowed there."""
    if not isinstance(decision.verdict, Verdict):
        return "verdict", _names(Verdict)
    if not isinstance(decision.reason, Reason):
        return "reason", _names(Reason)
    if not _is_number(decision.num_tokens):
        return "num_tokens", "a whole number (int)"
    if not isinstance(decision.words, str):
        return "words", "a text, such as 'not on Mondays'"
    operands = decision.operands
    if not isinstance(operands, LISTS) or not all(map(_is_operand, operands)):
        return "operands", "a tuple of (name, whole number) pairs"
    return None


def _is_number(value: object) -> bool:
    if type(value) is int:
        return -LARGEST <= value <= LARGEST
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and -LARGEST <= int(value) <= LARGEST


def _is_operand(pair: object) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and _is_number(pair[1])


def _names(kind: type[Verdict] | type[Reason]) -> str:
    return f"a {kind.__name__} ({', '.join(one.name for one in kind)})"


def _refuse(name: str, what: str, value: object, allowed: str) -> NoReturn:
    raise PolicyError(f"{name} returned as {what} {value!r:.60} ({type(value).__name__}); allowed is {allowed}")


def _check_scheduled(name: str, decision: Decision, view: RequestView) -> None:
    request, verdict, tokens = decision.request, decision.verdict, decision.num_tokens
    wanted = Verdict.DECODE if view.is_decode else Verdict.PREFILL
    if verdict is not wanted:
        raise PolicyError(f"{name} scheduled request {request} as {verdict}; its next run is a {wanted}")
    if not 1 <= tokens <= view.next_tokens:
        raise PolicyError(f"{name} scheduled {tokens} tokens of request {request}; allowed is 1 to {view.next_tokens}")
