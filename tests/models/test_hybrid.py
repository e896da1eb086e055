"""Layers that keep one state and not one per token: the same logits however a text is read, and back by a snapshot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab
from genai_lab.errors import ModelFolderError, StateError
from tests.graphs_hybrid import hybrid
from tests.graphs_stages import marian

KINDS = {
    "recurrent": {},
    "convolution": {"recurrent": False},
    "embedded": {"embedded": True, "positions": 3, "model_type": "qwen3_5"},
    "only attention counted": {"layers": 1},
    "a shared buffer asked for": {"layers": 1, "past_present_share_buffer": True},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(hybrid(tmp_path_factory.mktemp("hybrid") / "model", **KINDS[request.param]))


def generator(model: genai_lab.Model, *prompt: int, **options: int) -> genai_lab.Generator:
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=20, **options)
    made = genai_lab.Generator(model, params)
    if prompt:
        made.append_tokens(list(prompt))
    return made


def fresh(model: genai_lab.Model, tokens: np.ndarray) -> np.ndarray:
    return generator(model, *tokens.tolist()).get_logits()


def test_step_by_step_is_at_once(model: genai_lab.Model) -> None:
    made = generator(model, 5, 6)
    made.append_tokens([7])  # read alone: what is in the state is not read again
    made.append_tokens([8, 9, 10])
    np.testing.assert_allclose(made.get_logits(), fresh(model, made.get_sequence(0)), atol=1e-4)
    made.generate_next_token()
    made.append_tokens([11])
    np.testing.assert_allclose(made.get_logits(), fresh(model, made.get_sequence(0)), atol=1e-4)


def test_chunks_are_the_whole(model: genai_lab.Model) -> None:
    made = generator(model, 5, 6, 7, 8, 9, chunk_size=2)
    np.testing.assert_allclose(made.get_logits(), fresh(model, made.get_sequence(0)), atol=1e-4)


def test_a_snapshot_can_be_gone_back_to_again_and_again(model: genai_lab.Model) -> None:
    made = generator(model, 5, 6, 7)
    made.snapshot_state()
    for _ in range(2):
        made.generate_next_token()
        made.generate_next_token()
        made.rewind_to(3)
        np.testing.assert_allclose(made.get_logits(), fresh(model, made.get_sequence(0)), atol=1e-4)
    made.append_tokens([9])
    np.testing.assert_allclose(made.get_logits(), fresh(model, made.get_sequence(0)), atol=1e-4)


def test_a_snapshot_behind_a_token_that_is_not_read_yet(model: genai_lab.Model) -> None:
    made = generator(model, 5, 6, 7)
    made.generate_next_token()
    made.snapshot_state()
    made.generate_next_token()
    made.generate_next_token()
    made.rewind_to(4)
    np.testing.assert_allclose(made.get_logits(), fresh(model, made.get_sequence(0)), atol=1e-4)


def test_without_a_snapshot_only_the_beginning_can_be_gone_back_to(model: genai_lab.Model) -> None:
    made = generator(model, 5, 6, 7)
    made.generate_next_token()
    made.generate_next_token()
    before = made.get_sequence(0).tolist()
    with pytest.raises(StateError, match=r"RewindTo\(2\) is not supported without a snapshot.*snapshot_state\(\)"):
        made.rewind_to(2)
    made.snapshot_state()
    with pytest.raises(StateError, match=r"RewindTo\(2\) cannot restore snapshot at length 4"):
        made.rewind_to(2)
    assert made.get_sequence(0).tolist() == before
    made.generate_next_token()
    made.rewind_to(0)
    made.append_tokens([9])
    np.testing.assert_allclose(made.get_logits(), fresh(model, made.get_sequence(0)), atol=1e-4)


def test_rows_of_a_batch_are_those_rows_alone(model: genai_lab.Model) -> None:
    prompts = [[5, 6, 7], [8], [9, 10]]
    made = generator(model, batch_size=3)
    made.append_tokens(np.array([[5, 6, 7], [8, 0, 0], [0, 9, 10]], np.int32))
    while not made.is_done():
        made.generate_next_token()
    for row, prompt in enumerate(prompts):
        single = generator(model, *prompt)
        while not single.is_done():
            single.generate_next_token()
        own, shown = single.get_sequence(0).tolist()[len(prompt) :], made.get_sequence(row).tolist()[3:]
        length = min(len(own), len(shown))
        assert shown[:length] == own[:length]


def test_beams_take_their_state_with_them(model: genai_lab.Model) -> None:
    made = generator(model, num_beams=3, num_return_sequences=3)
    made.append_tokens([5, 6, 7])
    for _ in range(4):
        made.generate_next_token()
    rows = [made.get_sequence(index) for index in range(3)]
    logits = made.get_logits()[:, 0]
    for row in rows:
        expected = fresh(model, row).reshape(-1)
        assert min(np.abs(logits - expected).max(axis=1)) < 1e-3  # some beam holds exactly this text


def test_a_fork_begins_where_the_state_is(model: genai_lab.Model) -> None:
    made = generator(model, 5, 6, 7)
    twin = made.fork()
    twin.append_tokens([9])
    made.append_tokens([10])
    for each in (twin, made):
        np.testing.assert_allclose(each.get_logits(), fresh(model, each.get_sequence(0)), atol=1e-4)
    with pytest.raises(StateError, match="fork: a state of convolutions"):
        made.fork(2)


def test_embeddings_can_be_looked_at(tmp_path: Path) -> None:
    folder = hybrid(tmp_path / "model", embedded=True, takes_ids_too=True, model_type="phi3v")
    made = generator(genai_lab.Model(folder), 5, 6)
    assert made.get_output("inputs_embeds").shape == (1, 2, 8)
    assert made.get_input("input_ids").tolist() == [[5, 6]]


def test_an_embedding_that_does_not_fit_is_named(tmp_path: Path) -> None:
    folder, other = hybrid(tmp_path / "a", embedded=True), hybrid(tmp_path / "b")
    (folder / "model.onnx").write_bytes((other / "model.onnx").read_bytes())
    with pytest.raises(ModelFolderError, match=r"'embedding.onnx' should give 'inputs_embeds'"):
        genai_lab.Model(folder)


def test_pictures_are_refused_in_words(tmp_path: Path) -> None:
    made = generator(genai_lab.Model(hybrid(tmp_path / "model", embedded=True)), num_beams=2)
    with pytest.raises(StateError, match="images and sounds"):
        made.set_model_input("pixel_values", np.zeros((1, 4), np.float32))


def test_speculation_is_refused(model: genai_lab.Model) -> None:
    params = genai_lab.GeneratorParams(model)
    params.set_speculative_options(ngram_size=3)
    with pytest.raises(StateError, match="rewindable KV cache"):
        genai_lab.Generator(model, params)


def test_an_engine_refuses_in_words(tmp_path: Path) -> None:
    for folder in (hybrid(tmp_path / "a"), marian(tmp_path / "b")):
        engine = genai_lab.Engine(genai_lab.Model(folder))
        request = engine.create_request()
        request.begin_turn(np.array([5, 6], np.int32), genai_lab.TurnOptions(request))
        with pytest.raises(StateError, match=r"does not append to its cache in place.*Use a Generator"):
            engine.run(engine.create_event_buffer(16))
