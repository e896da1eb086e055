"""How long the import takes, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.statistics_of import spread

STATEMENTS = {
    "python alone": "pass",
    "import genai_lab": "import genai_lab",
    "import genai_lab, and its Model": "import genai_lab; genai_lab.Model",
    "import onnxruntime": "import onnxruntime",
    "import onnxruntime_genai": "import onnxruntime_genai",
}


def measure(rounds: int) -> dict[str, list[float]]:
    """{statement: milliseconds of each process}, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            times[name].append((time.perf_counter() - start) * 1e3)
    return times


def table(times: dict[str, list[float]]) -> str:
    """Markdown."""
    return "\n".join(["| statement | ms |", "|---|---|", *(f"| {name} | {spread(t)} |" for name, t in times.items())])
