"""Fresh processes, one measurement each, in shuffled order.

Receives the module to run and its arguments. Returns the numbers that it prints. What is measured is the workers'.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Collection

Samples = dict[str, dict[str, list[float]]]


def run_fresh(module: str, *arguments: str) -> dict[str, float]:
    """What one fresh process prints as JSON on its last line."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def in_rounds(
    name: str,
    tasks: Collection[str],
    arms: Collection[str],
    seconds_of: Callable[[str, str], float],
    processes: int,
    seed: int = 0,
) -> Samples:
    """{task: {arm: seconds of each process}}; every round runs each task with each arm once, in a new order."""
    samples: Samples = {task: {arm: [] for arm in arms} for task in tasks}
    order = random.Random(seed)
    for round_number in range(processes):
        runs = [(task, arm) for task in tasks for arm in arms]
        order.shuffle(runs)
        for task, arm in runs:
            samples[task][arm].append(seconds_of(task, arm))
        print(f"  {name} round {round_number + 1} of {processes}", file=sys.stderr, flush=True)
    return samples
