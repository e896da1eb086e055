"""Batches, beams, guidance and a processor of one's own against onnxruntime-genai: fresh processes, shuffled.

The folder keeps the logits of every position: onnxruntime-genai needs them for batches.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from benchmarks.search_worker import BEAMS, NEW, PROMPT, ROWS, WAYS
from benchmarks.statistics_of import ratio_of_medians, spread

MODULES = {"genai_lab": "genai_lab", "onnxruntime-genai": "onnxruntime_genai"}
LABELS = {
    "batch": f"a batch of {ROWS}",
    "in turn": f"the same {ROWS} prompts, one after another",
    "beams": f"beam search, {BEAMS} beams",
    "guided": "greedy under a regular expression",
    "own processor": "a processor of one's own (there: get_logits, set_logits)",
}
Samples = dict[str, dict[str, list[float]]]


def measure(folder: Path, processes: int, seed: int = 0) -> Samples:
    """{way: {library: seconds of each process}}."""
    samples: Samples = {way: {name: [] for name in MODULES} for way in WAYS}
    order = random.Random(seed)
    for round_number in range(processes):
        runs = [(way, name) for way in WAYS for name in MODULES]
        order.shuffle(runs)
        for way, name in runs:
            samples[way][name].append(run_worker(MODULES[name], way, folder))
        print(f"  search round {round_number + 1} of {processes}", file=sys.stderr, flush=True)
    return samples


def run_worker(module: str, way: str, folder: Path) -> float:
    """Seconds of one fresh process."""
    command = [sys.executable, "-m", "benchmarks.search_worker", module, way, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])


def table(samples: Samples) -> str:
    """Markdown: seconds of both, and ratios."""
    lines = [
        f"Prompts of {PROMPT} tokens, {NEW} new tokens each.",
        "",
        "| what | genai_lab (s) | onnxruntime-genai (s) | there / here, 95 % interval |",
        "|---|---|---|---|",
    ]
    for way, libraries in samples.items():
        ours, there = libraries["genai_lab"], libraries["onnxruntime-genai"]
        lines.append(f"| {LABELS[way]} | {spread(ours)} | {spread(there)} | {ratio_of_medians(there, ours)} |")
    batch, in_turn = samples["batch"]["genai_lab"], samples["in turn"]["genai_lab"]
    return "\n".join(
        [*lines, "", f"Our batch is {ratio_of_medians(in_turn, batch)} times as fast as our eight in turn."]
    )
