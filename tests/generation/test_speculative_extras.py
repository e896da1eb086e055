"""What a caller gives to a generator that speculates: the draft takes part. What a caller looks at does not count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import genai_lab as og
from genai_lab.errors import StateError
from tests.generation.test_speculative import finish, generator
from tests.tables import follow, random_table, table_pair

TARGET, DRAFT = "model.onnx", "draft.onnx"


def add_bias(folder: Path, *names: str) -> None:
    """The named graphs of a folder add their input "bias" [V] to the logits."""
    for name in names:
        model = onnx.load(folder / name)
        node = next(node for node in model.graph.node if "logits" in node.output)
        node.output[0] = "unbiased"
        size = model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
        model.graph.input.append(helper.make_tensor_value_info("bias", TensorProto.FLOAT, [size]))
        model.graph.node.append(helper.make_node("Add", ["unbiased", "bias"], ["logits"]))
        onnx.save(model, folder / name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return table_pair(tmp_path / "pair", follow({}), follow({}))


def bias_towards(token: int) -> np.ndarray:
    bias = np.zeros(10, np.float32)
    bias[token] = 1e4
    return bias


def test_an_input_reaches_the_target_and_the_draft(folder: Path) -> None:
    add_bias(folder, TARGET, DRAFT)
    made = generator(og.Model(folder), max_draft_tokens=4)
    made.set_model_input("bias", bias_towards(7))
    made.append_tokens([1, 2])
    assert finish(made)[2:] == [7] * 38
    stats = made.get_speculative_stats()
    assert stats["draft_tokens_accepted"] == stats["draft_tokens_proposed"] > 0  # the draft saw it, too


def test_an_input_of_the_draft_alone_can_be_given_and_read_back(folder: Path) -> None:
    add_bias(folder, DRAFT)
    made = generator(og.Model(folder), max_draft_tokens=4)
    with pytest.raises(StateError, match="bias"):
        made.append_tokens([1, 2])
    made.set_model_input("bias", bias_towards(7))
    made.append_tokens([1, 2])
    np.testing.assert_array_equal(made.get_input("bias"), bias_towards(7))
    assert made.get_input("input_ids").tolist() == [[1, 2]]
    made.generate_next_token()
    stats = made.get_speculative_stats()
    assert (stats["draft_tokens_proposed"], stats["draft_tokens_accepted"]) == (4, 0)
    assert made.get_sequence(0).tolist() == [1, 2, 3]


def test_an_input_that_neither_has_is_said_when_it_would_be_used(folder: Path) -> None:
    made = generator(og.Model(folder), max_draft_tokens=4)
    made.set_model_input("bais", bias_towards(7))
    with pytest.raises(StateError, match="'bais' was not found in the target or draft model"):
        made.append_tokens([1, 2])
    assert made.token_count() == 0


def test_a_stop_of_the_runs_stops_the_drafts_too(folder: Path) -> None:
    made = generator(og.Model(folder), max_draft_tokens=4)
    made.append_tokens([1, 2])
    made.set_runtime_option("terminate_session", "1")
    with pytest.raises(StateError, match="Terminated state"):
        made.generate_next_token()
    made.set_runtime_option("terminate_session", "0")
    assert finish(made)[:4] == [1, 2, 3, 4]


@pytest.mark.parametrize("tokens", range(1, 8))
def test_looking_at_logits_between_rounds_counts_nothing(tmp_path: Path, tokens: int) -> None:
    target = random_table(2)
    draft = target + np.random.default_rng(2).standard_normal(target.shape).astype(np.float32)
    model = og.Model(table_pair(tmp_path / "pair", target, draft))
    told = []
    for looks in (0, 1, 2):
        made = generator(model, {"do_sample": True, "top_k": 4, "random_seed": 3}, max_draft_tokens=3)
        made.append_tokens([1, 2, 3])
        for _ in range(tokens):
            made.generate_next_token()
        for _ in range(looks):
            made.get_logits()
        text, stats = finish(made), made.get_speculative_stats()
        whole = {n: v for n, v in stats.items() if isinstance(v, int) and n != "draft_forward_passes"}
        told.append((text, whole))
    assert told[0] == told[1] == told[2]


def test_a_profile_of_single_runs_is_refused_and_nothing_changes(folder: Path) -> None:
    made = generator(og.Model(folder), max_draft_tokens=4)
    with pytest.raises(StateError, match="cannot profile single runs"):
        made.set_runtime_option("enable_profiling", "prefix")
    made.set_runtime_option("enable_profiling", "0")
    made.append_tokens([1, 2])
    assert finish(made)[:4] == [1, 2, 3, 4]
