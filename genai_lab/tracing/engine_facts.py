"""What an engine says about a step and about a turn, and those facts as columns.

A step is kept with the whole block table of every request that holds a row; tables that did not change are one tuple,
so this costs little. In columns a table is a list of changes, and `EngineState` puts a moment together again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]


class DecisionFact(NamedTuple):
    """One request in one step."""

    request: int
    verdict: str
    reason: str
    num_tokens: int
    template: str  # a sentence with {operands}
    operands: tuple[tuple[str, int], ...]


class HolderFact(NamedTuple):
    """One request that holds a row after a step."""

    request: int
    row: int
    num_tokens: int  # in its row
    block_table: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepFact:
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
    decisions: tuple[DecisionFact, ...]
    holders: tuple[HolderFact, ...]


@dataclass(frozen=True, slots=True)
class TurnFact:
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


STEP_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "step": ("<u4", ()),
    "start_ms": ("<f8", ()),
    "dur_ms": ("<f8", ()),
    "run_ms": ("<f8", ()),
    "budget": ("<u4", ()),
    "num_waiting": ("<u4", ()),
    "blocks_used": ("<u4", ()),
    "blocks_cached": ("<u4", ()),
    "blocks_free": ("<u4", ()),
    "block_size": ("<u4", ()),
}
DECISION_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "step": ("<u4", ()),
    "request": ("<u4", ()),
    "verdict": ("<u2", ()),  # this and the next two: index into Recording.words
    "reason": ("<u2", ()),
    "template": ("<u2", ()),
    "num_tokens": ("<u4", ()),
}
OPERAND_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "decision": ("<u4", ()),  # row of the decisions table
    "name": ("<u2", ()),
    "value": ("<i8", ()),
}
HOLDER_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "step": ("<u4", ()),
    "request": ("<u4", ()),
    "row": ("<u4", ()),
    "num_tokens": ("<u4", ()),
    "num_blocks": ("<u4", ()),
}
TABLE_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "step": ("<u4", ()),  # from this step on ...
    "request": ("<u4", ()),
    "index": ("<u4", ()),  # ... this place of the request's table ...
    "block": ("<u4", ()),  # ... is this block
}
TURN_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "request": ("<u4", ()),
    "turn": ("<u4", ()),
    "run": ("<i4", ()),
    "status": ("<u2", ()),
    "finish": ("<u2", ()),
    "prompt_tokens": ("<u4", ()),
    "generated_tokens": ("<u4", ()),
    "cached_prompt_tokens": ("<u4", ()),
    "preemptions": ("<u4", ()),
    "recomputed_tokens": ("<u4", ()),
    "arrived_ms": ("<f8", ()),  # NaN while it has not come, like the following
    "scheduled_ms": ("<f8", ()),
    "first_token_ms": ("<f8", ()),
    "finished_ms": ("<f8", ()),
}
ENGINE_TABLES = {
    "steps": STEP_COLUMNS,
    "decisions": DECISION_COLUMNS,
    "operands": OPERAND_COLUMNS,
    "holders": HOLDER_COLUMNS,
    "tables": TABLE_COLUMNS,
    "turns": TURN_COLUMNS,
}


class Words:
    """Numbers for words, in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        """The word's number."""
        return self._numbers.setdefault(word, len(self._numbers))

    def known(self) -> list[str]:
        """Every word, by its number."""
        return list(self._numbers)


def engine_columns(
    steps: Sequence[StepFact], turns: Iterable[TurnFact], origin_ns: int
) -> tuple[dict[str, Columns], list[str]]:
    """The tables of ENGINE_TABLES, and the words that they count in."""
    words = Words()
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in ENGINE_TABLES}
    before: dict[int, tuple[int, ...]] = {}
    for fact in steps:
        _add_step(rows, fact, origin_ns)
        _add_decisions(rows, fact, words)
        before = _add_holders(rows, fact, before)
    for turn in turns:
        rows["turns"].append(_turn_row(turn, origin_ns, words))
    return {name: _columns(rows[name], layout) for name, layout in ENGINE_TABLES.items()}, words.known()


def _add_step(rows: dict[str, list[tuple[Any, ...]]], fact: StepFact, origin_ns: int) -> None:
    rows["steps"].append(
        (
            fact.step,
            (fact.start_ns - origin_ns) / 1e6,
            (fact.end_ns - fact.start_ns) / 1e6,
            fact.run_ns / 1e6,
            fact.budget,
            fact.num_waiting,
            fact.blocks_used,
            fact.blocks_cached,
            fact.blocks_free,
            fact.block_size,
        )
    )


def _add_decisions(rows: dict[str, list[tuple[Any, ...]]], fact: StepFact, words: Words) -> None:
    for decision in fact.decisions:
        number = len(rows["decisions"])
        named = (words.number(decision.verdict), words.number(decision.reason), words.number(decision.template))
        rows["decisions"].append((fact.step, decision.request, *named, decision.num_tokens))
        rows["operands"] += [(number, words.number(name), value) for name, value in decision.operands]


def _add_holders(
    rows: dict[str, list[tuple[Any, ...]]], fact: StepFact, before: dict[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    after: dict[int, tuple[int, ...]] = {}
    for holder in fact.holders:
        table, old = holder.block_table, before.get(holder.request, ())
        rows["holders"].append((fact.step, holder.request, holder.row, holder.num_tokens, len(table)))
        if table is not old:
            changes = ((i, block) for i, block in enumerate(table) if i >= len(old) or old[i] != block)
            rows["tables"] += [(fact.step, holder.request, i, block) for i, block in changes]
        after[holder.request] = table
    return after


def _turn_row(turn: TurnFact, origin_ns: int, words: Words) -> tuple[Any, ...]:
    times = (turn.arrived_ns, turn.scheduled_ns, turn.first_token_ns, turn.finished_ns)
    return (
        turn.request,
        turn.turn,
        turn.run,
        words.number(turn.status),
        words.number(turn.finish),
        turn.prompt_tokens,
        turn.generated_tokens,
        turn.cached_prompt_tokens,
        turn.preemptions,
        turn.recomputed_tokens,
        *((ns - origin_ns) / 1e6 if ns else float("nan") for ns in times),
    )


def _columns(rows: list[tuple[Any, ...]], layout: dict[str, tuple[str, tuple[int, ...]]]) -> Columns:
    parts = list(zip(*rows, strict=True)) if rows else [()] * len(layout)
    return {name: np.array(part, dtype) for part, (name, (dtype, _)) in zip(parts, layout.items(), strict=True)}
