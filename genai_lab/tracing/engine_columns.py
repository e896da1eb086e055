"""An engine's facts as columns, from any step on.

Receives facts, returns the tables of ENGINE_TABLES. A block table becomes a list of its changes, words become numbers.
It knows no recorder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing.engine_facts import Operands, StepFact, TurnFact

Columns = dict[str, NDArray[Any]]

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
ADMISSION_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "step": ("<u4", ()),
    "request": ("<u4", ()),
    "cached_tokens": ("<u4", ()),
    "template": ("<u2", ()),
}
ADMISSION_OPERAND_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "admission": ("<u4", ()),  # row of the admissions table
    "name": ("<u2", ()),
    "value": ("<i8", ()),
}
POOL_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "step": ("<u4", ()),
    "block": ("<u4", ()),
    "event": ("<u2", ()),
    "request": ("<u4", ()),
    "owner": ("<u4", ()),
    "start": ("<u4", ()),
    "candidates": ("<u4", ()),
    "policy": ("<u2", ()),
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
    "admissions": ADMISSION_COLUMNS,
    "admission_operands": ADMISSION_OPERAND_COLUMNS,
    "pool": POOL_COLUMNS,
    "turns": TURN_COLUMNS,
}


class Words:
    """Numbers for words, in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        """The word's number; a name out of an enum is a word as well."""
        return self._numbers.setdefault(str(word), len(self._numbers))

    def known(self) -> list[str]:
        """Every word, by its number."""
        return list(self._numbers)


def engine_columns(
    steps: Sequence[StepFact], turns: Iterable[TurnFact], origin_ns: int, before: StepFact | None = None
) -> tuple[dict[str, Columns], list[str]]:
    """The tables of ENGINE_TABLES, and the words that they count in.

    Args:
        steps: in order.
        turns: each as far as it has come.
        origin_ns: where the trace's clock begins.
        before: the step before the first; block tables are told as changes to its tables. None: told whole.
    """
    words = Words()
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in ENGINE_TABLES}
    known = {holder.request: holder.block_table for holder in before.holders} if before is not None else {}
    for fact in steps:
        _add_step(rows, fact, origin_ns)
        _add_decisions(rows, fact, words)
        _add_pool(rows, fact, words)
        known = _add_holders(rows, fact, known)
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
        rows["operands"] += _operand_rows(number, decision.all_operands(), words)


def _add_pool(rows: dict[str, list[tuple[Any, ...]]], fact: StepFact, words: Words) -> None:
    for request, cached, template, operands in fact.admissions:
        number = len(rows["admissions"])
        rows["admissions"].append((fact.step, request, cached, words.number(template)))
        rows["admission_operands"] += _operand_rows(number, operands, words)
    for block, event, request, owner, start, candidates, policy in fact.pool:
        named = (words.number(event), words.number(policy))
        rows["pool"].append((fact.step, block, named[0], request, owner, start, candidates, named[1]))


def _operand_rows(number: int, operands: Operands, words: Words) -> list[tuple[int, int, int]]:
    return [(number, words.number(name), value) for name, value in operands]


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
