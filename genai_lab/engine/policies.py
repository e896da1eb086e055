"""Scheduling policies. Each is a small pure class: a `QueueView` in, a `StepPlan` with one reason per request out.

`OrderedPolicy` holds the common rules; a policy of one's own is usually its `key`:

    class ShortestFirst(OrderedPolicy):
        def key(self, request, view):
            return request.remaining
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from genai_lab.engine.checking import PolicyError
from genai_lab.engine.plan import Decision, QueueView, Reason, RequestView, StepPlan, Verdict
from genai_lab.errors import ArgumentError
from genai_lab.kinds import flag, whole

EXPLAINED = 64  # waiting requests that a plan says something about, apart from those that it runs or rejects


@dataclass(slots=True)
class _Draft:
    """The plan while it is being made: what is left, and what was decided."""

    view: QueueView
    budget: int
    blocks: int
    rows: int
    scheduled: list[Decision] = field(default_factory=list)
    others: list[Decision] = field(default_factory=list)
    preempted: set[int] = field(default_factory=set)
    reading: dict[int, int] = field(default_factory=dict)  # beginning -> who reads it in this step

    def schedule(self, request: RequestView, verdict: Verdict, reason: Reason, tokens: int, needs: int) -> None:
        operands: tuple[tuple[str, int], ...]
        operands = (("budget", self.budget), ("free_blocks", self.blocks), ("needs_blocks", needs))
        if request.lost:
            reason, operands = Reason.READS_AGAIN, (("again", min(request.lost, tokens)), *operands)
        self.scheduled.append(Decision(request.request, verdict, reason, tokens, operands))
        self.budget -= tokens
        self.blocks -= needs
        if request.beginning is not None:
            self.reading.setdefault(request.beginning, request.request)

    def decide(self, request: RequestView, verdict: Verdict, reason: Reason, **operands: int) -> None:
        self.others.append(Decision(request.request, verdict, reason, 0, tuple(operands.items())))


class OrderedPolicy:
    """Answers under way first, one token each; then prompts in the order of `key`, in chunks, as budget, blocks and
    rows allow. When an answer finds no block, the last of the running is preempted.

    Args:
        skip_blocked: look past a request that does not fit (as onnxruntime-genai does). False: nobody overtakes the
            head of the line.
        read_once: who begins as another that is being read waits until that beginning can be taken over from the
            prefix cache. False: each is read as soon as there is room, the same tokens by several at a time.
    """

    def __init__(self, *, skip_blocked: bool = False, read_once: bool = True) -> None:
        self.skip_blocked = flag("skip_blocked", skip_blocked)
        self.read_once = flag("read_once", read_once)

    def key(self, request: RequestView, view: QueueView) -> Any:
        """What waiting requests are sorted by, smallest first: a number, a text, or a tuple of them.

        `help(RequestView)` and `help(QueueView)` name what `request` and `view` have: `request.priority`,
        `request.num_tokens`, `view.free_blocks` and more. Both are in `genai_lab.engine`.
        """
        return request.arrival_step

    def plan(self, view: QueueView) -> StepPlan:
        """Decide the step. Of those who wait, the first 64 are told why; the rest wait without a word."""
        draft = _Draft(view, view.budget, view.free_blocks, view.free_rows)
        running = sorted(view.running, key=lambda r: (not r.is_decode,))
        for request in running:
            if request.request not in draft.preempted:
                self._continue(draft, request, running)
        self._admit(draft)
        return StepPlan(tuple(draft.scheduled), tuple(draft.others))

    # ---- those who hold a row

    def _continue(self, draft: _Draft, request: RequestView, running: list[RequestView]) -> None:
        """Give a running request its token or its next chunk, making room if it must be."""
        view = draft.view
        tokens = chunk_tokens(request, view, draft.budget)
        if tokens == 0:
            draft.decide(request, Verdict.WAIT, Reason.NO_BUDGET, budget=draft.budget)
            return
        needs = view.new_blocks(request, tokens)
        if needs + request.held_blocks > view.num_blocks:
            draft.decide(request, Verdict.REJECT, Reason.NEVER_FITS, needs_blocks=needs + request.held_blocks,
                         num_blocks=view.num_blocks)  # fmt: skip
            draft.blocks += request.held_blocks
            return
        while needs > draft.blocks:
            victim = self._victim(draft, request, running)
            if victim is None:
                draft.decide(request, Verdict.WAIT, Reason.NO_BLOCKS, needs_blocks=needs, free_blocks=draft.blocks,
                             missing_blocks=needs - draft.blocks)  # fmt: skip
                return
            draft.preempted.add(victim.request)
            draft.blocks += victim.held_blocks
            draft.decide(victim, Verdict.PREEMPT, Reason.MADE_ROOM, winner=request.request,
                         freed_blocks=victim.held_blocks, num_computed=victim.num_computed)  # fmt: skip
        verdict = Verdict.DECODE if request.is_decode else Verdict.PREFILL
        draft.schedule(request, verdict, Reason.RUNNING_FIRST if request.is_decode else Reason.FITS, tokens, needs)

    def _victim(self, draft: _Draft, winner: RequestView, running: list[RequestView]) -> RequestView | None:
        """The last of the running that this step has not served yet; nobody gives way to itself."""
        served = {decision.request for decision in draft.scheduled}
        decided = {decision.request for decision in draft.others}
        left = [r for r in running if r.request not in served | decided | {winner.request} and r.held_blocks > 0]
        return max(left, key=lambda r: (r.priority, r.arrival_step, r.request), default=None)

    # ---- those who wait

    def _admit(self, draft: _Draft) -> None:
        view = draft.view
        head: RequestView | None = None
        before = len(draft.others)
        for request in self._in_order(view):
            no_more = draft.preempted or (head is not None and not self.skip_blocked)
            if no_more and len(draft.others) - before >= EXPLAINED:
                break
            if request.follows is not None:
                draft.decide(request, Verdict.WAIT, Reason.FOLLOWS, leader=request.follows)
            elif self.read_once and request.beginning in draft.reading:
                draft.decide(request, Verdict.WAIT, Reason.SAME_BEGINNING, leader=draft.reading[request.beginning])
            elif draft.preempted:
                draft.decide(request, Verdict.WAIT, Reason.AFTER_PREEMPTION)
            elif head is not None and not self.skip_blocked:
                draft.decide(request, Verdict.WAIT, Reason.BEHIND, head=head.request)
            elif not self._admitted(draft, request):
                head = head or request
        draft.others[before:] = _first_waits(draft.others[before:])

    def _in_order(self, view: QueueView) -> list[RequestView]:
        """Those who wait: the preempted first, then by `key`, which is a stranger's word."""
        name, keys = type(self).__name__, {r.request: self.key(r, view) for r in view.waiting}
        for request, key in keys.items():
            if _has_no_order(key):
                raise PolicyError(
                    f"{name}.key gives request {request} {key!r:.60}, which has no place in an order; a number, a text "
                    "or a tuple of them is allowed. Return request.arrival_step where the request has nothing else"
                )
        try:
            return sorted(view.waiting, key=lambda r: (r.preemptions == 0, keys[r.request]))
        except (TypeError, ValueError) as error:
            kinds = ", ".join(f"{key!r:.30} for request {request}" for request, key in list(keys.items())[:4])
            raise PolicyError(
                f"{name}.key gives keys that cannot be put in order ({error}): {kinds}. Return the same kind for every "
                "request: a number, a text or a tuple of them"
            ) from error

    def _admitted(self, draft: _Draft, request: RequestView) -> bool:
        """Schedule a waiting request's first chunk, or say why not. It is admitted when all it knows now will fit."""
        view = draft.view
        whole = view.new_blocks(request, request.remaining + 1)
        if whole + request.held_blocks > view.num_blocks:
            draft.decide(request, Verdict.REJECT, Reason.NEVER_FITS, needs_blocks=whole + request.held_blocks,
                         num_blocks=view.num_blocks)  # fmt: skip
            return True
        tokens = chunk_tokens(request, view, draft.budget)
        if draft.rows == 0:
            draft.decide(request, Verdict.WAIT, Reason.NO_ROW, rows=view.rows)
        elif tokens == 0:
            draft.decide(request, Verdict.WAIT, Reason.NO_BUDGET, budget=draft.budget)
        elif whole > draft.blocks:
            draft.decide(request, Verdict.WAIT, Reason.NO_BLOCKS, needs_blocks=whole, free_blocks=draft.blocks,
                         missing_blocks=whole - draft.blocks)  # fmt: skip
        else:
            verdict, needs = Verdict.DECODE if request.is_decode else Verdict.PREFILL, view.new_blocks(request, tokens)
            draft.schedule(request, verdict, Reason.FITS, tokens, needs)
            draft.rows -= 1
            return True
        return False


