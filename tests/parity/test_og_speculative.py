"""Speculation: the same table models, run by onnxruntime-genai and by us, give the same tokens and the same counters.

Known differences, by choice: ours reads the draft's tokens in fewer runs (draft_forward_passes), and rebuilds nothing
when tokens are appended in mid-round (target_reconciliation_forward_passes, ngram_history_*). Under a grammar a round
ends as without one, with a correction or a bonus, and proposes nothing behind an end: other counters, the same text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.workbench.default_model import model_folder
from tests.tables import follow, random_table, table_model, table_pair

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og
OURS = {"draft_forward_passes"}


def counters(stats: dict[str, Any]) -> dict[str, int]:
    return {
        name: value
        for name, value in stats.items()
        if isinstance(value, int | bool) and not name.endswith("_ms") and name not in OURS
    }


def told(library: Any, folder: Path, prompt: list[int], search: dict[str, Any], speculative: dict[str, Any]) -> Any:
    """The text and the counters after every token."""
    model = library.Model(str(folder))
    params = library.GeneratorParams(model)
    params.set_search_options(**search)
    params.set_speculative_options(**speculative)
    made = library.Generator(model, params)
    made.append_tokens(np.array(prompt, np.int32))
    steps = []
    while not made.is_done():
        made.generate_next_token()
        steps.append((made.get_sequence(0).tolist(), counters(made.get_speculative_stats())))
    return steps


@pytest.mark.parametrize("seed", range(40))
def test_ngrams_agree_step_by_step(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vocabulary = int(rng.integers(5, 10))
    folder = table_model(tmp_path / "model", random_table(seed, vocabulary, ends=bool(rng.random() < 0.5)))
    prompt = rng.integers(1, vocabulary - 1, int(rng.integers(2, 12))).tolist()
    speculative = {
        "ngram_size": int(rng.choice([2, 3, 4])),
        "max_draft_tokens": int(rng.integers(1, 7)),
        "ngram_chained_lookup": bool(rng.random() < 0.5),
        "cooldown": bool(rng.random() < 0.5),
    }
    search: dict[str, Any] = {"max_length": len(prompt) + int(rng.integers(1, 60))}
    if rng.random() < 0.5:
        search |= {"do_sample": True, "random_seed": seed, "top_k": int(rng.choice([2, 3, 5]))}
        search["temperature"] = float(rng.choice([0.5, 1.0, 3.0]))
    if rng.random() < 0.3:
        search["repetition_penalty"] = 1.3
    assert told(genai_lab, folder, prompt, search, speculative) == told(og, folder, prompt, search, speculative)


@pytest.mark.parametrize("width", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_a_draft_agrees_under_greedy(tmp_path: Path, seed: int, width: int) -> None:
    target = random_table(seed)
    draft = target + np.random.default_rng(seed).standard_normal(target.shape).astype(np.float32)
    folder = table_pair(tmp_path / "pair", target, draft)
    search, speculative = {"max_length": 40}, {"max_draft_tokens": width}
    assert told(genai_lab, folder, [1, 2, 3], search, speculative) == told(og, folder, [1, 2, 3], search, speculative)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("floor", [2, 3])
def test_a_width_that_finds_nothing_stays_at_its_floor_and_pauses_alike(tmp_path: Path, seed: int, floor: int) -> None:
    folder = table_model(tmp_path / "model", random_table(seed, 12))
    search = {
        "max_length": 80,
        "do_sample": True,
        "top_k": 11,
        "random_seed": seed,
        "temperature": 30.0,
    }  # hardly a hit
    speculative = {"ngram_size": 2, "min_adaptive_k": floor, "cooldown": True, "ngram_chained_lookup": True}
    ours, theirs = (told(library, folder, [1, 2, 3, 1, 2], search, speculative) for library in (genai_lab, og))
    assert ours == theirs
    last = ours[-1][1]
    assert last["cooldown_steps"] > 0
    assert (last["adaptive_k_probes"], last["effective_k"]) == (0, floor)  # a probe would be judged by the clock


@pytest.mark.parametrize("floor", [1, 2, 4])
def test_a_width_is_not_tried_before_two_rounds_were_seen(tmp_path: Path, floor: int) -> None:
    folder = table_model(tmp_path / "model", follow({1: 2, 2: 1}))
    speculative = {"ngram_size": 3, "min_adaptive_k": floor, "ngram_chained_lookup": True}
    two_rounds = 2 * (floor + 1)  # what comes behind them depends on how long they took
    ours, theirs = (
        told(library, folder, [1, 2, 1, 2], {"max_length": 40}, speculative)[:two_rounds] for library in (genai_lab, og)
    )
    assert ours == theirs
    assert [step[1]["adaptive_k_probes"] for step in ours[floor:]] == [0] * (floor + 1) + [1]


@pytest.mark.parametrize("seed", range(6))
def test_pauses_agree_when_proposals_are_shorter_than_the_width(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    folder = table_model(tmp_path / "model", random_table(seed, 7))
    prompt, search = rng.integers(1, 6, 5).tolist(), {"max_length": 60}
    speculative = {"ngram_size": 2, "max_draft_tokens": int(rng.integers(2, 6)), "cooldown": True}
    assert told(genai_lab, folder, prompt, search, speculative) == told(og, folder, prompt, search, speculative)


LITERAL = "the king of England and the queen of France"
GRAMMARS = [("regex", "[0-9]{3}-[0-9]{3}"), ("regex", "[a-z ]{2,30}"), ("lark_grammar", f'start: "{LITERAL}"')]
DRAWN = {"do_sample": True, "random_seed": 7, "top_k": 40, "temperature": 0.9}


@pytest.mark.parametrize("ff", [False, True])
@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar[1][:9])
@pytest.mark.parametrize(
    ("name", "options"), [("tiny", {}), ("tiny", DRAWN), ("tiny-speculative", {})], ids=["ngram", "drawn", "draft"]
)
def test_a_grammar_gives_the_same_text_in_no_more_runs(
    name: str, options: dict[str, Any], grammar: tuple[str, str], ff: bool
) -> None:
    folder = str(model_folder(name))
    prompt = genai_lab.Tokenizer(folder).encode(f"He said, {LITERAL}; he said,")

    def run(library: Any, width: int) -> tuple[list[int], int]:
        model = library.Model(folder)
        params = library.GeneratorParams(model)
        params.set_search_options(max_length=prompt.size + 40, **options)
        params.set_speculative_options(max_draft_tokens=width, **({"ngram_size": 2} if name == "tiny" else {}))
        params.set_guidance(*grammar, ff)
        made = library.Generator(model, params)
        made.append_tokens(prompt)
        while not made.is_done():
            made.generate_next_token()
        stats = made.get_speculative_stats()
        return made.get_sequence(0).tolist(), stats["target_forward_passes"]

    for width in (1, 4):
        (ours, our_runs), (theirs, their_runs) = run(genai_lab, width), run(og, width)
        assert ours == theirs
        if name == "tiny-speculative":  # the steps without a proposal are no runs of speculation
            assert our_runs <= their_runs
