"""What a policy sees and what it answers: values that nobody can change, so that planning changes nothing and can be
asked "why". What is made for every request in every step is a named tuple, quicker to make than a frozen dataclass.

A policy receives a `QueueView` and returns a `StepPlan`. The engine checks the plan, reserves blocks
for it and runs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol


class Status(StrEnum):
    """Where a request stands between steps."""

    WAITING = "waiting"  # has tokens to read, holds no row
    RUNNING = "running"  # holds a row
    IDLE = "idle"  # its turn is over; it keeps its row until it is closed or another needs the room
    FINISHED = "finished"


class Verdict(StrEnum):
    """What a step does with a request."""

    DECODE = "decode"  # one token more
    PREFILL = "prefill"  # reads a chunk of its prompt
    WAIT = "wait"
    PREEMPT = "preempt"  # loses its row and blocks, reads everything again later
    REJECT = "reject"  # can never run


class Reason(StrEnum):
    """Why. Each comes with the numbers that were compared (`Decision.operands`)."""

    RUNNING_FIRST = "running_first"  # answers that are under way get their token first
    FITS = "fits"
    READS_AGAIN = "reads_again"  # what it had read before it lost its place; nothing is chosen until it has all of it
    NO_BUDGET = "no_budget"
    NO_BLOCKS = "no_blocks"
    NO_ROW = "no_row"
    BEHIND = "behind"  # a request before it in the order was not admitted
    AFTER_PREEMPTION = "after_preemption"  # nothing new is admitted in a step that preempted
    MADE_ROOM = "made_room"  # preempted so that another can go on
    NEVER_FITS = "never_fits"
    FOLLOWS = "follows"  # a fork waits for the prompt that another reads
    SAME_BEGINNING = "same_beginning"  # another reads a beginning that both have; the prefix cache gives it on
    SHARED = "shared"  # a fork takes over what the other has read
    POLICY = "policy"  # a policy's own reason, in `Decision.words`


class RequestView(NamedTuple):
    """What a policy may know of a request. It does not know how long the answer will be.

    Fields:
        request: its number.
        status: WAITING or RUNNING.
        arrival_step: when it was asked.
        priority: lower runs first.
        num_tokens: tokens known so far, prompt and answer.
        num_computed: of those, in the cache; while waiting: those it would take over from the prefix cache.
        next_tokens: most its next run may read: an answer's last token and proposed ones, or a prompt to its end.
        is_decode: its next run is a decode.
        held_blocks: blocks it holds, or would share.
        preemptions: how often it lost its place.
        follows: a request that is about to read the same prompt; it takes over what that one reads.
        past_blocks: blocks of its beginning that fell out of its window: needed no more.
        beginning: those with the same number need the same block next; None: nobody else needs it.
        lost: tokens that it had read before it lost its place, and has to read again.
    """

    request: int
    status: Status
    arrival_step: int
    priority: int
    num_tokens: int
    num_computed: int
    next_tokens: int
    is_decode: bool
    held_blocks: int
    preemptions: int
    follows: int | None = None
    past_blocks: int = 0
    beginning: int | None = None
    lost: int = 0

    @property
    def remaining(self) -> int:
        """Tokens to read before its next token can be chosen."""
        return self.num_tokens - self.num_computed


@dataclass(frozen=True, slots=True)
class QueueView:
    """The moment before a step: everybody who runs, and who waits. Of more than 256 who wait, the first 128 by arrival
    and the first 128 by priority are seen, so that a long queue does not slow the steps.

    Fields:
        step: its number.
        waiting: `RequestView`s in order of arrival; preempted ones first.
        running: those who hold a row, in order of admission.
        budget: tokens this step may compute (max_scheduled_tokens).
        free_rows: places that nobody holds, or only who has nothing to do.
        free_blocks: free or evictable.
        num_blocks: the whole pool.
        block_size: tokens of a block.
        chunk_size: largest prompt chunk of one request in one step.
        rows: places in the batch (max_batch_size).
        window: tokens that a token sees, itself included; None: all before it.
        smallest_piece: tokens that a piece of a prompt has at least.
        unseen: who wait besides, in a queue that is too long to be seen whole.
    """

    step: int
    waiting: tuple[RequestView, ...]
    running: tuple[RequestView, ...]
    budget: int
    free_rows: int
    free_blocks: int
    num_blocks: int
    block_size: int
    chunk_size: int
    rows: int
    window: int | None = None
    smallest_piece: int = 2
    unseen: int = 0

    def new_blocks(self, request: RequestView, tokens: int) -> int:
        """Blocks it must be given to hold `tokens` more. With a window, blocks fall out of it between the runs: no more
        than it ever holds at a time."""
        places = -(-(request.num_computed + tokens) // self.block_size)
        needed = max(0, places - request.held_blocks - request.past_blocks)
        if self.window is None:
            return needed
        run = min(tokens, max(self.chunk_size, request.next_tokens if request.is_decode else 0))
        most = -(-(self.window - 1 + run) // self.block_size) + 1
        return min(needed, max(0, most - request.held_blocks))


class Decision(NamedTuple):
    """What was decided about one request in one step, and why."""

    request: int
    verdict: Verdict
    reason: Reason
    num_tokens: int = 0  # scheduled in this step
    operands: tuple[tuple[str, int], ...] = ()
    words: str = ""

    @property
    def template(self) -> str:
        """The sentence with the operands' names in braces, for "1 block" in the singular; a policy's own words as they
        are."""
        if not self.words:
            ones = {name for name, value in self.all_operands() if value == 1}
            sentence = _SENTENCES[self.reason]
            return (
                _MANY.sub(lambda found: _one(found) if found[1] in ones else found[0], sentence) if ones else sentence
            )
        return self.words.replace("{", "{{").replace("}", "}}")

    def all_operands(self) -> tuple[tuple[str, int], ...]:
        """The numbers that were compared, and how many tokens were scheduled."""
        return (("num_tokens", self.num_tokens), *self.operands)

    def in_words(self) -> str:
        """One sentence: the rule, the numbers it compared, what would have changed it."""
        return self.template.format_map(dict(self.all_operands()))


_MANY = re.compile(r"\{(\w+)\}(?:( (?:token|block|row))s)?( are\b)?")


def _one(found: re.Match[str]) -> str:
    """Words for "{n} blocks are" where n is 1: "{n} block is"."""
    return f"{{{found[1]}}}{found[2] or ''}{' is' if found[3] else ''}"


_SENTENCES = {
    Reason.RUNNING_FIRST: "Answers under way come first: it reads its last token and chooses the next.",
    Reason.FITS: (
        "{num_tokens} tokens are read: {budget} tokens of the budget and {free_blocks} blocks were left, "
        "it needs {needs_blocks}."
    ),
    Reason.READS_AGAIN: (
        "{num_tokens} tokens are read, {again} for the second time since it had lost its place: {budget} tokens of the "
        "budget and {free_blocks} blocks were left, it needs {needs_blocks}."
    ),
    Reason.NO_BUDGET: (
        "It waits: the step's budget has {budget} tokens left. A larger max_scheduled_tokens, or fewer answers "
        "under way, would have admitted it."
    ),
    Reason.NO_BLOCKS: (
        "It waits for memory: it needs {needs_blocks} blocks, {free_blocks} are free. "
        "{missing_blocks} more would have admitted it."
    ),
    Reason.NO_ROW: "It waits for a place: all {rows} rows are taken (max_batch_size). One answer has to end first.",
    Reason.BEHIND: "It waits behind request {head}, which comes before it and could not be admitted.",
    Reason.AFTER_PREEMPTION: (
        "It waits: memory ran out in this step and a request was preempted, so nothing new is admitted."
    ),
    Reason.MADE_ROOM: (
        "It loses its place: request {winner} needed a block, none was free, and this one came last. "
        "It gave back {freed_blocks} blocks. The {num_computed} tokens that it had read must be read again, but for a "
        "beginning that the prefix cache still has then."
    ),
    Reason.NEVER_FITS: "It can never run: it needs {needs_blocks} blocks, the whole pool has {num_blocks}.",
    Reason.FOLLOWS: "It waits for request {leader}, of which it is a fork: the prompt is read once for both.",
    Reason.SAME_BEGINNING: (
        "It waits for request {leader}, which reads a beginning that both share: it is read once, and taken over from "
        "the prefix cache. A policy made with read_once=False would have both read it."
    ),
    Reason.SHARED: "It takes over all that request {leader} read, and chooses its own token from the same logits.",
    Reason.POLICY: "The policy decided so.",
}


_NAMED = {
    reason: frozenset(re.findall(r"\{(\w+)\}", sentence)) - {"num_tokens"} for reason, sentence in _SENTENCES.items()
}


def operands_of(reason: Reason) -> frozenset[str]:
    """Names of the operands that the reason's sentence needs.

    >>> operands_of(Reason.NO_BUDGET)
    frozenset({'budget'})
    """
    return _NAMED[reason]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Which requests compute how many tokens in this step, who waits, and why. A waiting request about which nothing is
    decided waits on."""

    scheduled: tuple[Decision, ...] = ()  # DECODE and PREFILL, in the order in which they run
    others: tuple[Decision, ...] = ()  # WAIT, PREEMPT, REJECT

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(decision.num_tokens for decision in self.scheduled)


class Policy(Protocol):
    """Decides a step. Pure: the same view gives the same plan, and nothing is remembered."""

    def plan(self, view: QueueView) -> StepPlan: ...