def _first_waits(decisions: list[Decision]) -> list[Decision]:
    """Without those that wait after the first `EXPLAINED`: a long queue would fill a trace with the same sentence."""
    waits = [decision for decision in decisions if decision.verdict is Verdict.WAIT]
    silent = {decision.request for decision in waits[EXPLAINED:]}
    return [decision for decision in decisions if decision.request not in silent]


def _has_no_order(key: Any) -> bool:
    """Whether a key, or a part of one, is None or not a number: sorting would accept it and mean nothing."""
    if isinstance(key, tuple | list):
        return any(map(_has_no_order, key))
    return key is None or (isinstance(key, float | np.floating) and math.isnan(key))


def _checked_patience(patience: object) -> int:
    steps = whole("patience", patience, "a whole number of steps (int)")
    if steps < 1:
        raise ArgumentError(f"patience is {steps}; a whole number of steps (int) of at least 1 is allowed")
    return steps


def chunk_tokens(request: RequestView, view: QueueView, budget: int) -> int:
    """Tokens of its next run within the budget; 0 when it must wait. A chunk of one token takes another numeric path in
    ONNX Runtime's kernels than the same token inside a larger chunk, so no chunk of one is made or left over, but
    where one run reads everybody's tokens anyway."""
    if request.is_decode:
        return min(request.next_tokens, budget)
    tokens = min(request.next_tokens, view.chunk_size, budget)
    if view.smallest_piece == 1:
        return tokens
    if request.next_tokens - tokens == 1:
        tokens -= 1
    return tokens if tokens >= 2 or request.next_tokens == tokens == 1 else 0


