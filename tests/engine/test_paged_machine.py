"""Any order of arrivals, steps, failing runs, cancels, closes, forks and further turns on models whose graph reads
block tables: every answer is the beginning of the one that its request gets alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import genai_lab
from tests.engine.storm import Asked
from tests.engine.test_machine import EngineMachine, run_machine
from tests.engine.test_paged_beside import alone
from tests.engine.test_paged_graph import asked
from tests.graphs_paged import paged_decoder

KINDS: dict[str, dict[str, Any]] = {
    "blocks": {"logits": "tokens"},
    "rings": {"window": 5, "ring_blocks": "ring_blocks"},
    "states": {"state": True},
}
PROMPTS = [*asked(1, 2, 5, 9, 14, shared=8), *asked(1, 3, 20, 40, seed=1)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_order_of_calls(tmp_path: Path, kind: str) -> None:
    given, known = KINDS[kind], dict[tuple[bytes, int | None], list[int]]()
    reference = genai_lab.Model(
        paged_decoder(tmp_path / "mask", sizes=None, engine={"block_size": 4, "num_blocks": 40}, window=5)
        if kind == "rings"
        else paged_decoder(tmp_path / "reference", sizes=None, engine={"block_size": 4, "num_blocks": 40}, **given)
    )

    class PagedMachine(EngineMachine):
        model = genai_lab.Model(paged_decoder(tmp_path / "model", sizes=None, **given))
        prompts = PROMPTS
        longest = 60

        def owner_of(self, place: str) -> tuple[object, str]:
            owner, name = super().owner_of(place)
            return owner, name if name == "reserve" else "run"

        def expected(self, asked: Asked) -> list[int]:
            key = (asked.prompt.tobytes(), asked.seed)
            if key not in known:
                options = Asked(asked.prompt, 12, asked.seed).options
                known[key] = alone(reference, asked.prompt, 12, asked.seed, **options)
            return known[key][: asked.count]

    run_machine(PagedMachine, 40)
