"""What a generator says about a round of speculation, and rounds as columns.

Receives facts, returns the tables of SPECULATION_TABLES; and the way back, so that a recording from a file can go on.
It knows no recorder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]


class Proposer(IntEnum):
    """Who proposed."""

    DRAFT = 0  # a smaller model
    NGRAM = 1  # the text: what followed the last tokens earlier
    MTP = 2  # a head that reads the model's own hidden states


class Verdict(IntEnum):
    """What became of a proposed token."""

    UNSEEN = 0  # one before it was rejected
    ACCEPTED = 1
    REJECTED = 2


class Why(IntEnum):
    """Why the rest of a round was thrown away."""

    NOTHING = 0  # nothing was: it was handed out whole
    APPEND = 1  # tokens were appended
    REWIND = 2
    END = 3  # the text ended inside the round
    LOGITS = 4  # the logits were replaced
    STOP = 5  # the caller stopped the answer


class Origin(IntEnum):
    """How a token of the text came about."""

    ALONE = 0  # one step, one token
    ACCEPTED = 1  # proposed, and accepted
    CORRECTION = 2  # instead of a proposed token that was rejected
    BONUS = 3  # behind a round's proposed tokens, all of them accepted


class ProposedFact(NamedTuple):
    """One proposed token. NaN: not known, or there was none."""

    token: int
    p_draft: float = 1.0  # that it was proposed with; 1: it was certain
    verdict: Verdict = Verdict.UNSEEN
    p_target: float = nan  # that the target would draw it with, after every processor and filter; greedy: 1 or 0
    drawn: float = nan  # the number in [0, 1) that decided
    logit: float = nan  # the target's own, before every processor


@dataclass(frozen=True, slots=True)
class RoundFact:
    """One round: tokens proposed, checked in one run, and handed out or thrown away."""

    run: int
    round: int  # of this generator, from 1
    index: int  # in the run's answer, of the first token that it decided
    position: int  # of that token in the whole sequence
    by: Proposer
    source: int  # NGRAM: position in the sequence of what is proposed again; -1: none
    width: int  # tokens that were asked for
    start_ns: int
    draft_ns: int  # took the proposing
    target_ns: int  # took the target's run over the proposed tokens
    end_ns: int
    proposed: tuple[ProposedFact, ...]
    token: int  # the one that the target added: correction or bonus
    emitted: int = 0  # tokens handed out
    discarded: int = 0  # tokens decided and thrown away
    why: Why = Why.NOTHING

    @property
    def accepted(self) -> int:
        """Proposed tokens that were accepted."""
        return sum(one.verdict is Verdict.ACCEPTED for one in self.proposed)


ROUND_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "run": ("<u2", ()),
    "round": ("<u4", ()),
    "index": ("<u4", ()),
    "position": ("<u4", ()),
    "by": ("<u1", ()),  # a Proposer
    "source": ("<i4", ()),
    "width": ("<u2", ()),
    "start_ms": ("<f8", ()),
    "draft_ms": ("<f8", ()),
    "target_ms": ("<f8", ()),
    "dur_ms": ("<f8", ()),
    "proposed": ("<u2", ()),
    "accepted": ("<u2", ()),
    "token": ("<u4", ()),
    "emitted": ("<u2", ()),
    "discarded": ("<u2", ()),
    "why": ("<u1", ()),  # a Why
}
PROPOSAL_COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "row": ("<u4", ()),  # of the rounds table
    "place": ("<u2", ()),  # in the proposal, from 0
    "token": ("<u4", ()),
    "p_draft": ("<f4", ()),
    "verdict": ("<u1", ()),  # a Verdict
    "p_target": ("<f4", ()),
    "drawn": ("<f8", ()),
    "logit": ("<f4", ()),
}
SPECULATION_TABLES = {"rounds": ROUND_COLUMNS, "proposals": PROPOSAL_COLUMNS}
LIMITS = {"rounds.by": len(Proposer), "rounds.why": len(Why), "proposals.verdict": len(Verdict)}
"""Columns that count in a fixed list, and how long it is."""


def speculation_columns(rounds: Sequence[RoundFact], origin_ns: int) -> dict[str, Columns]:
    """The tables of SPECULATION_TABLES. `origin_ns`: where the trace's clock begins."""
    return {
        "rounds": _columns([_round_row(fact, origin_ns) for fact in rounds], ROUND_COLUMNS),
        "proposals": _columns(
            [
                (row, place, one.token, one.p_draft, one.verdict, one.p_target, one.drawn, one.logit)
                for row, fact in enumerate(rounds)
                for place, one in enumerate(fact.proposed)
            ],
            PROPOSAL_COLUMNS,
        ),
    }


def round_facts(tables: Mapping[str, Columns], origin_ns: int) -> Iterator[RoundFact]:
    """Every round of a recording, on a clock that begins at `origin_ns`."""
    rounds, proposals = tables["rounds"], tables["proposals"]
    for row in range(len(rounds["run"])):
        one = {name: column[row].item() for name, column in rounds.items()}
        start = origin_ns + round(one["start_ms"] * 1e6)
        mine = np.flatnonzero(proposals["row"] == row)
        yield RoundFact(
            run=one["run"],
            round=one["round"],
            index=one["index"],
            position=one["position"],
            by=Proposer(one["by"]),
            source=one["source"],
            width=one["width"],
            start_ns=start,
            draft_ns=round(one["draft_ms"] * 1e6),
            target_ns=round(one["target_ms"] * 1e6),
            end_ns=start + round(one["dur_ms"] * 1e6),
            proposed=tuple(_proposed({n: c[i].item() for n, c in proposals.items()}) for i in mine),
            token=one["token"],
            emitted=one["emitted"],
            discarded=one["discarded"],
            why=Why(one["why"]),
        )


def _proposed(row: dict[str, Any]) -> ProposedFact:
    values = {name: row[name] for name in ("token", "p_draft", "p_target", "drawn", "logit")}
    return ProposedFact(verdict=Verdict(row["verdict"]), **values)


def _round_row(fact: RoundFact, origin_ns: int) -> tuple[Any, ...]:
    return (
        fact.run,
        fact.round,
        fact.index,
        fact.position,
        fact.by,
        fact.source,
        fact.width,
        (fact.start_ns - origin_ns) / 1e6,
        fact.draft_ns / 1e6,
        fact.target_ns / 1e6,
        (fact.end_ns - fact.start_ns) / 1e6,
        len(fact.proposed),
        fact.accepted,
        fact.token,
        fact.emitted,
        fact.discarded,
        fact.why,
    )


def _columns(rows: list[tuple[Any, ...]], layout: dict[str, tuple[str, tuple[int, ...]]]) -> Columns:
    parts = list(zip(*rows, strict=True)) if rows else [()] * len(layout)
    return {name: np.array(part, dtype) for part, (name, (dtype, _)) in zip(parts, layout.items(), strict=True)}
