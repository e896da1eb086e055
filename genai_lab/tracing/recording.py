"""What a recorder hands over: plain columns and a description of each run. Storage, export, analysis and widgets read
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing.digest import BINS, CANDIDATES
from genai_lab.tracing.engine_columns import ENGINE_TABLES
from genai_lab.tracing.speculation_facts import SPECULATION_TABLES

Columns = dict[str, NDArray[Any]]

TOKEN_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "run": ("<u2", ()),
    "index": ("<u4", ()),
    "position": ("<u4", ()),
    "token": ("<u4", ()),
    "prob": ("<f4", ()),
    "rank": ("<u4", ()),
    "entropy": ("<f4", ()),
    "final_prob": ("<f4", ()),
    "kept": ("<u4", (3,)),
    "start_ms": ("<f8", ()),
    "end_ms": ("<f8", ()),
    "top_ids": ("<u4", (CANDIDATES,)),
    "top_logits": ("<f4", (CANDIDATES,)),
    "log_z": ("<f4", ()),
    "tail_lo": ("<f4", ()),
    "tail_hi": ("<f4", ()),
    "tail_count": ("<u4", (BINS,)),
    "tail_seen": ("<u2", (BINS,)),
    "exact": ("<u1", ()),
    "allowed": ("<u4", ()),
    "allowed_mass": ("<f4", ()),
    "forced": ("<u1", ()),
    "origin": ("<u1", ()),
}
"""Name -> dtype and shape of one row. `exact`: so many of `top_ids` are the most likely ones without a gap; those after
them are less likely ones that a grammar allowed or a processor lifted. `allowed`: tokens that a grammar left (0: there
was none); `allowed_mass`: the probability of those, under the model (NaN: there was none). `forced`: 1 where a grammar
left no choice and the model was not asked. `origin`: how speculation made it (an `Origin`). Vocabularies smaller than
CANDIDATES fill the rest of top_ids with the last id and top_logits with -inf."""
STAGE_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "run": ("<i4", ()),
    "token": ("<i4", ()),
    "stage": ("<u1", ()),
    "start_ms": ("<f8", ()),
    "dur_ms": ("<f8", ()),
    "n": ("<u4", ()),
}
CHANGED_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "row": ("<u4", ()),
    "id": ("<u4", ()),
    "by": ("<u1", ()),
    "logit": ("<f4", ()),
}
SEEN_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {"row": ("<u4", ()), "slot": ("<u1", ())}
TABLES = {
    "tokens": TOKEN_COLUMNS,
    "stages": STAGE_COLUMNS,
    "changed": CHANGED_COLUMNS,
    "seen": SEEN_COLUMNS,
    **ENGINE_TABLES,
    **SPECULATION_TABLES,
}


@dataclass(slots=True)
class RunFacts:
    """One generator's answer, or a branch of it."""

    run: int
    prompt: NDArray[np.int32]  # every token that was appended before the first generated one
    settings: dict[str, Any]
    start_ms: float
    parent: int | None = None  # the run this one branches from
    fork: int | None = None  # index of the parent's token that it replaces
    forced: int | None = None  # the token put there by hand
    cached_tokens: int = 0  # tokens of the prompt whose keys and values were taken over, not computed
    question: str = ""
    status: str = "running"  # running | done | stopped | failed
    finish: str | None = None  # eos | length | stopped
    error: str | None = None
    text: str | None = None  # the whole answer as the tokenizer writes it; None: nobody could tell


@dataclass(slots=True)
class Recording:
    """Everything recorded up to a moment. Times are milliseconds on the trace's own clock."""

    tables: dict[str, Columns]
    runs: list[RunFacts]
    texts: dict[int, tuple[str, bool]]  # token id -> text, is special
    stage_names: list[str]
    processor_names: list[str]
    model: dict[str, Any]
    origin: dict[str, Any]
    words: list[str] = field(default_factory=list)  # what the engine's tables count in
    raw: dict[int, bytes] = field(default_factory=dict)  # token id -> bytes, of tokens that are not whole characters
    dropped: dict[str, int] = field(default_factory=lambda: {"tokens": 0, "stages": 0})

    @property
    def tokens(self) -> Columns:
        return self.tables["tokens"]

    @property
    def stages(self) -> Columns:
        return self.tables["stages"]


def empty_tables() -> dict[str, Columns]:
    """Tables with their columns and no rows."""
    return {
        table: {name: np.empty((0, *shape), dtype) for name, (dtype, shape) in columns.items()}
        for table, columns in TABLES.items()
    }
