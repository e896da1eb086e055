"""Which bits an answer has: those of a Generator where batches are exact or rows run one by one; else those of a batch,
whoever else is in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Engine, Verdict
from genai_lab.models.exactness import batch_facts, known_facts
from genai_lab.models.rows import RowsExecutor
from tests.engine.asking import SAMPLED, alone, answers, prompts, skip_without_pages
from tests.tiny import tiny_model_folder

PRECISIONS = ("fp32", "int8", "int4")
MODES = {
    "batched": {},
    "chunked": {"chunk_size": 5, "max_scheduled_tokens": 11},
    "preempted": {"block_size": 8, "num_blocks": 14},
    "no prefix cache": {"prefix_caching": False},
    "mapped": {"kv_backend": "vm", "block_size": 32},
    "mapped and preempted": {"kv_backend": "vm", "block_size": 32, "num_blocks": 7},
}
SIZES = {"max_batch_size": 4, "max_session_tokens": 100, "block_size": 16}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, genai_lab.Model]:
    folder = tmp_path_factory.mktemp("precisions")
    return {name: genai_lab.Model(tiny_model_folder(folder / name, name)) for name in PRECISIONS}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_probe_says_what_every_batch_shows(models: dict[str, genai_lab.Model], precision: str) -> None:
    model, rows = models[precision], 5
    layout, random = model.kv_layout, np.random.default_rng(5)
    shape = (layout.num_layers, 2, *layout.row_shape(rows, 70))
    state = random.standard_normal(shape).astype(layout.numpy_dtype)
    executor = RowsExecutor(model, np.empty_like(state))
    tokens = random.integers(0, model.vocab_size, rows).astype(np.int32)
    cached = np.array([1, 33, 64, 20, 7])
    seen: dict[int, set[bytes]] = {row: set() for row in range(rows)}
    single: dict[int, bytes] = {}
    for first in range(rows):
        for count in range(1, rows - first + 1):
            executor.slab[...] = state
            logits = executor.decode(first, tokens[first : first + count], cached[first : first + count])
            for place in range(count):
                row, found = first + place, logits[place].tobytes()
                if count == 1:
                    single[row] = found
                else:
                    seen[row].add(found)
    facts = batch_facts(model, rows)
    assert facts.is_invariant == all(len(found) == 1 for found in seen.values())
    assert facts.is_exact == (facts.is_invariant and all(seen[row] == {single[row]} for row in seen))
    assert known_facts(model, rows) is facts


@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize(("precision", "exact"), [("int4", True), ("int8", False)])
def test_every_answer_is_a_generators(
    models: dict[str, genai_lab.Model],
    precision: str,
    exact: bool,
    mode: dict[str, object],
    options: dict[str, object],
) -> None:
    skip_without_pages(mode)
    model, asked = models[precision], prompts(20, 33, 5, 40, 2, 17)
    engine = Engine(model, **(SIZES | mode), exact=exact)  # type: ignore[arg-type]
    if not engine.get_capabilities().equals_generator:
        pytest.skip(f"here {precision} is not exact in batches: {engine.get_capabilities().numerics}")
    expected = [alone(model, p, 16, n if options else None, **options) for n, p in enumerate(asked)]
    assert answers(engine, asked, 16, **options) == expected


def test_an_answer_does_not_depend_on_the_company(models: dict[str, genai_lab.Model]) -> None:
    """On a processor where a lone row gets other numbers than two: it is never alone."""
    model, asked = models["int4"], prompts(20, 33, 5, 40, 2, 17, 26, 9)
    if not batch_facts(model, 4).is_invariant:
        pytest.skip("batches are not invariant here")
    together = answers(Engine(model, **SIZES), asked, 20)  # type: ignore[arg-type]
    assert [answers(Engine(model, **SIZES), [prompt], 20)[0] for prompt in asked] == together  # type: ignore[arg-type]
    assert answers(Engine(model, **SIZES), asked[::-1], 20)[::-1] == together  # type: ignore[arg-type]
    tight = Engine(model, **(SIZES | {"block_size": 8, "num_blocks": 14}))  # type: ignore[arg-type]
    verdicts = watch(tight)
    assert answers(tight, asked, 20) == together
    assert Verdict.PREEMPT in verdicts


def watch(engine: Engine) -> list[Verdict]:
    """Every verdict of the steps to come."""
    verdicts: list[Verdict] = []
    step = engine.step

    def watching() -> object:
        decisions = step()
        verdicts.extend(decision.verdict for decision in decisions)
        return decisions

    engine.step = watching  # type: ignore[method-assign]
    return verdicts


def test_an_engine_says_which_bits_it_gives(models: dict[str, genai_lab.Model]) -> None:
    for name, model in models.items():
        for exact in (False, True):
            engine = Engine(model, **SIZES, exact=exact)  # type: ignore[arg-type]
            told = engine.get_capabilities()
            assert told.batch_is_exact == engine.batch_is_exact
            assert told.equals_generator == (exact or told.batch_is_exact), name
            assert (told.configured_max_batch_size, told.max_request_length, told.max_scheduled_tokens) == (4, 100, 512)
            assert told.numerics.split(";")[0] in repr(engine)
            assert ("one at a time" in told.numerics) == (exact and not told.batch_is_exact)
            engine.close()
            assert repr(engine) == "<genai_lab.Engine: closed>"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["batched", "chunked", "preempted", "mapped"])
def test_the_default_model_exactly(model_folder: Path, mode: str) -> None:
    """The real model's int4 kernels, in every mode: with exact=True, a Generator's answers."""
    options = {"chunked": {"chunk_size": 24, "max_scheduled_tokens": 40}, "preempted": {"num_blocks": 12}}.get(mode, {})
    options = {"kv_backend": "vm"} if mode == "mapped" else options
    skip_without_pages(options)
    model = genai_lab.Model(model_folder)
    asked = [prompt * 150 for prompt in prompts(20, 41, 6, shared=32)]
    engine = Engine(model, max_batch_size=3, max_session_tokens=128, exact=True, **options)  # type: ignore[arg-type]
    for search in ({}, SAMPLED):
        expected = [alone(model, p, 6, n if search else None, **search) for n, p in enumerate(asked)]
        assert answers(engine, asked, 6, **search) == expected
