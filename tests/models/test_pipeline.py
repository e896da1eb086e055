"""A decoder in stages is one decoder: the same logits however it is read, and errors that name the stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.errors import ModelFolderError, StateError
from tests.graphs_stages import pipeline


def generator(folder: Path, prompt: list[int], **options: Any) -> genai_lab.Generator:
    params = genai_lab.GeneratorParams(genai_lab.Model(folder))
    params.set_search_options(max_length=16, **options)
    made = genai_lab.Generator(params.model, params)
    made.append_tokens(prompt)
    return made


def test_stages_of_the_prompt_and_of_tokens_have_one_cache(tmp_path: Path) -> None:
    folder = pipeline(tmp_path / "model")
    made = generator(folder, [5, 6, 7])
    for _ in range(4):
        made.generate_next_token()
    tokens = made.get_sequence(0)
    last = made.get_logits()
    again = generator(folder, [5, 6, 7])
    again.append_tokens(tokens[3:])
    np.testing.assert_allclose(again.get_logits(), last, atol=1e-4)


def test_a_rewind_is_as_if_the_rest_had_never_been(tmp_path: Path) -> None:
    made = generator(pipeline(tmp_path / "model"), [5, 6, 7, 8])
    made.generate_next_token()
    first = made.get_sequence(0).tolist()
    made.rewind_to(4)
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == first


def test_what_stages_hand_on_is_each_generators_own(tmp_path: Path) -> None:
    folder = pipeline(tmp_path / "model", stages={"embeddings": {"run_on_token_gen": False}}, split=False)
    model = genai_lab.Model(folder)
    params = genai_lab.GeneratorParams(model)
    one, other = genai_lab.Generator(model, params), genai_lab.Generator(model, params)
    one.append_tokens([5])
    other.append_tokens([9])
    one.generate_next_token()
    alone = genai_lab.Generator(model, params)
    alone.append_tokens([5])
    alone.generate_next_token()
    np.testing.assert_array_equal(one.get_logits(), alone.get_logits())  # both take the embedding of their own prompt


def test_a_missing_input_is_named_with_its_stage(tmp_path: Path) -> None:
    nothing_given = pipeline(tmp_path / "a", stages={"head": {"inputs": []}})
    with pytest.raises(StateError, match=r"Missing Input: hidden\. stage 'head' \('head.onnx'\)"):
        generator(nothing_given, [5])
    other_name = pipeline(tmp_path / "b", stages={"iterator": {"output_names_forwarder": {"hidden_out": "other"}}})
    made = generator(other_name, [5])  # the prompt's stage hands it on
    made.generate_next_token()
    none = {"output_names_forwarder": {"hidden_out": "other"}}
    with pytest.raises(StateError, match="Missing Input: hidden"):
        generator(pipeline(tmp_path / "c", stages={"context": none, "iterator": none}), [5])


def test_an_output_that_no_stage_gives_is_named(tmp_path: Path) -> None:
    made = generator(pipeline(tmp_path / "a", stages={"head": {"run_on_token_gen": False}}), [5])
    made.generate_next_token()
    with pytest.raises(StateError, match="no stage gave 'logits' in the run over a generated token"):
        made.generate_next_token()
    with pytest.raises(StateError, match=r"no stage gave 'present\.0\.key' in the run over the prompt"):
        generator(pipeline(tmp_path / "b", stages={"context": {"outputs": ["hidden_out"]}}), [5])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"filename": "nowhere.onnx"}, r"nowhere.onnx.*pipeline.*context\.filename"),
        ({"filename": ""}, r"context\.filename"),
        ({"outputs": ["hidden_out", "something"]}, "no output 'something'"),
    ],
)
def test_a_stage_that_cannot_be_loaded_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder = pipeline(tmp_path / "model", stages={"context": changes})
    with pytest.raises(ModelFolderError, match=words):
        genai_lab.Model(folder)


def test_a_stage_to_free_that_there_is_not(tmp_path: Path) -> None:
    made = generator(pipeline(tmp_path / "model", stages={"iterator": {"reset_session_idx": 9}}), [5])
    made.generate_next_token()
    with pytest.raises(StateError, match="Invalid reset_session_idx 9 for pipeline model iterator"):
        made.generate_next_token()


def test_a_stage_may_add_to_the_decoders_session_options(tmp_path: Path) -> None:
    folder = pipeline(
        tmp_path / "model",
        decoder={"session_options": {"intra_op_num_threads": 1}},
        stages={"context": {"inherit_session_options": True, "session_options": {"enable_mem_pattern": False}}},
    )
    stages = genai_lab.Model(folder).graph
    assert stages.threads == 1


def test_only_generators_can_run_stages(tmp_path: Path) -> None:
    model = genai_lab.Model(pipeline(tmp_path / "model"))
    with pytest.raises(StateError, match="several files"):
        genai_lab.Engine(model)
    assert model.describe()["kv_bytes_per_token"] == 2 * 2 * 2 * 8 * 4
    assert json.dumps(model.describe())


def test_what_onnxruntime_refuses_is_a_state_error(tmp_path: Path) -> None:
    made = generator(pipeline(tmp_path / "model", stages={"embeddings": {"run_on_token_gen": False}}), [5, 6, 7])
    made.generate_next_token()
    with pytest.raises(StateError, match=r"onnxruntime cannot run the model: .*(Add|Concat) node"):
        made.generate_next_token()  # takes three embeddings where there is one token


def test_a_fused_graph_as_the_only_stage_is_that_graph(tmp_path: Path, tiny_folder: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in tiny_folder.iterdir():
        if file.name != "genai_config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((tiny_folder / "genai_config.json").read_text())
    graph = genai_lab.Model(tiny_folder).session
    decoder = config["model"]["decoder"]
    whole = {"filename": decoder["filename"], "inputs": list(graph.inputs), "outputs": list(graph.outputs)}
    decoder["pipeline"] = [{"whole": whole}]
    (folder / "genai_config.json").write_text(json.dumps(config))
    staged, plain = generator(folder, [1, 5, 9, 11]), generator(tiny_folder, [1, 5, 9, 11])
    for _ in range(3):
        np.testing.assert_allclose(staged.get_logits(), plain.get_logits(), atol=1e-4)
        staged.generate_next_token()
        plain.generate_next_token()
    assert staged.get_sequence(0).tolist() == plain.get_sequence(0).tolist()
