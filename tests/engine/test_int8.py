"""An 8-bit KV cache in the engine: every request gets what a Generator of the same folder gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

import genai_lab
from genai_lab.engine import Engine, Verdict
from genai_lab.errors import ArgumentError
from genai_lab.kvcache import VmStore
from tests.engine.asking import SAMPLED, alone, answers, drain, prompts, skip_without_pages, turn
from tests.int8 import int8_folders
from tests.tiny import TinySizes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    """Of 64 numbers a head, as the default model has."""
    sizes = TinySizes(head_size=64)
    return genai_lab.Model(int8_folders(tmp_path_factory.mktemp("int8"), sizes=sizes)[1])


MODES = {
    "roomy": {"block_size": 16},
    "small chunks": {"chunk_size": 3, "max_scheduled_tokens": 9},
    "preempting": {"num_blocks": 16, "block_size": 8},
    "no prefix cache": {"prefix_caching": False},
    "mapped pages": {"kv_backend": "vm"},
    "mapped pages, preempting": {"kv_backend": "vm", "num_blocks": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_batched_equals_alone(model: genai_lab.Model, mode: dict[str, object], options: dict[str, object]) -> None:
    skip_without_pages(mode)
    asked = prompts(20, 33, 5, 40, 2, 17)
    engine = Engine(model, **({"max_batch_size": 4, "max_session_tokens": 100, "check_invariants": True} | mode))  # type: ignore[arg-type]
    verdicts: set[Verdict] = set()
    step = engine._one_step

    def watching() -> object:
        decisions = step()
        verdicts.update(decision.verdict for decision in decisions)
        return decisions

    engine._one_step = watching  # type: ignore[method-assign, assignment]
    expected = [alone(model, p, 34, n if options else None, **options) for n, p in enumerate(asked)]
    assert answers(engine, asked, 34, **options) == expected
    assert (Verdict.PREEMPT in verdicts) == ("num_blocks" in mode)


@pytest.mark.parametrize("backend", ["slots", "vm"])
def test_warm_prefixes_and_forks(model: genai_lab.Model, backend: str) -> None:
    skip_without_pages({"kv_backend": backend})
    asked = prompts(9, 30, shared=140)
    engine = Engine(model, max_session_tokens=200, kv_backend=backend, check_invariants=True)
    cold = answers(engine, asked[:1], 10)
    first = engine.create_request()
    first.begin_turn(asked[1], turn(10, seed=3, **SAMPLED))
    second = first.fork(seed=4)
    found: dict[int, list[int]] = {first.number: [], second.number: []}
    usage = 0
    for event in drain(engine):
        if event.token is not None and event.request is not None:
            found[event.request.number].append(event.token)
        if event.request is first:
            usage = max(usage, event.usage.cached_prompt_tokens)
    assert cold == [alone(model, asked[0], 10)]
    assert list(found.values()) == [alone(model, asked[1], 10, seed, **SAMPLED) for seed in (3, 4)]
    assert usage == 128


def test_the_pool_and_the_rows_take_a_quarter(model: genai_lab.Model, tmp_path: Path) -> None:
    plain = genai_lab.Model(int8_folders(tmp_path, sizes=TinySizes(head_size=64))[0])
    sizes = {"max_batch_size": 2, "max_session_tokens": 64, "block_size": 16, "num_blocks": 8}
    assert Engine(model, **sizes)._store.nbytes * 4 == Engine(plain, **sizes)._store.nbytes  # type: ignore[arg-type]


@pytest.mark.skipif(not VmStore.is_available().available, reason=VmStore.is_available().reason)
def test_mapped_blocks_are_as_large_as_pages_need(model: genai_lab.Model) -> None:
    assert Engine(model, kv_backend="vm").limits.block_size == 64
    assert Engine(model).limits.block_size == 16
    with pytest.raises(ArgumentError, match=r"16 x 64 x int8 = 1,024 bytes, .* \(a block_size of 64, or a multiple"):
        Engine(model, kv_backend="vm", block_size=16)
