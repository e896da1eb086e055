"""What must hold of every step of an engine, whatever the policy and the callers do.

Each function receives a `StepRecord` and returns what is wrong, in words; an empty list is good. The numbers are those
of the engine's seventeen invariants; those about blocks are `genai_lab.kvcache.check_cache`. They change nothing.
`Engine(model, check_invariants=True)` runs them all after every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from genai_lab.engine.plan import Reason, Status, Verdict
from genai_lab.engine.snapshot import StepRecord
from genai_lab.errors import StateError
from genai_lab.kvcache import check_cache

_RUNS = (Verdict.DECODE, Verdict.PREFILL)
_BUSY = (Status.WAITING, Status.RUNNING)
_NEXT = {
    Status.WAITING: {Status.WAITING, Status.RUNNING, Status.IDLE},
    Status.RUNNING: {Status.RUNNING, Status.WAITING, Status.IDLE},
    Status.IDLE: {Status.IDLE},  # only a caller begins a turn
    Status.FINISHED: {Status.FINISHED},
}


def the_budget_is_kept(record: StepRecord) -> list[str]:
    """5: 0 <= scheduled <= budget, and only what runs has tokens."""
    wrong = [
        f"request {d.request} is scheduled {d.num_tokens} tokens as {d.verdict}"
        for d in record.decisions
        if (d.num_tokens > 0) != (d.verdict in _RUNS) or d.num_tokens < 0
    ]
    total = sum(d.num_tokens for d in record.decisions)
    if total > record.before.budget:
        wrong.append(f"{total} tokens are scheduled, the budget is {record.before.budget}")
    return wrong


def rows_are_held_once(record: StepRecord) -> list[str]:
    """5b: running <= max_batch_size; a row is in range and has one holder, and who runs has one."""
    held = [r.row for r in record.after.requests if r.row is not None]
    wrong = [f"row {row} has {count} holders" for row, count in Counter(held).items() if count > 1]
    wrong += [f"row {row} is outside of 0 to {record.after.rows - 1}" for row in held if row >= record.after.rows]
    wrong += [f"request {r.request} runs without a row" for r in record.after.of(Status.RUNNING) if r.row is None]
    wrong += [
        f"request {r.request} waits and holds row {r.row}" for r in record.after.of(Status.WAITING) if r.row is not None
    ]
    return wrong


def answers_come_before_prompts(record: StepRecord) -> list[str]:
    """5c: no answer under way waits for the budget in a step that reads prompts."""
    running = {r.request for r in record.before.of(Status.RUNNING) if r.is_decode}
    reads = [d.request for d in record.decisions if d.verdict is Verdict.PREFILL]
    return [
        f"request {d.request} waits for the budget while request {reads[0]} reads its prompt"
        for d in record.decisions
        if reads and d.reason is Reason.NO_BUDGET and d.request in running
    ]


def lives_are_legal(record: StepRecord) -> list[str]:
    """6: legal moves; arrival <= scheduled <= first token <= end."""
    before = {r.request: r for r in record.before.requests}
    wrong = []
    for now in record.after.requests:
        was = before.get(now.request)
        if was is None:
            wrong.append(f"request {now.request} appeared in a step")
        elif now.status not in _NEXT[was.status]:
            wrong.append(f"request {now.request} went from {was.status} to {now.status}")
        if (now.status in _BUSY) == (now.finish is not None) and now.turn_id:
            wrong.append(f"request {now.request} is {now.status}, its turn's end is {now.finish}")
        times = [time for time in now.times if time]
        if any(first > second for first, second in pairwise(times)):
            wrong.append(f"request {now.request} has times out of order: {now.times}")
    return wrong


def turns_are_conserved(record: StepRecord) -> list[str]:
    """7: begun = ended + closed + running + waiting."""
    after = record.after
    ended, busy = sum(count for _, count in after.ended), len(after.of(*_BUSY))
    if after.begun != ended + after.closed + busy:
        return [f"{after.begun} turns began; {ended} ended, {after.closed} were closed, {busy} are under way"]
    return []


def who_waits_has_one_reason(record: StepRecord) -> list[str]:
    """7b: everybody that the policy saw has one decision; who waits afterwards was told to, or was preempted."""
    count = Counter(d.request for d in record.decisions)
    wrong = [f"request {request} has {n} decisions" for request, n in count.items() if n > 1]
    verdicts = {d.request: d.verdict for d in record.decisions}
    for request in record.after.of(Status.WAITING):
        verdict = verdicts.get(request.request)
        if verdict is not None and verdict not in (Verdict.WAIT, Verdict.PREEMPT):
            wrong.append(f"request {request.request} waits after a {verdict}")
    return wrong


def streams_only_grow(record: StepRecord) -> list[str]:
    """12: whatever happens to a request, preemption included, its tokens stay and at most one is added; after a run
    that read proposed tokens, at most as many as it read."""
    before = {r.request: r for r in record.before.requests}
    read = {d.request: d.num_tokens for d in record.decisions if d.verdict is Verdict.DECODE}
    wrong = []
    for now in record.after.requests:
        was = before.get(now.request, now)
        if not now.tokens.startswith(was.tokens):
            wrong.append(f"request {now.request} lost or changed tokens")
        if now.num_tokens - was.num_tokens > max(1, read.get(now.request, 1)):
            wrong.append(f"request {now.request} got {now.num_tokens - was.num_tokens} tokens in one step")
        if now.known != now.num_tokens:
            wrong.append(f"request {now.request} has {now.num_tokens} tokens, its turns account for {now.known}")
    return wrong


def rows_hold_what_the_books_say(record: StepRecord) -> list[str]:
    """13a: what a run continues from is what was computed: the cache's books, the rows and the sequences agree."""
    books = {r.request: r.num_tokens for r in record.after.cache.requests}
    holders = {r.request: r.computed for r in record.after.requests if r.row is not None}
    wrong = [
        f"request {request}: the cache has {books.get(request)} tokens, its row {holders.get(request)}"
        for request in books.keys() | holders.keys()
        if books.get(request) != holders.get(request)
    ]
    wrong += [
        f"request {r.request} computed {r.computed} of {r.num_tokens} tokens"
        for r in record.after.requests
        if r.computed > r.num_tokens or (r.status in _BUSY and r.computed == r.num_tokens)
    ]
    return wrong


