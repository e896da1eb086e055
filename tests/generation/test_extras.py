"""What a caller adds to the runs: inputs, adapters, run options; and what of a run can be looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError, StateError
from tests.graphs import HIDDEN, VOCABULARY, plain_decoder
from tests.graphs_adapted import adapted, export_adapter
from tests.graphs_hybrid import hybrid
from tests.graphs_mtp import mtp_llama
from tests.graphs_stages import pipeline
from tests.tiny import tiny_model_folder


def generator(model: og.Model, **options: Any) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 20} | options)
    return og.Generator(model, params)


@pytest.fixture(scope="module")
def wanting(tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    return og.Model(
        plain_decoder(tmp_path_factory.mktemp("wanting") / "model", extra_input="abcde", hidden_states=True)
    )


def test_an_input_that_nobody_gives_is_named_before_the_run(wanting: og.Model) -> None:
    for options in ({}, {"batch_size": 1, "num_beams": 2}):
        made = generator(wanting, **options)
        with pytest.raises(StateError, match=r"Missing Input: abcde.*set_model_input"):
            made.append_tokens([5, 6])
        assert made.token_count() == 0


def test_an_extra_input_is_part_of_every_run(wanting: og.Model) -> None:
    found = []
    for value in (0, 7):
        made = generator(wanting)
        made.set_model_input("abcde", np.array(value))
        made.append_tokens([5, 6])
        made.generate_next_token()
        found.append(made.get_logits())
        assert made.get_input("abcde") == value
    np.testing.assert_allclose(found[1] - found[0], 7, atol=1e-3)


def test_inputs_that_follow_from_tokens_or_of_a_wrong_type_are_refused(wanting: og.Model) -> None:
    made = generator(wanting)
    for name in ("input_ids", "past_key_values.0.key"):
        with pytest.raises(ArgumentError, match="append_tokens"):
            made.set_model_input(name, np.zeros((1, 1), np.int64))
    made.set_model_input("abcde", np.array(0))
    plain = generator(wanting)
    plain.set_model_input("abcde", np.array(0))
    for one in (made, plain):
        one.append_tokens([5, 6])
    with pytest.warns(UserWarning, match=r"'input_ids'.* changes nothing"):  # as in onnxruntime-genai, which is silent
        made.set_model_input("input_ids", np.array([[7, 7]]))
    for one in (made, plain):
        one.generate_next_token()
    assert made.get_sequence(0).tolist() == plain.get_sequence(0).tolist()
    with pytest.raises(ArgumentTypeError, match="numpy array"):
        made.set_model_input("abcde", 5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"float64.*int64"):
        made.set_model_input("abcde", np.array(1.5))
    made.set_model_input("unknown", np.zeros(3))  # kept and unused, as in onnxruntime-genai


def test_an_input_that_exporters_leave_behind_is_preset(tmp_path: Path) -> None:
    made = generator(og.Model(plain_decoder(tmp_path / "model", extra_input="num_logits_to_keep")))
    made.append_tokens([5, 6])
    assert made.get_input("num_logits_to_keep") == 0


def test_inputs_and_outputs_of_a_run_can_be_looked_at(wanting: og.Model) -> None:
    made = generator(wanting)
    made.set_model_input("abcde", np.array(0))
    with pytest.raises(ArgumentError, match="has not run yet"):
        made.get_input("input_ids")
    made.append_tokens([5, 6, 7])
    assert made.get_input("input_ids").tolist() == [[5, 6, 7]]
    assert made.get_input("attention_mask").tolist() == [[1, 1, 1]]
    assert made.get_output("hidden_states").shape == (1, 3, HIDDEN)
    made.generate_next_token()
    made.get_logits()
    assert made.get_input("position_ids").tolist() == [[3]]
    assert made.get_output("hidden_states").shape == (1, 1, HIDDEN)
    with pytest.raises(ArgumentError, match="was not found"):
        made.get_input("nothing")


def test_inputs_of_a_graph_that_appends_in_place(tiny_folder: Path) -> None:
    made = generator(og.Model(tiny_folder))
    made.append_tokens([5, 6, 7])
    assert made.get_input("input_ids").tolist() == [[5, 6, 7]]
    assert made.get_input("attention_mask").tolist() == [[1, 1, 1]]
    made.generate_next_token()
    made.get_logits()
    assert made.get_input("input_ids").shape == (1, 1)
    assert made.get_input("attention_mask").tolist() == [[1, 1, 1, 1]]
    with pytest.raises(ArgumentError, match="was not found"):
        made.get_input("nothing")


def test_set_inputs_appends_the_ids_and_gives_the_rest(wanting: og.Model) -> None:
    tensors = og.NamedTensors()
    tensors["input_ids"] = np.array([[5, 6]], np.int32)
    tensors["abcde"] = np.array(3)
    made = generator(wanting)
    made.set_inputs(tensors)
    assert made.get_sequence(0).tolist() == [5, 6]
    assert made.get_input("abcde") == 3


ADAPTED: dict[str, Callable[[Path], Path]] = {
    "one slab": lambda path: adapted(tiny_model_folder(path)),
    "a cache that grows": lambda path: plain_decoder(path, adapted=True),
    "a stage": lambda path: adapted(pipeline(path), "head.onnx"),
    "behind an embedding": lambda path: adapted(hybrid(path, embedded=True, model_type="phi3v")),
}


@pytest.mark.parametrize("kind", ADAPTED)
@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"num_beams": 2}])
def test_an_adapter_changes_the_logits_of_the_generators_that_use_it(
    tmp_path: Path, options: dict[str, int], kind: str
) -> None:
    model = og.Model(ADAPTED[kind](tmp_path / "m"))
    shift = np.random.default_rng(0).standard_normal(model.vocab_size).astype(np.float32)
    adapters = og.Adapters(model)
    adapters.load(export_adapter(tmp_path / "a.onnx_adapter", shift), "a")
    plain, adapted, late = (generator(model, **options) for _ in range(3))
    adapted.set_active_adapter(adapters, "a")
    prompt = np.array([[5, 6]] * options.get("batch_size", 1))
    for made in (plain, adapted, late):
        made.append_tokens(prompt)
    np.testing.assert_allclose(
        adapted.get_logits() - plain.get_logits(), shift + np.zeros_like(plain.get_logits()), atol=1e-3
    )
    late.set_active_adapter(adapters, "a")  # from its next run on
    for made in (plain, late):
        made.set_logits(np.tile(np.eye(model.vocab_size, dtype=np.float32)[7] * 99, (made.get_logits().shape[0], 1)))
        made.generate_next_token()
    np.testing.assert_allclose(
        late.get_logits() - plain.get_logits(), shift + np.zeros_like(plain.get_logits()), atol=1e-3
    )


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}])
def test_an_adapter_of_another_model_is_named(tmp_path: Path, options: dict[str, int]) -> None:
    model = og.Model(tiny_model_folder(tmp_path / "m"))
    adapters = og.Adapters(model)
    adapters.load(export_adapter(tmp_path / "a.onnx_adapter", np.zeros(3, np.float32)), "a")
    made = generator(model, **options)
    with pytest.raises(ArgumentError, match=r"Invalid input name: adapter_a\. .* may set here: none"):
        made.set_active_adapter(adapters, "a")
    adapters.unload("a")


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}])
def test_weights_of_a_wrong_size_are_an_error_of_ours(tmp_path: Path, options: dict[str, int]) -> None:
    model = og.Model(adapted(tiny_model_folder(tmp_path / "m")))
    adapters = og.Adapters(model)
    adapters.load(export_adapter(tmp_path / "a.onnx_adapter", np.zeros(3, np.float32)), "a")
    made = generator(model, **options)
    made.set_active_adapter(adapters, "a")
    with pytest.raises(StateError, match=r"cannot run the model.*adapter_a"):
        made.append_tokens([[5, 6]] * options.get("batch_size", 1))


def test_adapters_say_what_is_wrong(tmp_path: Path) -> None:
    model = og.Model(plain_decoder(tmp_path / "model", adapted=True))
    adapters = og.Adapters(model)
    with pytest.raises(ModelFolderError, match="does not exist"):
        adapters.load(tmp_path / "nowhere", "a")
    with pytest.raises(ModelFolderError, match="is a folder; give the path of"):
        adapters.load(tmp_path, "x")
    (tmp_path / "text").write_text("not an adapter")
    with pytest.raises(ModelFolderError, match="cannot read"):
        adapters.load(tmp_path / "text", "a")
    for call in (lambda: adapters.unload("a"), lambda: generator(model).set_active_adapter(adapters, "a")):
        with pytest.raises(ArgumentError, match="Adapter not found: a"):
            call()
    file = export_adapter(tmp_path / "a.onnx_adapter", np.zeros(VOCABULARY, np.float32))
    adapters.load(file, "a")
    with pytest.raises(ArgumentError, match="taken"):
        adapters.load(file, "a")
    user = generator(model)
    user.set_active_adapter(adapters, "a")
    with pytest.raises(StateError, match="still run with it"):
        adapters.unload("a")
    user.close()
    adapters.unload("a")


def test_a_terminated_session_refuses_runs_until_it_is_allowed_again(tiny_folder: Path) -> None:
    made = generator(og.Model(tiny_folder))
    made.append_tokens([5, 6])
    made.generate_next_token()
    made.set_runtime_option("terminate_session", "1")
    before = made.get_sequence(0).tolist()
    with pytest.raises(Exception, match=r"[Tt]erminat"):
        made.generate_next_token()
    assert made.get_sequence(0).tolist() == before
    made.set_runtime_option("terminate_session", "0")
    made.generate_next_token()
    with pytest.raises(ArgumentError, match='"0" and "1"'):
        made.set_runtime_option("terminate_session", "x")
    with pytest.raises(ArgumentTypeError, match="two strings"):
        made.set_runtime_option("terminate_session", 1)  # type: ignore[arg-type]
    made.snapshot_state()


@pytest.mark.parametrize("prompts", [[[5, 6, 7], [8, 9, 10]], [[5, 6, 7], [8]]])
def test_hidden_states_of_a_batch_are_those_of_its_rows(tmp_path: Path, prompts: list[list[int]]) -> None:
    model = og.Model(mtp_llama(tmp_path))
    width = max(map(len, prompts))
    batch = generator(model, batch_size=2, max_length=8)
    batch.append_tokens(np.array([[*p, *[model.config.model.pad_token_id] * (width - len(p))] for p in prompts]))
    rows = []
    for prompt in prompts:
        rows.append(generator(model, max_length=8))
        rows[-1].append_tokens(prompt)
    for _ in range(3):
        together = batch.get_output("hidden_states")
        for row, alone in enumerate(made.get_output("hidden_states") for made in rows):
            np.testing.assert_allclose(together[row, : alone.shape[1]], alone[0], atol=1e-4)
            assert not together[row, alone.shape[1] :].any()
        batch.generate_next_token()
        for made in rows:
            made.generate_next_token()
            made.get_logits()  # theirs and the batch's run comes when it is wanted
        batch.get_logits()
    with pytest.raises(ArgumentError, match=r"was not found.*hidden_states"):
        batch.get_output("nothing")
