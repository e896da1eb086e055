"""Models of several graphs: onnxruntime-genai and we give the same tokens, from the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import genai_lab
from tests.graphs_adapted import adapted, export_adapter
from tests.graphs_cache import cached
from tests.graphs_hybrid import hybrid
from tests.graphs_split import llama_in_stages
from tests.graphs_stages import FRAMES, INT32, INT64, MELS, hearing, marian, pipeline
from tests.graphs_windowed import windowed
from tests.tiny import tiny_model_folder

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og

PROMPTS: dict[str, tuple[Any, dict[str, int]]] = {
    "one": ([5, 6, 7], {}),
    "batch": ([[5, 6, 7], [8, 9, 10]], {"batch_size": 2}),
    "ragged": ([[5, 6, 7], [8, 0, 0]], {"batch_size": 2}),
    "beams": ([5, 6, 7], {"num_beams": 3}),
    "beams of a batch": ([[5, 6, 7], [8, 9, 10]], {"batch_size": 2, "num_beams": 2}),
}


def answers(library: Any, folder: Path, prompts: Any, options: dict[str, int], looked_at: tuple[str, ...]) -> list[Any]:
    """The tokens of every row, and some inputs of every run."""
    params = library.GeneratorParams(library.Model(str(folder)))
    params.set_search_options(max_length=16, **options)
    generator = library.Generator(library.Model(str(folder)), params)
    generator.append_tokens(np.array(prompts, np.int32))
    seen: list[Any] = []
    while not generator.is_done():
        generator.generate_next_token()
        seen.append([np.array(generator.get_input(name)).tolist() for name in looked_at])
    return [seen, [generator.get_sequence(row).tolist() for row in range(options.get("batch_size", 1))]]


def same(folder: Path, how: str, looked_at: tuple[str, ...] = ()) -> None:
    prompts, options = PROMPTS[how]
    theirs, ours = (answers(library, folder, prompts, options, looked_at) for library in (og, genai_lab))
    assert ours == theirs


@pytest.mark.parametrize("how", PROMPTS)
@pytest.mark.parametrize("ids", ["int32", "int64"])
def test_marian(tmp_path: Path, how: str, ids: str) -> None:
    folder = marian(tmp_path / "model", **({"ids": INT64} if ids == "int64" else {}))
    same(folder, how, ("input_ids", "encoder_attention_mask", "past_key_values_length"))


@pytest.mark.parametrize("how", ["one", "batch", "ragged"])  # beams with them are refused by onnxruntime-genai
def test_marian_with_projections_that_are_handed_on(tmp_path: Path, how: str) -> None:
    same(marian(tmp_path / "model", projections=2), how)


STAGES: dict[str, dict[str, Any]] = {
    "a stage for the prompt and one for tokens": {},
    "one stage for both": {"split": False},
    "no other names": {"forwarded": False},
    "a head": {"stages": {"head": {"is_lm_head": True}}},
    "memory freed": {"stages": {"iterator": {"reset_session_idx": 1}}},
    "names that no file has": {"stages": {"head": {"inputs": ["hidden", "nothing"]}}},
    "options of its own": {"stages": {"context": {"session_options": {"intra_op_num_threads": 1}}}},
}


@pytest.mark.parametrize("kind", STAGES)
@pytest.mark.parametrize("how", ["one", "batch", "beams"])
def test_stages(tmp_path: Path, kind: str, how: str) -> None:
    same(pipeline(tmp_path / "model", **STAGES[kind]), how, ("input_ids", "attention_mask"))


def test_stages_with_prompts_of_different_lengths(tmp_path: Path) -> None:
    same(pipeline(tmp_path / "model"), "ragged")  # padding stands at the other end in our inputs


def test_stages_whose_attention_counts_the_masks_ones(tmp_path: Path) -> None:
    folder = llama_in_stages(tmp_path / "model")
    for prompts in ([[5, 6, 7, 9], [8, 2, 2, 2], [9, 10, 2, 2]], [[8, 2, 2, 2], [9, 10, 2, 2], [5, 6, 7, 9]]):
        theirs, ours = (answers(library, folder, prompts, {"batch_size": 3}, ()) for library in (og, genai_lab))
        assert ours == theirs


HYBRIDS: dict[str, dict[str, Any]] = {
    "recurrent": {},
    "convolution": {"recurrent": False},
    "only attention counted": {"layers": 1},
    "places on three axes": {"positions": 3},
    "places on two axes": {"positions": 2},
    "qwen3_5": {"embedded": True, "positions": 3, "model_type": "qwen3_5"},
    "gemma3": {"embedded": True, "positions": 2, "model_type": "gemma3"},
    "phi3v": {"embedded": True, "model_type": "phi3v"},
    "ids beside embeddings": {"embedded": True, "takes_ids_too": True, "model_type": "phi3v"},
}


@pytest.mark.parametrize("kind", HYBRIDS)
@pytest.mark.parametrize("how", ["one", "batch"])  # its beams leave their recurrent state behind; ours take it along
def test_layers_that_keep_one_state(tmp_path: Path, kind: str, how: str) -> None:
    looked_at = ("attention_mask", "position_ids") if "positions" in HYBRIDS[kind] else ("attention_mask",)
    same(hybrid(tmp_path / "model", **HYBRIDS[kind]), how, looked_at)


def test_beams_of_layers_of_convolution(tmp_path: Path) -> None:
    same(hybrid(tmp_path / "model", recurrent=False), "beams")


WINDOWS: dict[str, dict[str, Any]] = {
    "filled at the beginning": {},
    "filled at the end": {"alignment": "left"},
    "64 bits": {"ids": INT64, "mask": INT64, "positions": INT64},
    "lengths alone": {"mask": None, "positions": None},
}


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("prompt", [[5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8, 9, 10, 11, 12], list(range(5, 14))])
def test_prompts_in_windows(tmp_path: Path, kind: str, prompt: list[int]) -> None:
    options = {"mask": INT32, "positions": INT32} | WINDOWS[kind]
    folder = windowed(tmp_path / "model", shared=True, lengths=True, pad_value=3, **options)
    given = {"attention_mask": options["mask"], "position_ids": options["positions"]}
    names = tuple(name for name, kind in given.items() if kind is not None)
    looked_at = ("input_ids", "past_sequence_length", "total_sequence_length", "past_key_values.0.key", *names)
    theirs, ours = (answers(library, folder, prompt, {}, looked_at) for library in (og, genai_lab))
    assert ours == theirs


@pytest.mark.parametrize("alignment", ["left", "right"])
@pytest.mark.parametrize("prompt", [[5, 6, 7], [5, 6, 7, 8]])  # its cache that grows takes one window
def test_one_window_before_a_cache_that_grows(tmp_path: Path, alignment: str, prompt: list[int]) -> None:
    folder = windowed(tmp_path / "model", alignment=alignment)
    theirs, ours = (answers(library, folder, prompt, {}, ("attention_mask",)) for library in (og, genai_lab))
    assert ours == theirs


@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "BFLOAT16", "INT8", "UINT8"])
@pytest.mark.parametrize("how", ["one", "batch", "beams"])
def test_caches_of_other_types_and_sizes(tmp_path: Path, kind: str, how: str) -> None:
    same(cached(tmp_path / "model", getattr(TensorProto, kind), [(2, 4), (1, 8)]), how, ("attention_mask",))


@pytest.mark.parametrize("how", ["one", "batch", "beams", "beams of a batch"])
def test_an_encoder_that_hears(tmp_path: Path, how: str) -> None:
    prompts, options = PROMPTS[how]
    folder, rows = hearing(tmp_path / "model"), options.get("batch_size", 1)
    features = np.random.default_rng(1).standard_normal((rows, MELS, FRAMES)).astype(np.float32)
    found = []
    for library in (og, genai_lab):
        model = library.Model(str(folder))
        params = library.GeneratorParams(model)
        params.set_search_options(max_length=14, **options)
        generator = library.Generator(model, params)
        inputs = library.NamedTensors()
        inputs["audio_features"] = library.Tensor(features)
        inputs["input_ids"] = library.Tensor(np.array(prompts, np.int32).reshape(rows, -1))
        generator.set_inputs(inputs)
        while not generator.is_done():
            generator.generate_next_token()
        found.append([generator.get_sequence(row).tolist() for row in range(rows)])
    assert found[1] == found[0]


def test_a_sound_that_is_missing_is_named_by_both(tmp_path: Path) -> None:
    folder = hearing(tmp_path / "model")
    for library in (og, genai_lab):
        model = library.Model(str(folder))
        generator = library.Generator(model, library.GeneratorParams(model))
        inputs = library.NamedTensors()
        inputs["input_ids"] = library.Tensor(np.array([[5, 6]], np.int32))
        with pytest.raises(RuntimeError, match="audio_features must be provided via SetInputs"):
            generator.set_inputs(inputs)


@pytest.mark.parametrize("how", ["one", "batch", "beams"])
def test_an_adapter_changes_one_graph_alike(tmp_path: Path, how: str) -> None:
    folder = adapted(tiny_model_folder(tmp_path / "model", extra_options={"prune_lm_head": False}))
    theirs, ours = (with_adapter(library, folder, tmp_path, *PROMPTS[how]) for library in (og, genai_lab))
    assert ours == theirs
    assert ours[0] != ours[1]


def test_an_adapter_for_a_stage_is_overlooked_there(tmp_path: Path) -> None:
    folder = adapted(llama_in_stages(tmp_path / "model"), "head.onnx")
    theirs, ours = (with_adapter(library, folder, tmp_path, *PROMPTS["one"]) for library in (og, genai_lab))
    assert ours[0] == theirs[0] == theirs[1]
    assert ours[1] != theirs[1]


def with_adapter(library: Any, folder: Path, place: Path, prompts: Any, options: dict[str, int]) -> list[Any]:
    """The answers without an adapter and with it."""
    model, found = library.Model(str(folder)), []
    shift = 5 * np.random.default_rng(0).standard_normal(288).astype(np.float32)
    adapters = library.Adapters(model)
    adapters.load(str(export_adapter(place / "a.onnx_adapter", shift)), "a")
    for active in (False, True):
        params = library.GeneratorParams(model)
        params.set_search_options(max_length=12, **options)
        generator = library.Generator(model, params)
        if active:
            generator.set_active_adapter(adapters, "a")
        generator.append_tokens(np.array(prompts, np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        found.append([generator.get_sequence(row).tolist() for row in range(options.get("batch_size", 1))])
    return found
