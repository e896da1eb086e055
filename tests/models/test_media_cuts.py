"""Several images or sounds for one run or for many, and prompts that have not the places for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab
from genai_lab.errors import StateError
from genai_lab.models.encoders import SPEECH, VISION
from genai_lab.models.media_cuts import by_clip, by_grid, by_image, by_size, cut_for, together
from genai_lab.models.session import Arrays, Session
from tests.graphs_seeing import IMAGE, MELS, SOUND, START, named, picture_arrays, seeing


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = seeing(tmp_path_factory.mktemp("one") / "model", "qwen2_5_vl", one_image=True)
    return next(iter(genai_lab.Model(folder).encoders.values())).session


def counts(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def test_which_types_take_one_at_a_time() -> None:
    kinds = ("phi3v", "gemma3", "qwen3_vl", "mistral3", "gemma4", "lfm2_audio")
    assert [cut_for(kind) for kind in kinds] == [together, together, by_grid, by_size, by_image, by_clip]


def test_an_image_repeated_in_time_is_cut_with_its_repetitions(graph: Session) -> None:
    given: Arrays = {
        "pixel_values": np.arange(12, dtype=np.float32).reshape(12, 1),
        "image_grid_thw": np.array([[1, 1, 2], [1, 2, 2]]),
    }
    parts = by_grid(given, VISION, counts(2, 4), graph)
    assert [part["pixel_values"].reshape(-1).tolist() for part in parts] == [[0, 1, 2, 3], list(range(4, 12))]
    assert [part["image_grid_thw"].tolist() for part in parts] == [[[1, 1, 2]], [[1, 2, 2]]]


def zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("cut", "names", "given", "words"),
    [
        (by_grid, VISION, {"pixel_values": zeros(5, 3), "image_grid_thw": np.ones((2, 3), np.int64)}, "5 patches"),
        (by_size, VISION, {"pixel_values": zeros(2, 3, 4, 4)}, "require image_sizes metadata"),
        (
            by_size,
            VISION,
            {"pixel_values": zeros(2, 3, 4, 4), "image_sizes": np.array([[4, 4], [5, 1]])},
            "1 to .4, 4.",
        ),
        (by_image, VISION, {"pixel_values": zeros(2, 4, 3)}, "one num_image_tokens value per image"),
        (by_clip, SPEECH, {"audio_embeds": zeros(2, 4, 3)}, "holds 2 clips"),
        (by_clip, SPEECH, {"audio_embeds": zeros(2, 4, 3), "audio_lengths": np.array([4, 5])}, "allowed is 1 to 4"),
    ],
)
def test_tensors_that_contradict_one_another_are_named(
    cut: Any, names: Any, given: Arrays, words: str, graph: Session
) -> None:
    with pytest.raises(StateError, match=words):
        cut(given, names, counts(2, 2), graph)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("phi3v", {"input_ids": [[2, 4, 3]]}, "input_ids has 0 places"),
    ("phi3v", {"input_ids": [[2, -2, 3]]}, "input_ids has -2"),
    ("gemma3", {"input_ids": [[2, 5, 6]]}, "input_ids has 0 places .38. for the 1 features"),
    ("qwen2_5_vl", {"input_ids": [[2, IMAGE, IMAGE, IMAGE, IMAGE]]}, "input_ids has 0 pictures that begin"),
    ("qwen2_5_vl", {"image_grid_thw": [[1, 1, 2]]}, "image_grid_thw is"),
    ("mistral3", {"image_sizes": [[1, 2]]}, "image_sizes is"),
]


@pytest.mark.parametrize(("model_type", "wrong", "words"), WRONG)
def test_a_prompt_without_places_warns_first_and_is_refused_later(
    tmp_path: Path, model_type: str, wrong: dict[str, Any], words: str
) -> None:
    model = genai_lab.Model(seeing(tmp_path / "model", model_type))
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=40)
    arrays = picture_arrays(model_type, [0.5])
    arrays |= {name: np.array(value, arrays[name].dtype) for name, value in wrong.items()}
    first = genai_lab.Generator(model, params)
    with pytest.warns(UserWarning, match=words):
        first.set_inputs(named(genai_lab, arrays))
    later = genai_lab.Generator(model, params)
    later.append_tokens([5, 6])
    with pytest.raises(StateError, match=words):
        later.set_inputs(named(genai_lab, arrays))
    assert later.get_sequence(0).tolist() == [5, 6]


def test_a_prompt_without_places_for_a_sound(tmp_path: Path) -> None:
    model = genai_lab.Model(seeing(tmp_path / "model", "lfm2_audio", sees=False, hears=True, clips=True))
    made = genai_lab.Generator(model, genai_lab.GeneratorParams(model))
    made.append_tokens([START])
    sound = {"audio_embeds": zeros(1, 2, MELS), "audio_lengths": np.array([2]), "audio_sizes": np.array([2])}
    with pytest.raises(StateError, match=r"input_ids has 1 places .37. for the 2 features that audio_sizes counts"):
        made.set_inputs(named(genai_lab, {"input_ids": np.array([[SOUND, 5]], np.int32)} | sound))
    made.set_inputs(named(genai_lab, {"input_ids": np.array([[SOUND, SOUND]], np.int32)} | sound))
    assert made.get_input("audio_features").shape[0] == 2
