"""onnxruntime-genai loads what is built and reads it as we mean it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import genai_lab
from tests.builder.run import Runner
from tests.int8 import int8_folders
from tests.tiny import tiny_model_folder

og = pytest.importorskip("onnxruntime_genai")
pytestmark = pytest.mark.og

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [40, 41, 42], [100, 101, 102, 103, 104]]


def generate(folder: Path, prompts: list[list[int]], new_tokens: int = 12) -> list[list[int]]:
    """Greedy continuations; shorter prompts are padded on the right, as og's encode_batch does."""
    model = og.Model(str(folder))
    width = max(map(len, prompts))
    params = og.GeneratorParams(model)
    params.set_search_options(do_sample=False, max_length=width + new_tokens, batch_size=len(prompts))
    generator = og.Generator(model, params)
    padded = [prompt + [2] * (width - len(prompt)) for prompt in prompts]
    generator.append_tokens(np.asarray(padded if len(prompts) > 1 else padded[0], dtype=np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [list(map(int, generator.get_sequence(row)))[width:] for row in range(len(prompts))]


def until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(2)] if 2 in tokens else tokens


@pytest.fixture(scope="module", params=["fp32", "int4", "int8"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("og") / request.param, request.param)


def test_its_greedy_tokens_are_the_graphs(folder: Path) -> None:
    for prompt in PROMPTS:
        (tokens,) = generate(folder, [prompt])
        runner, ids, chosen = Runner(folder), prompt, []
        for _ in tokens:
            token = int(runner.step(np.asarray([ids]))[0, -1].argmax())
            ids = [token]
            chosen.append(token)
        assert chosen == tokens


def test_a_padded_batch_is_each_row_alone(folder: Path) -> None:
    """The pruned head takes each row's last real position, not the padding's."""
    together = generate(folder, PROMPTS)
    assert len({tuple(tokens) for tokens in together}) == len(PROMPTS)
    for prompt, tokens in zip(PROMPTS, together, strict=True):
        (alone,) = generate(folder, [prompt])
        assert until_end(tokens)[:8] == until_end(alone)[:8]


def test_all_positions_or_the_last_are_the_same_to_it(tmp_path: Path) -> None:
    folders = [tiny_model_folder(tmp_path / str(p), extra_options={"prune_lm_head": p}) for p in (True, False)]
    first, second = (generate(folder, PROMPTS) for folder in folders)
    assert first == second


def test_its_tokenizer_agrees(folder: Path) -> None:
    tokenizer = og.Tokenizer(og.Model(str(folder)))
    ids = list(map(int, tokenizer.encode("Hello the <|im_start|>😀 12")))
    assert tokenizer.decode(np.asarray(ids, dtype=np.int32)) == "Hello the 😀 12"
    messages = json.dumps([{"role": "user", "content": "Hi"}])
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, list(tokenizer.eos_token_ids)) == (1, 2, [2])


@pytest.mark.parametrize("kind", ["int8_per_tensor", "int8_per_channel"])
def test_an_8_bit_cache_runs_there_too(kind: str, tmp_path: Path) -> None:
    """The same tokens as a Generator of ours on the same folder."""
    small = int8_folders(tmp_path, kind)[1]
    model = genai_lab.Model(small)
    for prompt in PROMPTS:
        params = genai_lab.GeneratorParams(model)
        params.set_search_options(max_length=len(prompt) + 12)
        ours = genai_lab.Generator(model, params)
        ours.append_tokens(prompt)
        while not ours.is_done():
            ours.generate_next_token()
        assert until_end(generate(small, [prompt])[0]) == until_end(ours.get_sequence(0).tolist()[len(prompt) :])
