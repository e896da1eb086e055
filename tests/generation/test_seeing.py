"""A generator of a model that sees: images in any prompt, going back, forking, errors that change nothing, the trace.

Reference: one prompt with everything in it gives the logits that several turns give.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError, GenaiLabError, ModelFolderError, StateError
from tests.graphs_hybrid import hybrid
from tests.graphs_seeing import MELS, QWEN, SOUND, named, picture_arrays, picture_inputs, seeing
from tests.graphs_seeing_llama import llama_inputs, llama_that_sees

TYPES = ("phi3v", "gemma3", "gemma4", "mistral3", "qwen2_5_vl")


@pytest.fixture(scope="module", params=TYPES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    return og.Model(seeing(tmp_path_factory.mktemp("seeing") / "model", request.param))


@pytest.fixture(scope="module")
def phi(tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    return og.Model(seeing(tmp_path_factory.mktemp("phi") / "model", "phi3v", fails_below_zero=True))


def generator(model: og.Model, **options: Any) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 60, "do_sample": False} | options)
    return og.Generator(model, params)


def images(model: og.Model, *values: float) -> og.NamedTensors:
    made: og.NamedTensors = picture_inputs(og, model.type, list(values))
    return made


def close(one: NDArray[np.float32], other: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def go_on(made: og.Generator, count: int = 3) -> list[int]:
    for _ in range(count):
        made.generate_next_token()
    return made.get_sequence(0).tolist()


def test_the_pixels_matter_and_are_seen_once(model: og.Model) -> None:
    rows = []
    for value in (0.5, 0.5, 2.0):
        made = generator(model)
        made.set_inputs(images(model, value))
        rows.append(made.get_logits())
    np.testing.assert_array_equal(rows[0], rows[1])
    assert np.abs(rows[0] - rows[2]).max() > 0.01


def test_turns_with_images_are_one_prompt_with_all_of_them(model: og.Model) -> None:
    made, together = generator(model), []
    for turn, value in enumerate((0.5, 1.5, 2.5)):
        arrays = picture_arrays(model.type, [value])
        made.set_inputs(named(og, arrays))
        together.append((arrays, go_on(made)[-3:]))
        made.append_tokens([7 + turn, 8])
        together[-1][1].extend([7 + turn, 8])
    whole = {name: np.concatenate([arrays[name] for arrays, _ in together]) for name in together[0][0]}
    ids: list[int] = []
    for number, (arrays, answer) in enumerate(together):
        prompt = arrays["input_ids"][0].tolist()
        ids += [token - number if token < 0 else token for token in prompt] + answer
    whole["input_ids"] = np.array([ids], np.int32)
    reference = generator(model)
    reference.set_inputs(named(og, whole))
    close(made.get_logits(), reference.get_logits())
    assert go_on(made)[-3:] == go_on(reference)[-3:]


def test_going_back_anywhere_is_as_if_nothing_had_followed(model: og.Model) -> None:
    reference = generator(model)
    reference.set_inputs(images(model, 0.5))
    prompt = reference.token_count()
    expected = reference.get_logits().copy()
    text = go_on(reference, 4)
    for length in range(1, prompt + 4):
        made = generator(model)
        made.set_inputs(images(model, 0.5))
        go_on(made, 4)
        made.rewind_to(length)
        made.append_tokens([9, 5])
        afresh = generator(model)
        afresh.set_inputs(images(model, 0.5))
        go_on(afresh, 4)
        afresh = afresh.fork(length)
        afresh.append_tokens([9, 5])
        close(made.get_logits(), afresh.get_logits())
        made.rewind_to(length)
        assert made.get_sequence(0).tolist() == text[:length]
        if length == prompt:
            close(made.get_logits(), expected)


def test_a_prompt_read_again_from_the_beginning_has_its_image(model: og.Model) -> None:
    made = generator(model)
    inputs = picture_arrays(model.type, [0.5])
    made.set_inputs(named(og, inputs))
    first = made.get_input("image_features"), go_on(made)
    made.append_tokens([7, 8])
    for _ in range(2):
        made.rewind_to(0)
        made.append_tokens(inputs["input_ids"])
        np.testing.assert_array_equal(made.get_input("image_features"), first[0])
        assert go_on(made) == first[1]
    made.rewind_to(0)
    made.set_inputs(images(model, 2.5))  # another one instead
    assert np.abs(made.get_input("image_features") - first[0]).max() > 0.01


def test_a_fork_inside_and_behind_an_image_goes_on_alike(model: og.Model) -> None:
    made = generator(model)
    made.set_inputs(images(model, 0.5))
    go_on(made)
    for length in (3, made.token_count() - 3, made.token_count()):
        twin = made.fork(length)
        twin.append_tokens([9, 5])
        other = made.fork()
        other.rewind_to(length)
        other.append_tokens([9, 5])
        close(other.get_logits(), twin.get_logits())


def test_chunks_do_not_cut_an_image_apart(model: og.Model) -> None:
    rows = []
    for size in (0, 2, 3):
        made = generator(model, **({"chunk_size": size} if size else {}))
        made.set_inputs(images(model, 0.5, 1.5))
        made.set_inputs(images(model, 2.5))
        rows.append(made.get_logits())
    close(rows[1], rows[0])
    close(rows[2], rows[0])


def test_text_without_an_image_runs_no_graph_for_images(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model)
        made.append_tokens([5, 6])
        made.set_inputs(named(og, {"input_ids": np.array([[7]], np.int32), "num_image_tokens": np.array([0])}))
        made.generate_next_token()
    assert "run_vision" not in set(trace.stages()["stage"])
    assert made.get_input("image_features").shape[0] == 0


def test_the_trace_shows_when_images_and_sounds_were_looked_at(tmp_path: Path) -> None:
    model = og.Model(seeing(tmp_path / "model", "phi4mm", hears=True))
    arrays = picture_arrays("phi4mm", [0.5, 1.5])
    arrays["input_ids"] = np.append(arrays["input_ids"], [[SOUND, SOUND, 6]], axis=1).astype(np.int32)
    arrays["audio_embeds"] = np.ones((1, 2, MELS), np.float32)
    arrays["audio_sizes"] = np.array([2], np.int64)
    with og.record() as trace:
        made = generator(model)
        made.set_inputs(named(og, arrays))
        go_on(made)
    stages = trace.stages()
    for name, features in (("run_vision", 2), ("run_speech", 2), ("run_embedding", arrays["input_ids"].size)):
        found = stages[stages["stage"] == name]
        assert found["n"].tolist() == [features] and (found["dur_ms"] > 0).all()
        assert found["token"].tolist() == [0]
    order = stages["stage"].tolist()
    assert order.index("run_vision") < order.index("run_speech") < order.index("run_embedding")


def test_negative_tokens_are_images_for_penalties_and_pictures(phi: og.Model, tmp_path: Path) -> None:
    for options in ({"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 1}):
        with og.record() as trace:
            made = generator(phi, **options)
            made.set_inputs(images(phi, 0.5))
            plain = generator(phi)
            plain.set_inputs(images(phi, 0.5))
            text = go_on(made)
        assert min(text[3:]) >= -1 and min(go_on(plain)[-3:]) >= 0
        saved = trace.to_html(tmp_path / f"{next(iter(options))}.html")
        assert saved.stat().st_size > 0 and trace.text()


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("pixel_values", None, StateError, "Missing Input: pixel_values"),
        ("pixel_values", np.zeros((1, 1, 3, 1, 1), np.int32), ArgumentTypeError, "pixel_values.*int32.*float32"),
        ("pixel_values", np.zeros((1, 3), np.float32), ArgumentError, "pixel_values.*shape"),
        ("pixel_values", np.zeros((1, 1, 4, 1, 1), np.float32), ArgumentError, "pixel_values.*shape"),
        ("pixel_values", np.full((1, 1, 3, 1, 1), -1, np.float32), StateError, "Gather"),
        ("num_image_tokens", None, StateError, "without num_image_tokens"),
        ("num_image_tokens", np.array([2]), StateError, "num_image_tokens is .2."),
        ("num_image_tokens", np.array([0]), StateError, "num_image_tokens is int64 .0."),
        ("num_image_tokens", np.array([-1]), StateError, "num_image_tokens is int64 .-1."),
        ("num_image_tokens", np.array([1], np.int32), StateError, "Only int64 is supported"),
        ("input_ids", np.array([[5] * 60], np.int32), GenaiLabError, "exceeds max length"),
        ("input_ids", np.array([[99]], np.int32), ArgumentError, "negative ones"),
    ],
)
def test_what_is_wrong_with_tensors_is_named_and_changes_nothing(
    phi: og.Model, name: str, value: NDArray[Any] | None, error: type[Exception], words: str
) -> None:
    made, reference = generator(phi), generator(phi)
    for each in (made, reference):
        arrays = picture_arrays("phi3v", [0.5])
        arrays["pixel_values"] = np.abs(arrays["pixel_values"])
        each.set_inputs(named(og, arrays))
        go_on(each)
    wrong = {key: array for key, array in arrays.items() if key != name}
    wrong["pixel_values"] = wrong.get("pixel_values", np.zeros((1, 1, 3, 1, 1), np.float32))
    if name == "pixel_values":
        del wrong["pixel_values"]
    before = made.get_sequence(0).tolist()
    with pytest.raises(error, match=words):
        made.set_inputs(named(og, wrong if value is None else wrong | {name: value}))
    assert made.get_sequence(0).tolist() == before
    for each in (made, reference):
        each.append_tokens([7, 8])
    np.testing.assert_array_equal(made.get_logits(), reference.get_logits())


def test_beams_see_nothing(phi: og.Model) -> None:
    with pytest.raises(StateError, match="no beams"):
        generator(phi, num_beams=2).set_inputs(images(phi, 0.5))


def test_rows_of_a_batch_are_those_rows_alone(phi: og.Model) -> None:
    arrays = picture_arrays("phi3v", [0.5])
    arrays["pixel_values"] = np.abs(arrays["pixel_values"])
    alone = []
    for name_ids in (arrays, {"input_ids": np.array([[5, 6, 7]], np.int32)}):
        made = generator(phi)
        made.set_inputs(named(og, name_ids))
        alone.append(go_on(made)[-3:])
    prompts = [arrays["input_ids"][0].tolist(), [5, 6, 7, 0, 0]]
    with og.record() as trace:
        both = generator(phi, batch_size=2)
        both.set_inputs(named(og, arrays | {"input_ids": np.array(prompts, np.int32)}))
        for _ in range(3):
            both.generate_next_token()
    assert [both.get_sequence(row).tolist()[-3:] for row in range(2)] == alone
    assert (trace.stages()["stage"] == "run_vision").sum() == 1
    failing = arrays | {"input_ids": np.array(prompts, np.int32), "pixel_values": -1 - arrays["pixel_values"]}
    another = generator(phi, batch_size=2)
    with pytest.raises(StateError, match="Gather"):
        another.set_inputs(named(og, failing))
    assert another.token_count() == 0


def test_a_batch_of_places_of_three_numbers_is_refused(tmp_path: Path) -> None:
    model = og.Model(seeing(tmp_path / "model", "qwen2_5_vl"))
    arrays = picture_arrays("qwen2_5_vl", [0.5, 1.5])
    arrays["input_ids"] = arrays["input_ids"][:, 1:].reshape(2, -1)
    made = generator(model, batch_size=2)
    with pytest.raises(StateError, match="for one sequence only"):
        made.set_inputs(named(og, arrays))
    made.append_tokens(np.array([[5, 6], [7, 8]], np.int32))
    made.generate_next_token()


def test_a_batch_whose_attention_cannot_tell_padding(tmp_path: Path) -> None:
    model = og.Model(llama_that_sees(tmp_path / "model", shares=False))
    inputs = llama_inputs(og, [0.5])
    ids = inputs["input_ids"].as_numpy()
    pad = model.config.model.pad_token_id
    for text, fails in ([5, 6, 7, 8], False), ([5, 6, pad, pad], True):
        inputs["input_ids"] = np.concatenate([ids, np.array([text], np.int32)])
        made = generator(model, batch_size=2)
        if fails:
            with pytest.raises(StateError, match="must have one length"):
                made.set_inputs(inputs)
        else:
            made.set_inputs(inputs)
            assert made.get_input("image_features").shape == (1, 64)


def test_files_that_the_config_names_are_opened_with_the_model(tmp_path: Path) -> None:
    folder = seeing(tmp_path / "model", "phi3v")
    (folder / "vision.onnx").unlink()
    with pytest.raises(ModelFolderError, match=r"model.vision.filename"):
        og.Model(folder)


def test_places_of_three_numbers_are_given_to_the_decoder(model: og.Model) -> None:
    made = generator(model)
    made.set_inputs(images(model, 0.5))
    places = made.get_input("position_ids")
    assert places.shape[0] == (3 if model.type in QWEN else 1)
    if model.type in QWEN:
        assert places[:, 0].tolist() == [
            [0, 1, 2, 2, 2, 2, 4, 5],
            [0, 1, 2, 2, 3, 3, 4, 5],
            [0, 1, 2, 3, 2, 3, 4, 5],
        ]


def test_a_snapshot_behind_an_image_can_be_gone_back_to(tmp_path: Path) -> None:
    model = og.Model(hybrid(tmp_path / "model", embedded=True, model_type="qwen3_5", positions=3))
    made = generator(model)
    arrays = {"input_ids": np.array([[5, 6, 7]], np.int32), "pixel_values": np.ones((1, 2), np.float32)}
    made.set_inputs(named(og, arrays | {"image_sizes": np.array([[1, 1]]), "num_image_tokens": np.array([1])}))
    expected = made.get_logits()
    made.snapshot_state()
    text = go_on(made)
    with pytest.raises(StateError, match="snapshot"):
        made.rewind_to(2)
    for _ in range(2):
        made.rewind_to(3)
        np.testing.assert_array_equal(made.get_logits(), expected)
        assert go_on(made) == text
    made.rewind_to(0)
    made.append_tokens([5, 6, 7])
    assert made.get_input("image_features").shape == (1, 8)
    np.testing.assert_array_equal(made.get_logits(), expected)
