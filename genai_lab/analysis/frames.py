"""Columns of a recording -> pandas frames with text, units in the names, one row per fact."""

from __future__ import annotations

import pandas as pd

from genai_lab.tracing import Recording


def token_frame(recording: Recording) -> pd.DataFrame:
    """One row per generated token: run, index, position, token, text, prob, rank, entropy (bits), final_prob, the
    counts left by each filter, start_ms, end_ms, latency_ms."""
    columns = recording.tokens
    names = ("run", "index", "position", "token", "prob", "rank", "entropy", "final_prob")
    frame = pd.DataFrame({name: columns[name] for name in names})
    frame.insert(4, "text", pd.Series([_text(recording, int(t)) for t in columns["token"]], dtype="str"))
    for i, name in enumerate(("kept_top_k", "kept_top_p", "kept_min_p")):
        frame[name] = columns["kept"][:, i]
    frame["start_ms"], frame["end_ms"] = columns["start_ms"], columns["end_ms"]
    frame["latency_ms"] = columns["end_ms"] - columns["start_ms"]
    return frame


def stage_frame(recording: Recording) -> pd.DataFrame:
    """One row per measured stage: run (-1: no generator), token (index it served, -1: before the first), stage,
    start_ms, dur_ms, n (tokens handled)."""
    columns = recording.stages
    names = pd.Categorical.from_codes(columns["stage"].astype("int16"), categories=recording.stage_names)
    return pd.DataFrame({name: names if name == "stage" else columns[name] for name in columns})


def run_frame(recording: Recording) -> pd.DataFrame:
    """One row per answer: question, tokens of prompt and answer, status, finish, parent and fork of a branch, TTFT and
    median time per token in milliseconds."""
    tokens = token_frame(recording)
    rows = []
    for run in recording.runs:
        own = tokens[tokens["run"] == run.run]
        rows.append(
            {
                "run": run.run,
                "question": run.question,
                "status": run.status,
                "finish": run.finish,
                "prompt_tokens": int(run.prompt.size),
                "cached_tokens": run.cached_tokens,
                "new_tokens": len(own),
                "parent": run.parent,
                "fork": run.fork,
                "ttft_ms": float(own["end_ms"].iloc[0]) - run.start_ms if len(own) else None,
                "ms_per_token": float(own["latency_ms"].iloc[1:].median()) if len(own) > 1 else None,
            }
        )
    return pd.DataFrame(rows)


def _text(recording: Recording, token: int) -> str:
    return recording.texts.get(token, (f"[{token}]", False))[0]
