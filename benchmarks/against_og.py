"""Decode, prefill, load and memory against onnxruntime-genai: fresh processes in shuffled order, with an A/A arm."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import Samples, run_fresh
from benchmarks.statistics_of import ratio_of_medians, spread

ARMS = {"genai_lab": "genai_lab", "genai_lab again": "genai_lab", "onnxruntime-genai": "onnxruntime_genai"}
LABELS = {
    "decode_128_ms": "decode a token, context 128 (ms)",
    "decode_1024_ms": "decode a token, context 1024 (ms)",
    "prefill_512_ms": "prefill of 512 tokens (ms)",
    "load_s": "load model and make a generator (s)",
    "peak_mib": "peak memory of the process (MiB)",
}


def folder_with_threads(folder: Path, threads: int, target: Path) -> Path:
    """The same files under a config that sets the thread count, so that both libraries use the same."""
    target.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.name != "genai_config.json":
            link = target / file.name
            link.unlink(missing_ok=True)
            try:
                link.hardlink_to(file)
            except OSError:  # another file system
                shutil.copy2(file, link)
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    (target / "genai_config.json").write_text(json.dumps(config))
    return target


def measure(folder: Path, processes: int, clock: str = "wall", seed: int = 0) -> Samples:
    """{arm: {quantity: one value per process}}; every round runs each arm once, in a new order."""
    samples: Samples = {arm: {} for arm in ARMS}
    order = random.Random(seed)
    for round_number in range(processes):
        arms = list(ARMS)
        order.shuffle(arms)
        for arm in arms:
            for name, value in run_fresh("benchmarks.worker", ARMS[arm], str(folder), "--clock", clock).items():
                samples[arm].setdefault(name, []).append(value)
        print(f"  round {round_number + 1} of {processes}", file=sys.stderr, flush=True)
    return samples


def table(samples: Samples, quantities: Sequence[str] = tuple(LABELS)) -> str:
    """Markdown; a speed-up above 1 means genai_lab is faster (or smaller)."""
    ours, again, og = (samples[arm] for arm in ARMS)
    lines = [
        "| quantity | genai_lab | onnxruntime-genai | og / ours, 95 % interval | ours / ours again (A/A) |",
        "|---|---|---|---|---|",
    ]
    for name, label in LABELS.items():
        if name not in quantities:
            continue
        both = ours[name] + again[name]
        lines.append(
            f"| {label} | {spread(both)} | {spread(og[name])} | {ratio_of_medians(og[name], both)} | "
            f"{ratio_of_medians(ours[name], again[name])} |"
        )
    return "\n".join(lines)
