"""Serving eight requests: our Engine, our Generators in turn, and onnxruntime-genai's Engine, Generators in turn and
Generator for a batch; fresh processes, shuffled.

The folder keeps the logits of every position: onnxruntime-genai's engine cannot run a graph that has only the last.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.engine_worker import LOADS
from benchmarks.processes import Samples, in_rounds, run_fresh
from benchmarks.statistics_of import ratio_of_medians, spread
from genai_lab.builder import build_model
from genai_lab.workbench.default_model import checkpoint_file

ARMS = {
    "genai_lab Engine": ("genai_lab", "engine"),
    "genai_lab Generators in turn": ("genai_lab", "sequential"),
    "onnxruntime-genai Engine": ("onnxruntime_genai", "engine"),
    "onnxruntime-genai Generators in turn": ("onnxruntime_genai", "sequential"),
    "onnxruntime-genai batch Generator": ("onnxruntime_genai", "batch"),
}


def folder_with_all_logits(target: Path) -> Path:
    """The default model with the logits of every position."""
    return build_model(checkpoint_file("smollm2"), target, "int4", extra_options={"prune_lm_head": False})


def measure(folder: Path, processes: int, seed: int = 0) -> Samples:
    """{load: {arm: seconds of each process}}."""

    def seconds_of(load: str, arm: str) -> float:
        return run_fresh("benchmarks.engine_worker", *ARMS[arm], load, str(folder))["seconds"]

    return in_rounds("engine", LOADS, ARMS, seconds_of, processes, seed)


def table(samples: Samples) -> str:
    """Markdown: seconds, and how many times as fast our Engine is."""
    lines = ["| load | way | seconds | our Engine is faster by, 95 % interval |", "|---|---|---|---|"]
    for load, arms in samples.items():
        ours = arms["genai_lab Engine"]
        for arm, seconds in arms.items():
            faster = "" if seconds is ours else str(ratio_of_medians(seconds, ours))
            lines.append(f"| {load} | {arm} | {spread(seconds)} | {faster} |")
    return "\n".join(lines)
