"""Models that see and hear, given prepared tensors: onnxruntime-genai and we give the same tokens and logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from tests.graphs_hybrid import hybrid
from tests.graphs_seeing import END, MELS, SOUND, START, VIDEO, named, picture_arrays, picture_inputs, seeing
from tests.graphs_seeing_llama import llama_inputs, llama_that_sees

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og

TYPES = ("phi3v", "gemma3", "gemma4", "mistral3", "qwen2_5_vl", "qwen3_vl")
LOOKED_AT = ("input_ids", "position_ids", "attention_mask", "image_features", "inputs_embeds")


def folder_of(path: Path, model_type: str) -> Path:
    """A Gemma 4 folder has a graph for sounds, too: there it is not loaded otherwise."""
    return seeing(path / "model", model_type, hears=model_type == "gemma4")


def generator(library: Any, folder: Path, **options: Any) -> Any:
    model = library.Model(str(folder))
    params = library.GeneratorParams(model)
    params.set_search_options(**{"do_sample": False, "max_length": 48} | options)
    return library.Generator(model, params)


def look(generator: Any) -> list[Any]:
    """The inputs of the last run."""
    return [np.array(generator.get_input(name)).tolist() for name in LOOKED_AT]


def answer(generator: Any, count: int = 6) -> list[Any]:
    """What the next tokens are chosen from, and they. The last token is read, too: onnxruntime-genai cannot append
    behind one that is not."""
    found: list[Any] = []
    for _ in range(count):
        found.append(np.round(np.array(generator.get_logits()).reshape(-1).astype(np.float64), 4).tolist())
        generator.generate_next_token()
    generator.get_logits()
    return [found, generator.get_sequence(0).tolist()]


def same(program: Any, folder: Path, **options: Any) -> None:
    theirs, ours = (program(library, generator(library, folder, **options)) for library in (og, genai_lab))
    assert ours == theirs


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("chunk_size", [0, 3])
def test_a_prompt_with_images(tmp_path: Path, model_type: str, images: int, chunk_size: int) -> None:
    def program(library: Any, made: Any) -> Any:
        made.set_inputs(picture_inputs(library, model_type, [0.5, 1.5][:images]))
        return ([] if chunk_size else look(made)), answer(made)

    options = {"chunk_size": chunk_size} if chunk_size else {}
    same(program, folder_of(tmp_path, model_type), **options)


@pytest.mark.parametrize("model_type", TYPES)
def test_text_alone_and_text_after_an_image(tmp_path: Path, model_type: str) -> None:
    folder = folder_of(tmp_path, model_type)

    def text(_library: Any, made: Any) -> Any:
        made.append_tokens(np.array([[5, 6, 7]], np.int32))
        first = look(made), answer(made, 2)
        made.append_tokens(np.array([[8, 9]], np.int32))
        return first, look(made), answer(made)

    def image_then_text(library: Any, made: Any) -> Any:
        made.set_inputs(picture_inputs(library, model_type, [0.5]))
        first = answer(made, 3)
        made.append_tokens(np.array([[8, 9]], np.int32))
        return first, look(made), answer(made)

    same(text, folder)
    same(image_then_text, folder)


@pytest.mark.parametrize("model_type", TYPES)
def test_tensors_set_before_the_prompt_is_appended(tmp_path: Path, model_type: str) -> None:
    def program(library: Any, made: Any) -> Any:
        arrays = picture_arrays(model_type, [0.5])
        ids = arrays.pop("input_ids")
        made.set_inputs(named(library, arrays))
        before = made.get_sequence(0).tolist()
        made.append_tokens(ids)
        return before, look(made), answer(made)

    same(program, folder_of(tmp_path, model_type))


@pytest.mark.parametrize("one_image", [True, False])
@pytest.mark.parametrize("sizes", [[(2, 2), (2, 2)], [(2, 4), (4, 2)]])
def test_images_of_two_grids(tmp_path: Path, one_image: bool, sizes: list[tuple[int, int]]) -> None:
    def program(library: Any, made: Any) -> Any:
        made.set_inputs(picture_inputs(library, "qwen2_5_vl", [0.5, 1.5], sizes=sizes, merge=2))
        return look(made), answer(made)

    same(program, seeing(tmp_path / "model", "qwen2_5_vl", one_image=one_image, merge=2))


def test_images_of_two_sizes_in_one_tensor(tmp_path: Path) -> None:
    def program(library: Any, made: Any) -> Any:
        made.set_inputs(picture_inputs(library, "mistral3", [0.5, 1.5], sizes=[(1, 2), (2, 3)]))
        return look(made), answer(made)

    same(program, seeing(tmp_path / "model", "mistral3"))


def test_an_image_and_a_sound(tmp_path: Path) -> None:
    def program(library: Any, made: Any) -> Any:
        arrays = picture_arrays("phi4mm", [0.5])
        arrays["input_ids"] = np.append(arrays["input_ids"], [[SOUND, SOUND, SOUND, 6]], axis=1).astype(np.int32)
        arrays["audio_embeds"] = np.cos(np.arange(3 * MELS, dtype=np.float32)).reshape(1, 3, MELS)
        arrays["audio_sizes"] = np.array([3], np.int64)
        made.set_inputs(named(library, arrays))
        return look(made), np.array(made.get_input("audio_features")).tolist(), answer(made)

    same(program, seeing(tmp_path / "model", "phi4mm", hears=True))


def test_two_sounds_of_two_lengths(tmp_path: Path) -> None:
    def program(library: Any, made: Any) -> Any:
        ids = [3, SOUND, SOUND, 4, SOUND, SOUND, SOUND, 5]
        arrays: dict[str, Any] = {"input_ids": np.array([ids], np.int32)}
        arrays["audio_embeds"] = np.cos(np.arange(6 * MELS, dtype=np.float32)).reshape(2, 3, MELS)
        arrays["audio_lengths"] = arrays["audio_sizes"] = np.array([2, 3], np.int64)
        made.set_inputs(named(library, arrays))
        return np.array(made.get_input("audio_features")).tolist(), answer(made)

    same(program, seeing(tmp_path / "model", "lfm2_audio", sees=False, hears=True, clips=True))


@pytest.mark.parametrize("seconds", [None, 0.5])
def test_places_in_a_video(tmp_path: Path, seconds: float | None) -> None:
    def program(library: Any, made: Any) -> Any:
        ids = [3, START, *[VIDEO] * 6, END, 4]
        arrays: dict[str, Any] = {"input_ids": np.array([ids], np.int32), "video_grid_thw": np.array([[3, 1, 2]])}
        arrays |= {} if seconds is None else {"second_per_grid_ts": np.array([seconds], np.float32)}
        made.set_inputs(named(library, arrays))
        return np.array(made.get_input("position_ids")).tolist(), answer(made)

    same(program, seeing(tmp_path / "model", "qwen2_5_vl"))


def test_inputs_by_the_graphs_own_names(tmp_path: Path) -> None:
    def program(library: Any, made: Any) -> Any:
        arrays = picture_arrays("phi3v", [0.5])
        arrays["pixels"] = arrays.pop("pixel_values")
        made.set_inputs(named(library, arrays))
        return look(made), answer(made)

    same(program, seeing(tmp_path / "model", "phi3v", names={"pixel_values": "pixels"}))


@pytest.mark.parametrize("shares", [False, True])
def test_fused_attention_behind_an_image(tmp_path: Path, shares: bool) -> None:
    def program(library: Any, made: Any) -> Any:
        made.set_inputs(llama_inputs(library, [0.5, 1.5]))
        prompt = made.token_count()
        first = answer(made)
        made.append_tokens(np.array([[8, 9]], np.int32))
        second = answer(made)
        if shares:  # without it, there is no going back behind an embedding there
            made.rewind_to(prompt + 2)
            made.append_tokens(np.array([[8, 9]], np.int32))
            second += answer(made)
        return first, second

    same(program, llama_that_sees(tmp_path / "model", shares=shares))


@pytest.mark.parametrize("positions", [2, 3])
def test_recurrent_layers_behind_an_image(tmp_path: Path, positions: int) -> None:
    """Every embedding of this model depends on the image's feature."""

    def program(library: Any, made: Any) -> Any:
        arrays = {"input_ids": [[5, 6, 7]], "pixel_values": [[0.5, 1.0]], "image_sizes": [[1, 1]]}
        arrays |= {"num_image_tokens": [1]}
        kinds = {"input_ids": np.int32, "pixel_values": np.float32}
        made.set_inputs(named(library, {n: np.array(v, kinds.get(n, np.int64)) for n, v in arrays.items()}))
        first = np.array(made.get_input("image_features")).tolist(), answer(made)
        made.append_tokens(np.array([[8, 9]], np.int32))
        return first, answer(made)

    kind = "qwen3_5" if positions == 3 else "gemma3"
    same(program, hybrid(tmp_path / "model", embedded=True, model_type=kind, positions=positions))


@pytest.mark.parametrize("model_type", ["phi3v", "gemma3"])
@pytest.mark.parametrize("ragged", [False, True])
def test_a_batch_with_an_image(tmp_path: Path, model_type: str, ragged: bool) -> None:
    def program(library: Any, made: Any) -> Any:
        arrays = picture_arrays(model_type, [0.5])
        text = [[5, 6, 7, 0, 0]] if ragged else [[5, 6, 7, 8, 9]]
        arrays["input_ids"] = np.concatenate([arrays["input_ids"], np.array(text, np.int32)])
        made.set_inputs(named(library, arrays))
        seen = np.array(made.get_input("image_features")).tolist()
        while not made.is_done():
            made.generate_next_token()
        none = np.array(made.get_input("image_features")).shape
        return seen, none, [made.get_sequence(row).tolist() for row in range(2)]

    same(program, seeing(tmp_path / "model", model_type), batch_size=2, max_length=14)
