"""A recording as Chrome's trace event JSON: opens in ui.perfetto.dev and chrome://tracing. Happens after the run."""

from __future__ import annotations

import json
from typing import Any

from genai_lab.tracing.recording import Recording
from genai_lab.tracing.speculation_facts import Proposer
from genai_lab.tracing.texts import token_names


def to_chrome_json(recording: Recording) -> str:
    """One process, one track per run; stages as complete events ("X"), tokens with what was chosen as arguments.

    Times are microseconds, as the format asks. Source: Trace Event Format, "JSON Object Format".
    """
    events = [_track_name(run.run, run.question or f"run {run.run}") for run in recording.runs]
    events += _stage_events(recording)
    events += _token_events(recording)
    events += _round_events(recording)
    other = {"model": str(recording.model.get("name", "")), "recorded_at": str(recording.origin.get("recorded_at", ""))}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other})


def _track_name(run: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": 1, "tid": run + 1, "args": {"name": name}}


def _stage_events(recording: Recording) -> list[dict[str, Any]]:
    stages = recording.stages
    return [
        {
            "ph": "X",
            "cat": "stage",
            "name": recording.stage_names[int(stages["stage"][i])],
            "pid": 1,
            "tid": int(stages["run"][i]) + 1,
            "ts": float(stages["start_ms"][i]) * 1e3,
            "dur": float(stages["dur_ms"][i]) * 1e3,
            "args": {"gen_ai.token.index": int(stages["token"][i]), "n": int(stages["n"][i])},
        }
        for i in range(len(stages["run"]))
    ]


def _token_events(recording: Recording) -> list[dict[str, Any]]:
    tokens, names = recording.tokens, token_names(recording)
    return [
        {
            "ph": "X",
            "cat": "token",
            "name": names[i],
            "pid": 1,
            "tid": int(tokens["run"][i]) + 1,
            "ts": float(tokens["start_ms"][i]) * 1e3,
            "dur": float(tokens["end_ms"][i] - tokens["start_ms"][i]) * 1e3,
            "args": {
                "token": int(tokens["token"][i]),
                "probability": float(tokens["prob"][i]),
                "rank": int(tokens["rank"][i]),
                "entropy_bits": float(tokens["entropy"][i]),
            },
        }
        for i in range(len(tokens["run"]))
    ]


def _round_events(recording: Recording) -> list[dict[str, Any]]:
    """Rounds of speculation, from the proposing until everything was decided."""
    rounds = recording.tables["rounds"]
    return [
        {
            "ph": "X",
            "cat": "speculation",
            "name": f"round {rounds['round'][i]}: {rounds['accepted'][i]} of {rounds['proposed'][i]} accepted",
            "pid": 1,
            "tid": int(rounds["run"][i]) + 1,
            "ts": float(rounds["start_ms"][i]) * 1e3,
            "dur": float(rounds["dur_ms"][i]) * 1e3,
            "args": {
                "gen_ai.token.index": int(rounds["index"][i]),
                "by": Proposer(int(rounds["by"][i])).name.lower(),
                "draft_ms": float(rounds["draft_ms"][i]),
                "target_ms": float(rounds["target_ms"][i]),
                "emitted": int(rounds["emitted"][i]),
                "discarded": int(rounds["discarded"][i]),
            },
        }
        for i in range(len(rounds["run"]))
    ]
