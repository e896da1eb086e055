"""A recording's rows -> what a recorder keeps, so that a recording from a file can go on.

Receives a recording and the zero of a clock. Returns entries and stage events as the live rooms would have told them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from genai_lab.tracing.digest import DIGEST_FIELDS, Digest
from genai_lab.tracing.recording import Recording
from genai_lab.tracing.speculation_facts import Origin
from genai_lab.tracing.tracer import Change, TokenFact

if TYPE_CHECKING:
    from genai_lab.tracing.recorder import StageEvent


def end_ms(recording: Recording) -> float:
    """The last moment of a recording, on its own clock."""
    ends = [float(c.max()) for c in (recording.tokens["end_ms"], recording.stages["start_ms"]) if c.size]
    return max(ends, default=0.0)


def stage_events(recording: Recording, origin_ns: int) -> Iterator[StageEvent]:
    """Every stage."""
    stages = recording.stages
    for row in range(len(stages["stage"])):
        start = origin_ns + round(float(stages["start_ms"][row]) * 1e6)
        end = start + round(float(stages["dur_ms"][row]) * 1e6)
        name = recording.stage_names[int(stages["stage"][row])]
        run, token, n = (int(stages[column][row]) for column in ("run", "token", "n"))
        yield start, end, name, run, token, n


def token_facts(recording: Recording, origin_ns: int) -> Iterator[tuple[TokenFact, Digest]]:
    """Every token. Of what processors changed and what the sequence held, the recorded candidates are known."""
    for row in range(len(recording.tokens["token"])):
        yield _fact(recording, row, origin_ns), _digest(recording, row)


def _fact(recording: Recording, row: int, origin_ns: int) -> TokenFact:
    tokens, seen = recording.tokens, recording.tables["seen"]
    absolute = row + recording.dropped["tokens"]
    slots = seen["slot"][seen["row"] == absolute]
    run, index, position, token = (int(tokens[name][row]) for name in ("run", "index", "position", "token"))
    top_k, top_p, min_p = tokens["kept"][row].tolist()
    return TokenFact(
        run=run,
        index=index,
        position=position,
        token=token,
        start_ns=origin_ns + round(float(tokens["start_ms"][row]) * 1e6),
        end_ns=origin_ns + round(float(tokens["end_ms"][row]) * 1e6),
        final_prob=float(tokens["final_prob"][row]),
        kept=(top_k, top_p, min_p),
        changes=tuple(_changes(recording, absolute)),
        seen=tokens["top_ids"][row][slots].astype(np.int32),
        forced=bool(tokens["forced"][row]),
        origin=Origin(tokens["origin"][row]),
    )


def _changes(recording: Recording, absolute: int) -> list[Change]:
    changed = recording.tables["changed"]
    mine = changed["row"] == absolute
    by, ids, logits = changed["by"][mine], changed["id"][mine].astype(np.int32), changed["logit"][mine]
    return [
        Change(recording.processor_names[number], ids[by == number], logits[by == number])
        for number in dict.fromkeys(by.tolist())
    ]


def _digest(recording: Recording, row: int) -> Digest:
    tokens = recording.tokens
    valid = np.isfinite(tokens["top_logits"][row])
    values = {name: tokens[name][row] for name in DIGEST_FIELDS}
    return Digest(
        top_ids=tokens["top_ids"][row][valid].astype(np.int32),
        top_logits=tokens["top_logits"][row][valid],
        **{name: value if np.ndim(value) else value.item() for name, value in values.items()},
    )