class Fcfs(OrderedPolicy):
    """First come, first served; the default."""


class PriorityFirst(OrderedPolicy):
    """Lower `priority` first, then first come; an old request moves up one priority every `patience` steps, so that
    none waits for ever."""

    def __init__(self, *, patience: int = 200, skip_blocked: bool = False, read_once: bool = True) -> None:
        super().__init__(skip_blocked=skip_blocked, read_once=read_once)
        self.patience = _checked_patience(patience)

    def key(self, request: RequestView, view: QueueView) -> Any:
        return (request.priority - (view.step - request.arrival_step) // self.patience, request.arrival_step)


class ShortestFirst(OrderedPolicy):
    """Fewest tokens left to read first; a request that waited `patience` steps goes to the front."""

    def __init__(self, *, patience: int = 200, skip_blocked: bool = False, read_once: bool = True) -> None:
        super().__init__(skip_blocked=skip_blocked, read_once=read_once)
        self.patience = _checked_patience(patience)

    def key(self, request: RequestView, view: QueueView) -> Any:
        waited = view.step - request.arrival_step
        return (waited < self.patience, request.remaining, request.arrival_step)


class PrefixFirst(OrderedPolicy):
    """The largest share already in the prefix cache first; a request that waited `patience` steps goes to the front."""

    def __init__(self, *, patience: int = 200, skip_blocked: bool = False, read_once: bool = True) -> None:
        super().__init__(skip_blocked=skip_blocked, read_once=read_once)
        self.patience = _checked_patience(patience)

    def key(self, request: RequestView, view: QueueView) -> Any:
        waited = view.step - request.arrival_step
        return (waited < self.patience, -request.num_computed / request.num_tokens, request.arrival_step)


class Static(OrderedPolicy):
    """Nobody joins a batch under way: new requests are admitted only when no answer is running. So a batch is those
    whose prompts one step's budget (`max_scheduled_tokens`) has room for."""

    def __init__(self, *, skip_blocked: bool = False) -> None:
        super().__init__(skip_blocked=skip_blocked, read_once=False)  # who waits for a beginning would miss the batch

    def _admit(self, draft: _Draft) -> None:
        count = len(draft.view.running)
        if count == 0:
            super()._admit(draft)
            return
        words = (
            f"It waits for the batch of {count} under way to end (static batching: a batch is whom one step admits, as "
            f"far as its budget of {draft.view.budget} tokens goes)."
        )
        draft.others += [
            Decision(r.request, Verdict.WAIT, Reason.POLICY, words=words) for r in draft.view.waiting[:EXPLAINED]
        ]
