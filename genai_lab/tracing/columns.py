"""Entries and events of a recorder -> columns (see `recording` for their names and dtypes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing.changes import among
from genai_lab.tracing.digest import CANDIDATES, DIGEST_FIELDS, Digest
from genai_lab.tracing.recording import CHANGED_COLUMNS, SEEN_COLUMNS, STAGE_COLUMNS, TOKEN_COLUMNS, Columns

if TYPE_CHECKING:
    from genai_lab.tracing.kept_tokens import Entry
    from genai_lab.tracing.recorder import StageEvent


def token_columns(entries: Sequence[Entry], origin_ns: int) -> Columns:
    """One row per token. Every entry has its digest."""
    columns = {name: np.empty((len(entries), *shape), dtype) for name, (dtype, shape) in TOKEN_COLUMNS.items()}
    for row, entry in enumerate(entries):
        fact, digest = entry.fact, _digest(entry)
        for name in ("run", "index", "position", "token", "final_prob", "kept", "forced", "origin"):
            columns[name][row] = getattr(fact, name)
        columns["start_ms"][row] = (fact.start_ns - origin_ns) / 1e6
        columns["end_ms"][row] = (fact.end_ns - origin_ns) / 1e6
        for name in DIGEST_FIELDS:
            columns[name][row] = getattr(digest, name)
        k = digest.top_ids.size
        columns["top_ids"][row, :k], columns["top_ids"][row, k:] = digest.top_ids, digest.top_ids[-1]
        columns["top_logits"][row, :k], columns["top_logits"][row, k:] = digest.top_logits, -np.inf
    return columns


def stage_columns(stages: Sequence[StageEvent], origin_ns: int) -> tuple[Columns, list[str]]:
    """One row per stage, and the names that the `stage` column counts in."""
    names = list(dict.fromkeys(event[2] for event in stages))
    number = {name: i for i, name in enumerate(names)}
    start = np.array([e[0] for e in stages], np.int64)
    end = np.array([e[1] for e in stages], np.int64)
    values = {
        "run": [e[3] for e in stages],
        "token": [e[4] for e in stages],
        "stage": [number[e[2]] for e in stages],
        "start_ms": (start - origin_ns) / 1e6,
        "dur_ms": (end - start) / 1e6,
        "n": [e[5] for e in stages],
    }
    return {name: np.asarray(values[name], dtype) for name, (dtype, _) in STAGE_COLUMNS.items()}, names


def changed_columns(entries: Sequence[Entry], first_row: int) -> tuple[Columns, Columns, list[str]]:
    """What processors did to the shown candidates, which candidates the sequence holds already, and processor names."""
    names: dict[str, int] = {}
    changed: list[tuple[NDArray[np.int64], NDArray[np.int32], int, NDArray[np.float32]]] = []
    seen_rows: list[NDArray[np.int64]] = []
    seen_slots: list[NDArray[np.intp]] = []
    for row, entry in enumerate(entries, first_row):
        shown = np.unique(np.append(_digest(entry).top_ids, np.int32(entry.fact.token)))
        for change in entry.fact.changes:
            by = names.setdefault(change.by, len(names))
            _, ids, logits = among(change, shown)
            changed.append((np.full(ids.size, row), ids, by, logits))
        slots = np.flatnonzero(np.isin(_digest(entry).top_ids[:CANDIDATES], entry.fact.seen))
        seen_rows.append(np.full(slots.size, row))
        seen_slots.append(slots)
    changed_values: dict[str, list[NDArray[Any]]] = {
        "row": [c[0] for c in changed],
        "id": [c[1] for c in changed],
        "by": [np.full(c[1].size, c[2]) for c in changed],
        "logit": [c[3] for c in changed],
    }
    return (
        {name: _join(changed_values[name], dtype) for name, (dtype, _) in CHANGED_COLUMNS.items()},
        {
            "row": _join(seen_rows, SEEN_COLUMNS["row"][0]),
            "slot": _join(seen_slots, SEEN_COLUMNS["slot"][0]),
        },
        list(names),
    )


def _join(parts: Sequence[NDArray[Any]], dtype: str) -> NDArray[Any]:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)


def _digest(entry: Entry) -> Digest:
    if entry.digest is None:
        raise AssertionError("columns are made from digested entries")
    return entry.digest
