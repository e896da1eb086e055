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
from tests.parity.test_og_engine import drain
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


# ---- the table of differences -----------------------------------------------------------------------------------

README = Path(__file__).parents[2] / "README.md"
OTHERS_IN_README = (  # what no program here does
    "keeps more than the nucleus",
    "no min_p",
    "logits processors",
    "telemetry by default",
    "rewinding a pipeline",
    "beams leave a recurrent state behind",
)


def _program(world: str, *calls: Call, **search: Any) -> Program:
    return Program(world, {"max_length": 40} | search, calls=calls)


G, L = Call("generate"), Call("logits")
PROMPT, ROWS = Call("append", ([4, 5, 6, 3],)), Call("append", ([[14, 15, 16], [14, 0, 0]],))
SHOWN: dict[str, Program] = {
    "a step after the end": _program("tiny", PROMPT, G, Call("generate_anyway"), max_length=5),
    "top_k above the vocabulary": _program("table", do_sample=True, random_seed=1),
    "ids outside the vocabulary": _program("tiny", Call("append", ([288],))),
    "sampling without a filter": _program("tiny", PROMPT, G, do_sample=True, top_k=0, random_seed=1, temperature=9.0),
    "the last token after a rewind": _program("tiny", PROMPT, Call("rewind", (2,))),
    "generating right after a rewind": _program("tiny", PROMPT, Call("rewind", (2,)), G),
    "appending after a generated token": _program("plain apart", PROMPT, G, PROMPT),
    "logits of a generation that is done": _program("tiny", PROMPT, G, L, max_length=5),
    "several rows for one sequence": _program("tiny", Call("append", ([[5, 6], [7, 8]],))),
    "logits before any token": _program("tiny", L),
    "outputs before any run": _program("tiny", Call("output", ("present.1.value",))),
    "options without a meaning": _program("tiny", repetition_penalty=-1.0),
    "padding counts": _program(
        "plain apart",
        ROWS,
        G,
        G,
        G,
        batch_size=2,
        repetition_penalty=0.2,
        do_sample=True,
        top_k=40,
        random_seed=1,
        temperature=9.0,
    ),
}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name in SHOWN], ids=lambda rule: rule.name)
def test_a_listed_difference_is_there(sides: Sides, rule: Rule) -> None:
    """Without the rule the two differ, or soon will; with it nothing else is found."""
    program, tally = SHOWN[rule.name], Tally()
    pair = sides(program.world)
    assert compare(program, *pair, RULES, tally) is None
    assert tally.rules.get(rule.name), "the rule explained nothing"
    if not rule.hidden:
        others = [one for one in RULES if one is not rule]
        assert compare(program, *pair, others, Tally()) is not None


def test_the_readme_says_what_the_rules_say() -> None:
    told = README.read_text(encoding="utf-8").replace("`", "")
    rows = re.findall(r"^\| (?!there|---)(.+?) \|.*\|$", told[told.index("| there | here |") :].split("\n\n")[0], re.M)
    words = [rule.readme for rule in RULES if rule.readme]
    assert len(rows) > 5 and all(any(word in row for row in rows) for word in words)
    assert all(any(word in row for word in (*words, *OTHERS_IN_README)) for row in rows)


def test_every_rule_has_a_name_of_its_own_and_a_reason() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names) and set(SHOWN) <= set(names)
    assert all(rule.reason.startswith(("there", "both")) for rule in RULES)


def test_what_is_not_asked_is_not_asked() -> None:
    assert why_not_asked(_program("tiny", PROMPT, PROMPT, num_beams=2)) in NOT_ASKED
    assert why_not_asked(_program("tiny", PROMPT, G)) is None


def test_a_difference_that_is_not_listed_is_found_and_made_short(sides: Sides) -> None:
    """The whole machine, with one rule taken away."""
    pair = sides("tiny")
    rules = [rule for rule in RULES if rule.name != "several rows for one sequence"]
    odd = Call("append", ([[5, 6], [7, 8]],))
    program = _program("tiny", PROMPT, G, L, G, G, L, odd, G, top_k=5, min_length=3)

    def fails(smaller: Program) -> bool:
        return compare(smaller, *pair, rules, Tally()) is not None

    assert not compare(program, *pair, RULES, Tally()) and fails(program)
    short = shortest(program, fails)
    assert short.calls == (odd,) and not short.search


# ---- the Engine -------------------------------------------------------------------------------------------------


def engine_answers(library: Any, engine: Any, requests: list[tuple[Any, int]]) -> list[list[int]]:
    """Greedy answers to (prompt, tokens at most) of an engine that has them all at once."""
    made = []
    for prompt, most in requests:
        made.append(engine.create_request())
        options = library.TurnOptions(made[-1])
        options.set_max_generated_tokens(most)
        made[-1].begin_turn(prompt, options)
    events = drain(engine, made, capacity=5)
    return [[event[2] for event in seen if event[2] is not None] for seen in events]


def random_requests(seed: int, tokens: Any, count: int) -> list[tuple[Any, int]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        size = int(rng.integers(2, 25))
        start = int(rng.integers(0, len(tokens) - size))
        found.append((tokens[start : start + size], int(rng.integers(1, 12))))
    return found


@pytest.mark.parametrize("seed", range(4 * TIMES))
def test_the_engines_greedy_tokens_on_a_tiny_model(sides: Sides, seed: int) -> None:
    theirs, ours = sides("tiny every position")
    requests = random_requests(seed, np.random.default_rng(seed).integers(3, 250, 60).astype(np.int32), 9)
    engine = genai_lab.Engine(ours.model, max_session_tokens=256)
    assert engine_answers(genai_lab, engine, requests) == engine_answers(og, og.Engine(theirs.model), requests)


def test_the_engines_greedy_tokens_on_the_default_model(default_sides: tuple[Side, Side]) -> None:
    """Against generators there: the engine there cannot run a graph that gives the last position's logits only."""
    theirs, ours = default_sides
    text = "The sun had set behind the hills, and the children went home to their mother, who told them a story. " * 2
    requests = random_requests(1, ours.encode(text), 6)
    found = []
    for prompt, most in requests:
        params = og.GeneratorParams(theirs.model)
        params.set_search_options(max_length=len(prompt) + most)
        made = og.Generator(theirs.model, params)
        made.append_tokens(prompt)
        while not made.is_done():
            made.generate_next_token()
        found.append(made.get_sequence(0)[len(prompt) :].tolist())
    engine = genai_lab.Engine(ours.model, exact=True, max_session_tokens=64)
    assert engine_answers(genai_lab, engine, requests) == found
