"""The same random programs, run by onnxruntime-genai and by us: no difference that is not listed with a reason.

`GENAI_LAB_PROGRAMS=50 pytest tests/parity/test_differential.py` makes fifty times as many programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from tests.graphs import plain_decoder
from tests.parity.differences import RULES
from tests.parity.programs import (
    NOT_ASKED,
    WORLDS,
    Call,
    Program,
    Rule,
    Side,
    Tally,
    compare,
    random_program,
    shortest,
    why_not_asked,
)
from tests.tables import random_table, table_model, table_pair
from tests.tiny import tiny_model_folder

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og

TIMES = int(os.environ.get("GENAI_LAB_PROGRAMS", "1"))
PER_BLOCK, BLOCKS = 20, 2 * TIMES


def _draft_of(table: Any) -> Any:
    return table + np.random.default_rng(5).standard_normal(table.shape).astype(np.float32)


MAKERS: dict[str, Callable[[Path], Path]] = {
    "tiny": tiny_model_folder,
    "tiny every position": lambda path: tiny_model_folder(path, extra_options={"prune_lm_head": False}),
    "tiny int8": lambda path: tiny_model_folder(path, "int8"),
    "tiny int4": lambda path: tiny_model_folder(path, "int4"),
    "plain apart": plain_decoder,
    "plain combined": lambda path: plain_decoder(path, combined=True),
    "plain without places": lambda path: plain_decoder(path, positions=False),
    "plain float16": lambda path: plain_decoder(path, float16_logits=True),
    "table": lambda path: table_model(path, random_table(5)),
    "table that ends": lambda path: table_model(path, random_table(5, ends=True)),
    "table with a draft": lambda path: table_pair(path, random_table(5), _draft_of(random_table(5))),
}
SMALL = [name for name in WORLDS if name in MAKERS]
Sides = Callable[[str], tuple[Side, Side]]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    """Both libraries with the model of a world."""
    made: dict[str, tuple[Side, Side]] = {}

    def of(world: str) -> tuple[Side, Side]:
        if world not in made:
            made[world] = both(MAKERS[world](tmp_path_factory.mktemp("world") / "model"))
        return made[world]

    return of


def both(folder: Path) -> tuple[Side, Side]:
    return Side(og, og.Model(str(folder))), Side(genai_lab, genai_lab.Model(folder))


def check(program: Program, pair: tuple[Side, Side], tally: Tally) -> None:
    """Fails with the shortest program that shows the difference."""
    found = compare(program, *pair, RULES, tally)
    if found is None:
        return

    def fails(smaller: Program) -> bool:
        other = compare(smaller, *pair, RULES, Tally())
        return other is not None and other.what == found.what

    pytest.fail(str(compare(shortest(program, fails), *pair, RULES, Tally()) or found))


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("world", SMALL)
def test_random_programs_find_no_other_difference(sides: Sides, world: str, block: int) -> None:
    tally = Tally()
    for number in range(PER_BLOCK):
        program = random_program(np.random.default_rng([block, number, *world.encode()]), WORLDS[world])
        if why_not_asked(program) is None:
            check(program, sides(world), tally)
    assert tally.calls > 3 * PER_BLOCK


@pytest.mark.parametrize("number", range(12 * TIMES))
def test_random_programs_on_the_default_model_find_no_other_difference(
    default_sides: tuple[Side, Side], number: int
) -> None:
    program = random_program(np.random.default_rng([number, 1]), WORLDS["smollm2"])
    if why_not_asked(program) is None:
        check(program, default_sides, Tally())


@pytest.fixture(scope="module")
def default_sides(model_folder: Path) -> tuple[Side, Side]:
    return both(model_folder)
