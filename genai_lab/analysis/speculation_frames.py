"""Recorded rounds of speculation -> pandas frames: what was proposed, what became of it, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from genai_lab.tracing import Recording
from genai_lab.tracing.speculation_facts import Proposer, Verdict, Why
from genai_lab.tracing.texts import names_of

PROPOSERS = {Proposer.DRAFT: "draft", Proposer.NGRAM: "ngram", Proposer.MTP: "mtp"}
REASONS = {
    Why.NOTHING: "",
    Why.APPEND: "tokens were appended",
    Why.REWIND: "the text was rewound",
    Why.END: "the text ended",
    Why.LOGITS: "the logits were replaced",
    Why.STOP: "the answer was stopped",
}
VERDICTS = {Verdict.UNSEEN: "not looked at", Verdict.ACCEPTED: "accepted", Verdict.REJECTED: "rejected"}


def round_frame(recording: Recording) -> pd.DataFrame:
    """One row per round of speculation: somebody proposes tokens, the target looks at all of them in one run.

    Columns: run; round (counted by the generator, from 1); index (in the run's answer, from 0, of the first token that
    the round decided); position (of that token in the whole sequence); by ("draft": a smaller model, "ngram": the text
    itself, "mtp": a head on the model's hidden states); source (ngram: the position in the sequence of what is proposed
    once more; NA otherwise); width (tokens asked for), proposed, accepted; token and text (the one that the target
    added), kind ("correction" of a rejected token, or "bonus" behind accepted ones); emitted and discarded (tokens
    handed out, and decided but thrown away), why (they were); start_ms on the trace's clock; draft_ms (proposing),
    target_ms (the target's run), dur_ms (until everything was decided).
    """
    columns = recording.tables["rounds"]
    frame = pd.DataFrame({name: columns[name] for name in columns})
    frame["by"] = _named(columns["by"], PROPOSERS)
    frame["source"] = pd.array(np.maximum(columns["source"], 0), dtype="Int64")
    frame.loc[columns["source"] < 0, "source"] = pd.NA
    frame["why"] = _named(columns["why"], REASONS)
    frame.insert(frame.columns.get_loc("token") + 1, "text", _texts(recording, columns["token"]))
    kind = np.where(columns["accepted"] == columns["proposed"], "bonus", "correction")
    frame.insert(frame.columns.get_loc("text") + 1, "kind", pd.Series(kind, dtype="str"))
    last = ["start_ms", "draft_ms", "target_ms", "dur_ms"]
    return frame[[name for name in frame.columns if name not in last] + last]


def proposal_frame(recording: Recording) -> pd.DataFrame:
    """One row per proposed token.

    Columns: run, round (see `rounds()`); place (in the proposal, from 0); index (where it would stand in the run's
    answer, from 0); token, text; p_draft (that it was proposed with; 1: it was certain, as under greedy or an n-gram);
    prob (the target's own for it, before any setting; NaN where it is not known); p_target (that the target would draw
    it with, after every processor and filter; greedy: 1 or 0); drawn (the number in [0, 1) that decided; NaN: nothing
    was drawn); verdict ("accepted", "rejected", "not looked at": one before it was rejected); in_text (accepted and
    handed out: a round can be interrupted).

    With a draft that draws, a token is accepted when drawn * p_draft < p_target; otherwise when it is the very token
    that the target chose.
    """
    columns, rounds = recording.tables["proposals"], recording.tables["rounds"]
    row, place = columns["row"], columns["place"].astype(np.int64)
    index = rounds["index"][row] + place
    accepted = columns["verdict"] == Verdict.ACCEPTED
    return pd.DataFrame(
        {
            "run": rounds["run"][row],
            "round": rounds["round"][row],
            "place": place,
            "index": index,
            "token": columns["token"],
            "text": _texts(recording, columns["token"]),
            "p_draft": columns["p_draft"],
            "prob": _own_probability(recording, rounds["run"][row], index, columns["logit"]),
            "p_target": columns["p_target"],
            "drawn": columns["drawn"],
            "verdict": _named(columns["verdict"], VERDICTS),
            "in_text": accepted & (place < rounds["emitted"][row]),
        }
    )


def _own_probability(
    recording: Recording, runs: NDArray[np.uint16], index: NDArray[np.int64], logit: NDArray[np.float32]
) -> NDArray[np.float32]:
    """[n] of each proposed token, from its logit and the distribution recorded with the token that was handed out."""
    tokens = recording.tokens
    rows = {place: row for row, place in enumerate(zip(tokens["run"].tolist(), tokens["index"].tolist(), strict=True))}
    found = np.array([rows.get(place, -1) for place in zip(runs.tolist(), index.tolist(), strict=True)], np.int64)
    if not tokens["run"].size:
        return np.full(found.size, np.nan, np.float32)
    share = np.exp(logit - tokens["top_logits"][found, 0] - tokens["log_z"][found])
    return np.where(found < 0, np.nan, share).astype(np.float32)


def _texts(recording: Recording, tokens: NDArray[np.uint32]) -> pd.Series[str]:
    names = names_of(recording)
    return pd.Series([names.alone(int(token)) for token in tokens], dtype="str")


def _named(numbers: NDArray[np.uint8], words: Mapping[Any, str]) -> pd.Series[str]:
    return pd.Series([words[int(number)] for number in numbers], dtype="str")
