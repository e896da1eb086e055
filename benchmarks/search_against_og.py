"""Batches, beams, guidance and a processor of one's own against onnxruntime-genai: fresh processes, shuffled.

The folder keeps the logits of every position: onnxruntime-genai needs them for batches.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.processes import Samples, in_rounds, run_fresh
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


def measure(folder: Path, processes: int, seed: int = 0) -> Samples:
    """{way: {library: seconds of each process}}."""

    def seconds_of(way: str, name: str) -> float:
        return run_fresh("benchmarks.search_worker", MODULES[name], way, str(folder))["seconds"]

    return in_rounds("search", WAYS, MODULES, seconds_of, processes, seed)


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