def same_tokens_as_alone(
    found: Mapping[int, Sequence[int]], alone: Mapping[int, Sequence[int]], unfinished: Iterable[int] = ()
) -> list[str]:
    """13: each request got what it gets alone: batched, chunked, preempted, warm or cold.

    Args:
        found, alone: tokens by request; only requests in `alone` are compared.
        unfinished: requests that were ended early; theirs must be the beginning.
    """
    early = set(unfinished)
    wrong = []
    for request, expected in alone.items():
        got = list(found.get(request, ()))
        wanted = list(expected)[: len(got)] if request in early else list(expected)
        if got != wanted:
            place = next(
                (i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), min(len(got), len(wanted))
            )
            wrong.append(
                f"request {request} differs from token {place} on: {got[place:][:3]}, alone {wanted[place:][:3]}"
            )
    return wrong


STEP_INVARIANTS: tuple[Callable[[StepRecord], list[str]], ...] = (
    the_budget_is_kept,
    rows_are_held_once,
    answers_come_before_prompts,
    lives_are_legal,
    turns_are_conserved,
    who_waits_has_one_reason,
    streams_only_grow,
    rows_hold_what_the_books_say,
)


def check_step(record: StepRecord) -> list[str]:
    """Everything that is wrong with a step and the cache after it; empty when nothing is."""
    wrong = [f"{check.__name__}: {words}" for check in STEP_INVARIANTS for words in check(record)]
    return wrong + check_cache(record.after.cache)


def raise_if_step_broken(record: StepRecord) -> None:
    """Stop at the first broken step, where its cause is still near.

    Raises:
        StateError: naming the step and each rule.
    """
    wrong = check_step(record)
    if wrong:
        raise StateError(
            f"step {record.before.step} left the engine in a state that must not be (an error in genai_lab, please "
            "report it): " + "; ".join(wrong)
        )
