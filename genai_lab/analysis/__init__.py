"""Reads recordings: pandas frames, summaries, explanations. It knows traces, never a live generator."""

from __future__ import annotations

from genai_lab.analysis.candidates import candidate_frame
from genai_lab.analysis.engine_frames import EngineState, block_frame, state_at, step_frame, turn_frame, why
from genai_lab.analysis.frames import run_frame, stage_frame, token_frame
from genai_lab.analysis.trace import Trace

__all__ = [
    "EngineState",
    "Trace",
    "block_frame",
    "candidate_frame",
    "run_frame",
    "stage_frame",
    "state_at",
    "step_frame",
    "token_frame",
    "turn_frame",
    "why",
]
