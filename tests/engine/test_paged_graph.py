"""An Engine on a graph that reads block tables answers as a Generator does on the same weights with rows of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import genai_lab
from genai_lab.engine import Engine, Static, Verdict
from genai_lab.errors import ArgumentError, ModelFolderError, StateError
from tests.engine.asking import SAMPLED, Tokens, alone, answers, drain, turn
from tests.graphs import HEAD_SIZE, HEADS, VOCABULARY, plain_decoder
from tests.graphs_paged import FLOAT16, paged_decoder


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(plain_decoder(tmp_path_factory.mktemp("dense") / "model"))


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(paged_decoder(tmp_path_factory.mktemp("paged") / "model"))


def asked(*sizes: int, seed: int = 0, shared: int = 0) -> list[Tokens]:
    """Random prompts that begin with the same `shared` tokens."""
    rng = np.random.default_rng(seed)
    head = rng.integers(2, VOCABULARY, shared)
    return [np.concatenate([head, rng.integers(2, VOCABULARY, size)]).astype(np.int32) for size in sizes]


def test_one_request_gets_the_tokens_of_the_same_weights_without_blocks(
    dense: genai_lab.Model, paged: genai_lab.Model
) -> None:
    prompt = asked(9)[0]
    assert answers(Engine(paged, check_invariants=True), [prompt], 20) == [alone(dense, prompt, 20)]


MODES: dict[str, dict[str, Any]] = {
    "roomy": {},
    "one at a time": {"max_batch_size": 1},
    "chunks of one": {"chunk_size": 1},
    "small budget": {"chunk_size": 3, "max_scheduled_tokens": 5},
    "static": {"policy": Static()},
    "no prefix cache": {"prefix_caching": False},
    "exact": {"exact": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_many_requests_get_what_each_gets_alone(
    dense: genai_lab.Model, paged: genai_lab.Model, mode: dict[str, Any], options: dict[str, Any]
) -> None:
    """The pool of 32 blocks of 4 tokens is too small for all of them at once, so some give way."""
    prompts = asked(10, 5, 17, 2, 1, 12, 8)
    expected = [alone(dense, p, 18, n if options else None, **options) for n, p in enumerate(prompts)]
    assert answers(Engine(paged, check_invariants=True, **mode), prompts, 18, **options) == expected


def test_preemption_happened(paged: genai_lab.Model) -> None:
    engine, verdicts = Engine(paged, max_batch_size=4), set()
    requests = [engine.create_request() for _ in range(4)]
    for request, prompt in zip(requests, asked(20, 20, 20, 20), strict=True):
        request.begin_turn(prompt, turn(30))
    while engine.has_pending_requests():
        verdicts |= {decision.verdict for decision in engine.step()}
        engine._outbox.take(99, engine._states, engine._conversations.handles)
    assert Verdict.PREEMPT in verdicts


@pytest.mark.parametrize("shared", [0, 3, 4, 5, 8, 11])
def test_a_prefix_in_the_pool_is_shared_to_the_last_whole_block(
    dense: genai_lab.Model, paged: genai_lab.Model, shared: int
) -> None:
    engine = Engine(paged)
    first, second = asked(6, 1, shared=shared)
    answers(engine, [first], 3)
    request = engine.create_request()
    request.begin_turn(second, turn(5))
    events = drain(engine)
    assert events[-1].usage.cached_prompt_tokens == shared // 4 * 4
    assert [event.token for event in events] == alone(dense, second, 5)


def test_what_was_generated_is_shared_with_a_prompt_that_repeats_it(
    dense: genai_lab.Model, paged: genai_lab.Model
) -> None:
    engine, prompt = Engine(paged), asked(4)[0]
    answer = answers(engine, [prompt], 9)[0]
    again = np.array([*prompt, *answer, 9, 9], np.int32)
    request = engine.create_request()
    request.begin_turn(again, turn(4))
    events = drain(engine)
    assert events[-1].usage.cached_prompt_tokens == 12
    assert [event.token for event in events] == alone(dense, again, 4)


def test_forks_share_blocks_and_copy_the_one_they_write_into(dense: genai_lab.Model, paged: genai_lab.Model) -> None:
    engine, prompt = Engine(paged, check_invariants=True), asked(10)[0]
    request = engine.create_request()
    request.begin_turn(prompt, turn(12, seed=0, **SAMPLED))
    twins = [request.fork(seed=n) for n in (1, 2)]
    tokens: dict[int, list[int]] = {}
    for event in drain(engine):
        if event.token is not None and event.request is not None:
            tokens.setdefault(event.request.number, []).append(event.token)
    assert [tokens[r.number] for r in (request, *twins)] == [alone(dense, prompt, 12, n, **SAMPLED) for n in range(3)]


def test_a_conversation_goes_on_and_goes_back(dense: genai_lab.Model, paged: genai_lab.Model) -> None:
    engine, (first, second) = Engine(paged, check_invariants=True), asked(7, 5)
    request = engine.create_request()
    request.begin_turn(first, turn(6))
    answer = [event.token for event in drain(engine)]
    for _ in range(2):
        number = request.begin_turn(second, turn(6))
        events = drain(engine)
        assert [event.token for event in events] == alone(dense, np.array([*first, *answer, *second], np.int32), 6)
        request.rewind_to_start_of_turn(number)


@pytest.mark.parametrize("logits", ["tokens", "selected"])
def test_proposals_are_verified_where_the_graph_gives_their_logits(
    dense: genai_lab.Model, tmp_path: Path, logits: str
) -> None:
    prompt = asked(9)[0]
    expected = alone(dense, prompt, 14)
    engine = Engine(genai_lab.Model(paged_decoder(tmp_path / "model", logits=logits)), check_invariants=True)
    request, buffer, tokens = engine.create_request(), engine.create_event_buffer(8), []
    request.begin_turn(prompt, turn(14))
    while engine.has_pending_requests():
        engine.run(buffer)
        tokens += [buffer[i].token for i in range(len(buffer))]
        if 0 < len(tokens) < 10:
            request.set_draft_tokens([*expected[len(tokens) : len(tokens) + 2], 3])
    assert tokens == expected
    assert engine.get_speculative_stats()["draft_tokens_accepted"] > 4


def test_rows_of_logits_per_sequence_cannot_verify(paged: genai_lab.Model) -> None:
    assert Engine(paged).max_draft_tokens_per_proposal() == 0


@pytest.mark.parametrize("given", [{"layer_ids": (1, 4)}, {"planes": 0}, {"planes": 3}, {"sizes": None}], ids=str)
def test_other_shapes_of_the_same_graph(dense: genai_lab.Model, tmp_path: Path, given: dict[str, Any]) -> None:
    prompts = asked(9, 4)
    engine = Engine(genai_lab.Model(paged_decoder(tmp_path / "model", **given)), max_batch_size=3)
    assert answers(engine, prompts, 10) == [alone(dense, prompt, 10) for prompt in prompts]


def test_a_cache_of_half_precision(tmp_path: Path) -> None:
    engine = Engine(genai_lab.Model(paged_decoder(tmp_path / "model", kind=FLOAT16)))
    assert engine._store.pool["past_key_values.0.key"].dtype == np.float16  # type: ignore[attr-defined]
    assert len(answers(engine, asked(9), 6)[0]) == 6


def test_open_sizes_come_from_arguments_then_from_the_folder(tmp_path: Path) -> None:
    folder = paged_decoder(tmp_path / "model", sizes=None, engine={"block_size": 8, "num_blocks": 20})
    model = genai_lab.Model(folder)
    limits = [Engine(model, **given).limits for given in ({}, {"block_size": 2, "num_blocks": 50})]  # type: ignore[arg-type]
    assert [(one.block_size, one.num_blocks, one.max_batch_size) for one in limits] == [(8, 20, 4), (2, 50, 4)]
    assert limits[0].max_scheduled_tokens == 2048


def test_a_recording_of_it_reads_like_any_other(paged: genai_lab.Model) -> None:
    engine = Engine(paged)
    with genai_lab.record() as trace:
        answers(engine, asked(9, 4), 5)
    assert len(trace.steps()) == engine.steps
    assert len(trace.requests()) == 2
    assert "read" in trace.why(0, 0)


def test_requests_know_their_bytes(paged: genai_lab.Model) -> None:
    engine = Engine(paged)
    request = engine.create_request()
    request.begin_turn(asked(9)[0], turn(3))
    drain(engine)
    assert request.held_bytes() == 11 * 2 * 2 * HEADS * HEAD_SIZE * 4  # tokens, layers, keys and values, heads, size


# ---- refused


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kv_backend": "slots"}, "reads block tables, allowed are 'pool'"),
        ({"kv_backend": "vm"}, "reads block tables, allowed are 'pool'"),
        ({"block_size": 8}, "was made for block_size=4"),
        ({"num_blocks": 8}, "was made for num_blocks=32"),
        ({"chunk_size": 0}, "from 1"),
    ],
)
def test_what_the_graph_cannot_be_run_with(paged: genai_lab.Model, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Engine(paged, **given)


def test_rows_are_no_pool(dense: genai_lab.Model) -> None:
    with pytest.raises(ArgumentError, match="has rows of its own, allowed are 'slots', 'vm'"):
        Engine(dense, kv_backend="pool")


@pytest.mark.parametrize("rows", [1, 2])
def test_a_generator_has_no_blocks(paged: genai_lab.Model, rows: int) -> None:
    params = genai_lab.GeneratorParams(paged)
    params.set_search_options(batch_size=rows)
    with pytest.raises(StateError, match=r"block tables .* which only an Engine has"):
        genai_lab.Generator(paged, params).append_tokens(np.ones((rows, 3), np.int32))


def test_an_input_that_nothing_gives(tmp_path: Path) -> None:
    model = genai_lab.Model(paged_decoder(tmp_path / "model", extra_input="q_row_map"))
    with pytest.raises(ModelFolderError, match="wants 'q_row_map', an input that an Engine of this version does not"):
        Engine(model)


def test_the_operator_for_graphics_cards(tmp_path: Path) -> None:
    """PagedAttention has no kernel for the CPU: the folder is refused when it is loaded, by that name."""
    folder = paged_decoder(tmp_path / "model", kind=FLOAT16)
    proto = onnx.load(folder / "model.onnx")
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    sides = ["cumulative_sequence_lengths", "past_sequence_lengths", "block_table"]
    pool = [f"past_key_values.0.{part}" for part in ("key", "value")]
    heads: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": HEADS}
    node = onnx.helper.make_node(
        "PagedAttention", [*"qkv", *pool, *sides], ["mixed", "k_pool", "v_pool"], domain="com.microsoft", **heads
    )
    proto.graph.node.append(node)
    groups: list[tuple[list[str], Any]] = [([*"qkv"], proto.graph.input), (["mixed"], proto.graph.output)]
    for names, group in groups:
        for name in names:
            group.append(onnx.helper.make_tensor_value_info(name, FLOAT16, ["num_tokens", HEADS * HEAD_SIZE]))
    onnx.save(proto, folder / "model.onnx")
    with pytest.raises(ModelFolderError, match=r"PagedAttention.* Take a folder that was made for the CPU"):
        genai_lab.Model(folder)
