"""A model whose KV cache has 8 bits: what it keeps, how near it stays, and that every way of running it agrees."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab
from genai_lab.builder.kv_cache import parse_kv_cache
from genai_lab.models.decoder import DecoderState
from genai_lab.models.exactness import batch_facts
from tests.int8 import int8_folders

KINDS = ("int8_per_tensor", "int8_per_channel")
PROMPT = np.random.default_rng(0).integers(3, 250, 40).astype(np.int32)


@pytest.fixture(scope="module", params=KINDS)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[genai_lab.Model, ...]:
    return tuple(map(genai_lab.Model, int8_folders(tmp_path_factory.mktemp(request.param), request.param)))


def read(model: genai_lab.Model, tokens: NDArray[np.int32]) -> DecoderState:
    state = DecoderState(model, 64)
    state.prepare(tokens, 0)
    state.run()
    return state


def test_a_token_takes_a_quarter_of_the_memory(models: tuple[genai_lab.Model, ...]) -> None:
    plain, small = models
    assert (small.kv_layout.dtype, small.kv_layout.num_layers) == ("int8", plain.kv_layout.num_layers)
    assert small.kv_layout.bytes_per_token == small.kv_bytes_per_token == plain.kv_bytes_per_token // 4
    assert small.describe()["kv_bytes_per_token"] == small.kv_bytes_per_token
    assert small.appends_in_place
    assert read(small, PROMPT).cache.nbytes * 4 == read(plain, PROMPT).cache.nbytes


def test_the_first_layer_keeps_the_float_ones_rounded(models: tuple[genai_lab.Model, ...]) -> None:
    """Its input does not depend on the cache, so its keys and values can be compared one by one."""
    plain, small = (read(model, PROMPT).cache for model in models)
    file = models[1].config.folder.parent / "scales.json"
    per_tensor = isinstance(json.loads(file.read_text())["scales"]["k_scales"][0], float)
    scales = parse_kv_cache(KINDS[0] if per_tensor else KINDS[1], str(file))
    assert scales is not None
    heads = (plain.layout.num_kv_heads, 1, -1)
    for exact, kept, scale in (
        (plain.keys(0), small.keys(0), scales.keys[0]),
        (plain.values(0), small.values(0), scales.values[0]),
    ):
        rounded = np.clip(np.rint(exact[0] / (scale if per_tensor else scale.reshape(heads))), -128, 127)
        assert np.abs(rounded - kept[0]).max() <= 1
        assert np.mean(rounded == kept[0]) > 0.999
        assert np.abs(kept).max() > 80, "the scales use the room that there is"


def test_its_logits_stay_near(models: tuple[genai_lab.Model, ...]) -> None:
    plain, small = (read(model, PROMPT).read_all_logits().astype(np.float64) for model in models)
    error = np.sqrt(np.mean((plain - small) ** 2)) / plain.std()
    assert 1e-5 < error < 0.1
    assert np.mean(plain.argmax(-1) == small.argmax(-1)) >= 0.85


@pytest.mark.parametrize("cuts", [(2,), (17, 33), (38,)])
def test_chunks_keep_and_say_what_the_whole_does(models: tuple[genai_lab.Model, ...], cuts: tuple[int, ...]) -> None:
    whole, state, start = read(models[1], PROMPT), DecoderState(models[1], 64), 0
    for stop in (*cuts, PROMPT.size):
        state.prepare(PROMPT[start:stop], start)
        state.run()
        start = stop
    np.testing.assert_array_equal(state.cache.slab[..., :start, :], whole.cache.slab[..., :start, :])
    np.testing.assert_array_equal(state.read_logits(), whole.read_logits())


def test_a_row_in_a_batch_is_that_row_alone(models: tuple[genai_lab.Model, ...]) -> None:
    """Of float32 weights; the probe fills the cache with whole numbers."""
    facts = batch_facts(models[1], 4)
    assert facts.is_exact and facts.is_invariant


def answer(model: genai_lab.Model, count: int, **options: object) -> list[list[int]]:
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=PROMPT.size + count, **options)
    generator = genai_lab.Generator(model, params)
    rows = int(options.get("batch_size", 1))  # type: ignore[call-overload]
    generator.append_tokens(np.stack([PROMPT] * rows) if rows > 1 else PROMPT)
    while not generator.is_done():
        generator.generate_next_token()
    returned = int(options.get("num_return_sequences", rows))  # type: ignore[call-overload]
    return [generator.get_sequence(row).tolist()[PROMPT.size :] for row in range(returned)]


def test_generators_batches_and_beams_run_it(models: tuple[genai_lab.Model, ...]) -> None:
    plain, small = models
    (alone,) = answer(small, 12)
    assert answer(small, 12, batch_size=2) == [alone, alone]
    assert alone[:3] == answer(plain, 12)[0][:3]
    best, second = answer(small, 8, num_beams=3, num_return_sequences=2)
    assert best != second
    assert answer(small, 8, num_beams=3) == [best]


def test_going_back_and_reading_on_is_a_fresh_run(models: tuple[genai_lab.Model, ...]) -> None:
    params = genai_lab.GeneratorParams(models[1])
    params.set_search_options(max_length=PROMPT.size + 6)
    generator = genai_lab.Generator(models[1], params)
    generator.append_tokens(PROMPT)
    while not generator.is_done():
        generator.generate_next_token()
    first = generator.get_sequence(0).tolist()
    kept = generator.get_output(models[1].config.model.decoder.outputs.present_key_names % 0)
    assert kept.dtype == np.int8
    generator.rewind_to(PROMPT.size - 3)
    generator.append_tokens(PROMPT[-3:])
    while not generator.is_done():
        generator.generate_next_token()
    assert generator.get_sequence(0).tolist() == first
