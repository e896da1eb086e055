"""Two hundred times from loading to dropping: the process does not grow."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil
import pytest

import genai_lab as og
from tests.lifecycle.scenes import SCENES, Places

WARM, CYCLES = 3 * len(SCENES), 200
ALLOWED = 6 * 2**20  # bytes over all cycles; a single leaked engine or session in each would be more than 20 MiB


@pytest.mark.slow
def test_two_hundred_cycles_do_not_grow_memory(tmp_path: Path) -> None:
    places = Places.make(tmp_path)
    process = psutil.Process()
    gc.collect()
    alive = len(og.live_objects())
    for number in range(WARM):
        SCENES[number % len(SCENES)](places)
    gc.collect()
    before = process.memory_info().rss
    for number in range(CYCLES):
        SCENES[number % len(SCENES)](places)
        assert len(og.live_objects()) <= alive, SCENES[number % len(SCENES)].__name__
    gc.collect()
    grown = process.memory_info().rss - before
    assert grown < ALLOWED, f"grew by {grown / 2**20:.1f} MiB in {CYCLES} cycles"
