"""Serving eight requests: our Engine, our Generators in turn, and onnxruntime-genai's both; fresh processes, shuffled.

The folder keeps the logits of every position: onnxruntime-genai's engine cannot run a graph that has only the last.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from benchmarks.engine_worker import LOADS
from benchmarks.statistics_of import ratio_of_medians, spread
from genai_lab.builder import build_model
from genai_lab.workbench.default_model import checkpoint_file

ARMS = {
    "genai_lab Engine": ("genai_lab", "engine"),
    "genai_lab Generators in turn": ("genai_lab", "sequential"),
    "onnxruntime-genai Engine": ("onnxruntime_genai", "engine"),
    "onnxruntime-genai Generators in turn": ("onnxruntime_genai", "sequential"),
}
Samples = dict[str, dict[str, list[float]]]


def folder_with_all_logits(target: Path) -> Path:
    """The default model with the logits of every position."""
    return build_model(checkpoint_file("smollm2"), target, "int4", extra_options={"prune_lm_head": False})


def measure(folder: Path, processes: int, seed: int = 0) -> Samples:
    """{load: {arm: seconds of each process}}."""
    samples: Samples = {load: {arm: [] for arm in ARMS} for load in LOADS}
    order = random.Random(seed)
    for round_number in range(processes):
        runs = [(load, arm) for load in LOADS for arm in ARMS]
        order.shuffle(runs)
        for load, arm in runs:
            samples[load][arm].append(run_worker(*ARMS[arm], load, folder))
        print(f"  engine round {round_number + 1} of {processes}", file=sys.stderr, flush=True)
    return samples


def run_worker(module: str, way: str, load: str, folder: Path) -> float:
    """Seconds of one fresh process."""
    command = [sys.executable, "-m", "benchmarks.engine_worker", module, way, load, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])


def table(samples: Samples) -> str:
    """Markdown: seconds, and how many times as fast our Engine is."""
    lines = ["| load | way | seconds | our Engine is faster by, 95 % interval |", "|---|---|---|---|"]
    for load, arms in samples.items():
        ours = arms["genai_lab Engine"]
        for arm, seconds in arms.items():
            faster = "" if seconds is ours else str(ratio_of_medians(seconds, ours))
            lines.append(f"| {load} | {arm} | {spread(seconds)} | {faster} |")
    return "\n".join(lines)
