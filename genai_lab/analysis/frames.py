"""Columns of a recording -> pandas frames with text, units in the names, one row per fact.

Frames count tokens from 0, as Python does, in a column called `index` or `token`; pictures count them from 1, as people
do. The index is that in the answer as it was written, also when the recording has lost the tokens before it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from genai_lab.tracing import Recording, RunFacts
from genai_lab.tracing.texts import token_names


def token_frame(recording: Recording) -> pd.DataFrame:
    """One row per generated token.

    Columns: run; index (in the run's answer, from 0: token 1 of a picture has index 0; in a branch, from its fork on);
    position (in the whole sequence, prompt included, from 0); token (its id); text (a token that is only part of a
    character says which: "⟨part 2 of 4 of 😀⟩"); prob (the model's own, before any setting); rank (1: the most likely);
    entropy (bits); final_prob (what it was drawn with; NaN: put there by hand); candidates left by each filter;
    allowed (tokens that the guidance left; NA: there was none), masked_mass (the probability it took away), forced
    (the guidance left one token only and the model was not asked: prob and entropy are NaN);
    start_ms, end_ms (on the trace's clock); latency_ms.

    `latency_ms` is `end_ms - start_ms`: from when the model begins to read what is new until the token is chosen and
    part of the text. For the first token that is reading the whole prompt. NaN for a token that was put there by hand:
    nothing was computed for it. Text for the reader (detokenize) and the recorder's own work come afterwards and do not
    count.
    """
    columns = recording.tokens
    guided = columns["allowed"] > 0
    names = ("run", "index", "position", "token", "prob", "rank", "entropy", "final_prob")
    frame = pd.DataFrame({name: columns[name] for name in names})
    frame.insert(4, "text", pd.Series(token_names(recording), dtype="str"))
    for i, name in enumerate(("kept_top_k", "kept_top_p", "kept_min_p")):
        frame[name] = columns["kept"][:, i]
    frame["allowed"] = pd.array(np.where(guided, columns["allowed"], 0), dtype="Int64")
    frame.loc[~guided, "allowed"] = pd.NA
    frame["masked_mass"], frame["forced"] = 1.0 - columns["allowed_mass"], columns["forced"].astype(bool)
    frame["start_ms"], frame["end_ms"] = columns["start_ms"], columns["end_ms"]
    by_hand = np.isnan(columns["final_prob"])
    frame["latency_ms"] = np.where(by_hand, np.nan, columns["end_ms"] - columns["start_ms"])
    return frame


def stage_frame(recording: Recording) -> pd.DataFrame:
    """One row per measured stage: run (-1: no generator), token (index of the token it served, from 0: token 1 of a
    picture is 0 here; -1: before the first), stage, start_ms, dur_ms, n (tokens handled)."""
    columns = recording.stages
    names = pd.Categorical.from_codes(columns["stage"].astype("int16"), categories=recording.stage_names)
    return pd.DataFrame({name: names if name == "stage" else columns[name] for name in columns})


def run_frame(recording: Recording) -> pd.DataFrame:
    """One row per answer: question, tokens of prompt and answer, status, finish, parent and fork of a branch (the
    index, from 0, of the token that it replaces), and in milliseconds ttft_ms (time to first token: from the question,
    or the branch's beginning, to its first generated token; None when that token is not in the recording) and
    ms_per_token (median latency of the tokens after it)."""
    tokens = token_frame(recording)
    return pd.DataFrame([_run_row(run, tokens[tokens["run"] == run.run]) for run in recording.runs])


def _run_row(run: RunFacts, own: pd.DataFrame) -> dict[str, object]:
    first = 0 if run.forced is None else 1  # index of the first token that was generated
    begun = own[own["index"] == first]
    later = own[own["index"] > first]
    return {
        "run": run.run,
        "question": run.question,
        "status": run.status,
        "finish": run.finish,
        "prompt_tokens": int(run.prompt.size),
        "cached_tokens": run.cached_tokens,
        "new_tokens": int(own["index"].iloc[-1]) + 1 if len(own) else 0,
        "parent": run.parent,
        "fork": run.fork,
        "ttft_ms": float(begun["end_ms"].iloc[0]) - run.start_ms if len(begun) else None,
        "ms_per_token": float(later["latency_ms"].median()) if len(later) else None,
    }
