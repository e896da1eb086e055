"""A policy's plan is a stranger's word: checked before anything is done with it."""

from __future__ import annotations

from genai_lab.engine.plan import QueueView, RequestView, StepPlan, Verdict
from genai_lab.errors import StateError


class PolicyError(StateError):
    """A policy returned a plan that cannot be carried out; the message names what it did."""


def check_plan(plan: StepPlan, view: QueueView, policy: object) -> StepPlan:
    """`plan` itself, if it can be carried out.

    Raises:
        PolicyError: naming the policy, the request and the rule. Nothing was done.
    """
    name = type(policy).__name__
    if not isinstance(plan, StepPlan):
        raise PolicyError(f"{name}.plan returned {type(plan).__name__}; a StepPlan is allowed")
    known = {r.request: r for r in (*view.waiting, *view.running)}
    waiting = {r.request for r in view.waiting}
    preempted = {d.request for d in plan.others if d.verdict is Verdict.PREEMPT}
    seen: set[int] = set()
    for decision in (*plan.scheduled, *plan.others):
        if decision.request not in known:
            raise PolicyError(f"{name} decided about request {decision.request}, which is not in the view")
        if decision.request in seen:
            raise PolicyError(f"{name} decided twice about request {decision.request}")
        seen.add(decision.request)
    for decision in plan.scheduled:
        _check_scheduled(name, decision.request, decision.verdict, decision.num_tokens, known[decision.request])
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


def _check_scheduled(name: str, request: int, verdict: Verdict, tokens: int, view: RequestView) -> None:
    wanted = Verdict.DECODE if view.is_decode else Verdict.PREFILL
    if verdict is not wanted:
        raise PolicyError(f"{name} scheduled request {request} as {verdict}; its next run is a {wanted}")
    if not 1 <= tokens <= view.next_tokens:
        raise PolicyError(f"{name} scheduled {tokens} tokens of request {request}; allowed is 1 to {view.next_tokens}")
