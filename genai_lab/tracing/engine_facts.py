"""What an engine says about a step and about a turn: small frozen values.

A step is kept with the whole block table of every request that holds a row; tables that did not change are one tuple,
so this costs little. `engine_columns` turns the facts into columns.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

Operands = tuple[tuple[str, int], ...]
GONE = 2**32 - 1
"""In a block table: what was at this place fell out of the request's window, and it holds nothing for it any more."""


class Decided(Protocol):
    """What was decided about one request in one step: a value that never changes, asked when somebody reads."""

    @property
    def request(self) -> int: ...
    @property
    def verdict(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def template(self) -> str: ...  # a sentence with {operands}
    def all_operands(self) -> Operands: ...


class DecisionFact(NamedTuple):
    """The same, for who has no values of its own."""

    request: int
    verdict: str
    reason: str
    num_tokens: int
    template: str
    operands: Operands

    def all_operands(self) -> Operands:
        """The numbers that the sentence names."""
        return self.operands


class HolderFact(NamedTuple):
    """One request that holds a row after a step."""

    request: int
    row: int
    num_tokens: int  # in its row
    block_table: tuple[int, ...]  # in the order of its text; GONE where it holds none


class AdmissionFact(NamedTuple):
    """One request that was given a row in a step, with what the prefix cache had of it."""

    request: int
    cached_tokens: int  # of its tokens, taken over from the cache: the first blocks of its table
    template: str  # why not more: a sentence with {operands}; empty when there is nothing to say
    operands: Operands


class PoolEvent(StrEnum):
    """What became of a block that no table holds any more, or of the content that it had."""

    KEPT = "kept"  # let go; free, but its content can still be found
    EMPTIED = "emptied"  # let go without content, or its content was cleared
    EVICTED = "evicted"  # a kept block lost its content to somebody who needed the room
    OVERWRITTEN = "overwritten"  # its only holder wrote into it, so its content cannot be found any more


class PoolFact(NamedTuple):
    """One block in one step. A later event of the same block and step counts."""

    block: int
    event: PoolEvent
    request: int  # KEPT, EMPTIED: who let it go; EVICTED: who needed the room
    owner: int  # who computed the content
    start: int  # EVICTED: position of its first token in the owner's sequence
    candidates: int  # EVICTED: among how many kept blocks it was chosen
    policy: str  # EVICTED: why this one, in words after "because it was"


class StepFact(NamedTuple):
    """One committed step."""

    step: int
    start_ns: int
    end_ns: int
    run_ns: int  # of that, inside the model
    budget: int
    num_waiting: int
    blocks_used: int
    blocks_cached: int
    blocks_free: int
    block_size: int
    decisions: tuple[Decided, ...]
    holders: tuple[HolderFact, ...]
    admissions: tuple[AdmissionFact, ...] = ()
    pool: tuple[PoolFact, ...] = ()


class TurnFact(NamedTuple):
    """One turn of a request as far as it has come; times are perf_counter_ns, 0 while they have not come."""

    request: int
    turn: int
    run: int  # in the trace; -1: none
    status: str
    finish: str
    prompt_tokens: int
    generated_tokens: int
    cached_prompt_tokens: int
    preemptions: int
    recomputed_tokens: int
    arrived_ns: int
    scheduled_ns: int
    first_token_ns: int
    finished_ns: int
