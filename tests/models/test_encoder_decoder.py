"""Models with an encoder: the prompt goes to the encoder once, the answer grows in the decoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import genai_lab
from genai_lab.errors import ArgumentError, ModelFolderError, StateError
from tests.graphs import HEAD_SIZE, HEADS, HIDDEN, LAYERS
from tests.graphs_stages import FRAMES, MELS, encoder_decoder, hearing, marian

BUILD: dict[str, Callable[[Path], Path]] = {
    "marian": marian,
    "cross cache": encoder_decoder,
    "hidden states": lambda path: encoder_decoder(path, cross_cache=False),
}


@pytest.fixture(scope="module", params=BUILD)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    return genai_lab.Model(BUILD[request.param](tmp_path_factory.mktemp("encoder") / "model"))


def generator(model: genai_lab.Model, prompts: object, **options: int) -> genai_lab.Generator:
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=14, **options)
    made = genai_lab.Generator(model, params)
    made.append_tokens(np.array(prompts, np.int32))
    return made


def finished(made: genai_lab.Generator, row: int = 0) -> list[int]:
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(row).tolist()


def plain_loop(folder: Path, prompt: list[int], steps: int) -> list[int]:
    """Greedy tokens of a model with a cross cache by onnxruntime alone."""
    encoder, decoder = (ort.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    mask = np.ones((1, len(prompt)), np.int64)
    names = [output.name for output in encoder.get_outputs()]
    given = encoder.run(names, {"input_ids": np.array([prompt], np.int64), "attention_mask": mask})
    feeds = {name.replace("present_", "past_"): value for name, value in zip(names, given, strict=True)}
    feeds["encoder_attention_mask"] = mask
    for layer in range(LAYERS):
        for part in ("key", "value"):
            feeds[f"past_key_values.{layer}.{part}"] = np.zeros((1, HEADS, 0, HEAD_SIZE), np.float32)
    tokens, outputs = [3], [output.name for output in decoder.get_outputs()]
    for _ in range(steps):
        feeds["input_ids"] = np.array([[tokens[-1]]], np.int64)
        result = dict(zip(outputs, decoder.run(outputs, feeds), strict=True))
        feeds |= {n.replace("present.", "past_key_values."): v for n, v in result.items() if n != "logits"}
        tokens.append(int(result["logits"][0, -1].argmax()))
    return tokens[1:]


@pytest.mark.parametrize("cross_cache", [True, False])
def test_tokens_are_those_of_a_plain_loop(tmp_path: Path, cross_cache: bool) -> None:
    folder = encoder_decoder(tmp_path / "model", cross_cache=cross_cache)
    made = finished(generator(genai_lab.Model(folder), [5, 6, 7]))
    assert made[:3] == [5, 6, 7]
    assert made[3:] == plain_loop(folder, [5, 6, 7], 11)


def test_the_start_token_is_not_in_the_text(model: genai_lab.Model) -> None:
    made = generator(model, [5, 6, 7])
    assert made.token_count() == 3
    made.generate_next_token()
    assert made.get_sequence(0).tolist() == [5, 6, 7, *made.get_next_tokens()]


def test_rows_of_a_batch_are_those_rows_alone(model: genai_lab.Model) -> None:
    made = generator(model, [[5, 6, 7], [8, 0, 0], [0, 9, 10]], batch_size=3)
    finished(made)
    for row, prompt in enumerate(([5, 6, 7], [8], [9, 10])):
        own = finished(generator(model, prompt))[len(prompt) :]
        shown = made.get_sequence(row).tolist()[3:]
        length = min(len(own), len(shown))
        assert shown[:length] == own[:length]


def test_a_rewind_is_as_if_the_rest_had_never_been(model: genai_lab.Model) -> None:
    whole = finished(generator(model, [5, 6, 7]))
    made = generator(model, [5, 6, 7])
    for length in (5, 4, 3):
        finished(made)
        made.rewind_to(length)
        assert finished(made) == whole
    made.rewind_to(2)  # inside the prompt: it is encoded again
    np.testing.assert_array_equal(made.get_logits(), generator(model, [5, 6]).get_logits())
    made.rewind_to(0)
    made.append_tokens([5, 6, 7, 8])
    np.testing.assert_array_equal(made.get_logits(), generator(model, [5, 6, 7, 8]).get_logits())


def test_what_is_appended_later_is_the_decoders(model: genai_lab.Model) -> None:
    whole = finished(generator(model, [5, 6, 7]))
    made = generator(model, [5, 6, 7])
    made.append_tokens(whole[3:5])
    assert finished(made) == whole
    single = generator(model, [5, 6, 7])
    single.append_tokens(whole[3:4])
    assert finished(single) == whole


def test_a_prompt_in_chunks_is_encoded_whole(model: genai_lab.Model) -> None:
    prompt = [5, 6, 7, 8, 9]
    assert finished(generator(model, prompt, chunk_size=2)) == finished(generator(model, prompt))


def test_a_fork_goes_its_own_way(model: genai_lab.Model) -> None:
    whole = finished(generator(model, [5, 6, 7]))
    made = generator(model, [5, 6, 7])
    made.append_tokens(whole[3:6])
    twin = made.fork(4)
    assert finished(twin) == whole
    assert finished(made) == whole


def test_beams_find_what_is_at_least_as_likely(model: genai_lab.Model) -> None:
    greedy, beams = finished(generator(model, [5, 6, 7])), finished(generator(model, [5, 6, 7], num_beams=4))

    def score(tokens: list[int]) -> float:
        made, total = generator(model, [5, 6, 7]), 0.0
        for token in tokens[3:]:
            logits = made.get_logits().reshape(-1).astype(np.float64)
            total += float(logits[token] - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
            made.append_tokens([token])
        return total

    assert score(beams) >= score(greedy) - 1e-3


def test_what_the_encoder_and_the_decoder_disagree_on_is_named(tmp_path: Path) -> None:
    folder, other = marian(tmp_path / "a", projections=2), marian(tmp_path / "b", projections=1)
    (folder / "encoder.onnx").write_bytes((other / "encoder.onnx").read_bytes())
    with pytest.raises(ModelFolderError, match="cached_source_projection_1"):
        genai_lab.Model(folder)


def test_an_input_of_the_decoder_that_nothing_gives_is_named(tmp_path: Path) -> None:
    folder = marian(tmp_path / "model")
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["decoder"]["inputs"]["rnn_states_prev"] = "states"
    (folder / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(RuntimeError, match=r"Missing Input: rnn_states_prev\. 'decoder.onnx'"):
        generator(genai_lab.Model(folder), [5])


def test_the_state_of_a_recurrent_decoder_can_be_looked_at(tmp_path: Path) -> None:
    made = generator(genai_lab.Model(marian(tmp_path / "model")), [5, 6])
    assert made.get_output("rnn_states").shape == (3, 1, HIDDEN)
    assert made.get_input("past_key_values_length").tolist() == [0]
    assert made.kv_cache_bytes == 0


def heard(model: genai_lab.Model, prompts: object, **options: int) -> genai_lab.Generator:
    """A generator that was given the features of a sound for every prompt."""
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=14, **options)
    made = genai_lab.Generator(model, params)
    shape = (options.get("batch_size", 1), MELS, FRAMES)
    made.set_model_input("audio_features", np.random.default_rng(1).standard_normal(shape).astype(np.float32))
    made.append_tokens(np.array(prompts, np.int32))
    return made


def test_where_the_encoder_hears_the_prompt_is_the_decoders(tmp_path: Path) -> None:
    model = genai_lab.Model(hearing(tmp_path / "model"))
    whole = finished(heard(model, [5, 6, 7]))
    parts = heard(model, [5, 6])
    parts.append_tokens([7])
    assert finished(parts) == whole
    parts.rewind_to(2)
    parts.append_tokens([7])
    assert finished(parts) == whole
    assert finished(parts.fork(5)) == whole
    with pytest.raises(StateError, match=r"Missing Input: audio_features\. 'encoder.onnx'"):
        generator(model, [5])
    with pytest.raises(ArgumentError, match="prompts of one length"):
        heard(model, [[5, 6], [7, 0]], batch_size=2)
