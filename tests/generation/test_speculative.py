"""Speculation in a generator: the text is what plain decoding writes; what was decided ahead can be thrown away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, ModelFolderError, StateError
from tests.tables import follow, random_table, table_model, table_pair

PROMPT = [1, 2, 3, 1, 2]


def generator(model: og.Model, options: dict[str, Any] | None = None, **speculative: Any) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 40} | (options or {}))
    params.set_speculative_options(**speculative)
    return og.Generator(model, params)


def finish(made: og.Generator) -> list[int]:
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(0).tolist()


def text(model: og.Model, options: dict[str, Any] | None = None, **speculative: Any) -> list[int]:
    made = generator(model, options, **speculative)
    made.append_tokens(PROMPT)
    return finish(made)


def consistent(stats: dict[str, Any]) -> bool:
    rounds = stats["completed_rounds"] + stats["interrupted_rounds"] + stats["active_rounds"]
    queued = stats["tokens_emitted"] + stats["tokens_discarded"] + stats["tokens_buffered"]
    return bool(stats["rounds"] == rounds and stats["tokens_queued"] == queued)


@pytest.fixture(scope="module", params=range(4))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def plain(seed: int, tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    return og.Model(table_model(tmp_path_factory.mktemp("plain") / "model", random_table(seed)))


@pytest.fixture(scope="module", params=[False, True], ids=["all logits", "last logits only"])
def pair(request: pytest.FixtureRequest, seed: int, tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    target = random_table(seed)
    draft = target + np.random.default_rng(seed).standard_normal(target.shape).astype(np.float32)
    folder = tmp_path_factory.mktemp("pair") / "model"
    return og.Model(table_pair(folder, target, draft, last_only=request.param))


@pytest.mark.parametrize("width", [1, 2, 4, 9])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.4}, {"min_length": 30}])
def test_greedy_with_a_draft_is_plain_greedy(
    plain: og.Model, pair: og.Model, width: int, options: dict[str, Any]
) -> None:
    assert text(pair, options, max_draft_tokens=width) == text(plain, options)


@pytest.mark.slow
@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 1.4},
        {"no_repeat_ngram_size": 3},
        {"do_sample": True, "random_seed": 3, "top_k": 4},
        {"do_sample": True, "random_seed": 4, "top_k": 0, "top_p": 0.9},
    ],
)
def test_ngrams_write_the_very_text_of_plain_decoding(plain: og.Model, options: dict[str, Any], chained: bool) -> None:
    """Sampled, too: one draw a token, from the same stream."""
    assert text(plain, options, ngram_size=2, ngram_chained_lookup=chained, max_draft_tokens=5) == text(plain, options)


@pytest.mark.slow
def test_sampling_with_a_draft_keeps_the_targets_distribution(tmp_path: Path) -> None:
    target, other = random_table(0, 5), random_table(1, 5)
    folders = table_model(tmp_path / "plain", target), table_pair(tmp_path / "pair", target, other)
    counts = []
    for folder in folders:
        model, found = og.Model(folder), Counter[tuple[int, ...]]()
        for number in range(500):
            options = {"max_length": 4, "do_sample": True, "top_k": 0, "temperature": 2.0, "random_seed": number}
            made = generator(model, options)
            made.append_tokens([1])
            found[tuple(finish(made)[1:])] += 1
        counts.append(found)
    a, b = counts
    texts = [t for t in set(a) | set(b) if a[t] + b[t] >= 10]
    chi = sum((a[t] - b[t]) ** 2 / (a[t] + b[t]) for t in texts)
    assert chi < len(texts) + 4 * (2 * len(texts)) ** 0.5, (chi, len(texts))


def test_one_token_a_call_and_counters_that_add_up(pair: og.Model) -> None:
    made = generator(pair, max_draft_tokens=4)
    made.append_tokens(PROMPT)
    while not made.is_done():
        before = made.token_count()
        made.generate_next_token()
        assert made.token_count() - before in (0, 1)
        assert consistent(made.get_speculative_stats())
    stats = made.get_speculative_stats()
    assert stats["active_rounds"] == 0 and stats["rounds"] > 0
    assert stats["correction_tokens"] + stats["bonus_tokens"] == stats["rounds"]


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 2, 3, 5])
@pytest.mark.parametrize("options", [{}, {"do_sample": True, "random_seed": 8, "top_k": 4}])
def test_appending_in_mid_round_is_as_if_nothing_had_been_decided(
    plain: og.Model, calls: int, options: dict[str, Any]
) -> None:
    found = []
    for speculative in ({}, {"ngram_size": 2, "max_draft_tokens": 6}):
        made = generator(plain, options, **speculative)
        made.append_tokens(PROMPT)
        for _ in range(calls):
            made.generate_next_token()
        made.append_tokens([3, 1])
        found.append(finish(made))
    assert found[0] == found[1]


@pytest.mark.parametrize("length", [0, 3, 6, 8])
def test_after_a_rewind_it_is_as_if_the_rest_had_never_been(pair: og.Model, length: int) -> None:
    made = generator(pair, max_draft_tokens=4)
    made.append_tokens(PROMPT)
    for _ in range(4):
        made.generate_next_token()
    kept = made.get_sequence(0).tolist()[:length]
    buffered = made.get_speculative_stats()["tokens_buffered"]
    discarded = made.get_speculative_stats()["tokens_discarded"]
    made.rewind_to(length)
    stats = made.get_speculative_stats()
    assert stats["tokens_buffered"] == 0 and stats["tokens_discarded"] == discarded + buffered
    made.append_tokens([2])
    fresh = generator(pair, max_draft_tokens=4)
    fresh.append_tokens([*kept, 2])
    assert finish(made) == finish(fresh)


def test_looking_at_logits_changes_nothing_and_replacing_them_does(plain: og.Model) -> None:
    looked, untouched = (generator(plain, ngram_size=2, max_draft_tokens=4) for _ in range(2))
    for made in (looked, untouched):
        made.append_tokens(PROMPT)
    for _ in range(8):
        np.testing.assert_array_equal(looked.get_logits(), looked.get_logits())
        chosen_from = looked.get_logits()[0, 0]
        looked.generate_next_token()
        assert looked.get_sequence(0)[-1] == chosen_from.argmax()
    assert finish(looked) == finish(untouched)
    forced = np.full(looked.model.vocab_size, -1e9, np.float32)
    forced[6] = 1e9
    made = generator(plain, ngram_size=2, max_draft_tokens=4)
    made.append_tokens(PROMPT)
    made.generate_next_token()
    made.get_logits()
    made.set_logits(forced)
    made.generate_next_token()
    assert made.get_sequence(0)[-1] == 6
    so_far = made.get_sequence(0).tolist()
    fresh = generator(plain)
    fresh.append_tokens(so_far)
    assert finish(made) == finish(fresh)


def test_a_failing_run_throws_the_round_away(plain: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"do_sample": True, "random_seed": 2, "top_k": 4}
    made = generator(plain, options, ngram_size=2, max_draft_tokens=4)
    made.append_tokens(PROMPT)
    made.generate_next_token()
    while made.get_speculative_stats()["tokens_buffered"]:
        made.generate_next_token()
    so_far = made.get_sequence(0).tolist()

    def fails(*_: object) -> None:
        raise RuntimeError("the machine is on fire")

    with monkeypatch.context() as patch:
        patch.setattr("genai_lab.generation.speculative.forward_all", fails)
        patch.setattr("genai_lab.generation.speculative.forward", fails)
        with pytest.raises(RuntimeError, match="on fire"):
            made.generate_next_token()
    assert made.get_sequence(0).tolist() == so_far
    assert finish(made) == text(plain, options)


def test_a_recording_has_every_token_that_was_handed_out(pair: og.Model) -> None:
    with og.record() as trace:
        made = generator(pair, max_draft_tokens=4)
        made.append_tokens(PROMPT)
        answer = finish(made)[len(PROMPT) :]
    frame = trace.tokens()
    assert frame["token"].tolist()[: len(answer)] == answer
    assert frame["index"].tolist() == list(range(len(frame)))


def test_a_person_who_stops_and_goes_on(plain: og.Model) -> None:
    made = generator(plain, ngram_size=2, max_draft_tokens=4)
    made.append_tokens(PROMPT)
    made.generate_next_token()
    made.stop()
    assert made.is_done() and made.finish_reason is og.FinishReason.CANCELLED
    assert consistent(made.get_speculative_stats())
    made.append_tokens([1])
    made.generate_next_token()


def test_what_cannot_be_combined_is_said(plain: og.Model, pair: og.Model, tmp_path: Path) -> None:
    for model, speculative in ((plain, {"ngram_size": 3}), (pair, {})):
        for options, words in (({"batch_size": 2}, "batch_size"), ({"num_beams": 2}, "beam search")):
            with pytest.raises(ArgumentError, match=words):
                generator(model, options, **speculative)
    with pytest.raises(ArgumentError, match="cannot be combined"):
        generator(pair, ngram_size=3)
    with pytest.raises(ArgumentError, match="no_repeat_ngram_size"):
        generator(pair, {"no_repeat_ngram_size": 2})
    pruned = og.Model(table_model(tmp_path / "pruned", follow({}), last_only=True))
    with pytest.raises(StateError, match=r"pruned last-token-only logits.*prune_lm_head=false\), take genai_lab.load"):
        generator(pruned, ngram_size=3)
    with pytest.raises(StateError, match="nothing was appended"):
        generator(pair).generate_next_token()


def test_models_that_cannot_speculate_are_refused_when_loaded(tmp_path: Path) -> None:
    import json

    def changed(name: str, change: Any) -> Path:
        folder = table_pair(tmp_path / name, follow({}), follow({}))
        config = json.loads((folder / "genai_config.json").read_text())
        change(config["model"])
        (folder / "genai_config.json").write_text(json.dumps(config))
        return folder

    cases = {
        "draft.filename is not set": lambda m: m.pop("draft"),
        "separate key/value KV-cache format": lambda m: m["decoder"]["inputs"].update(past_names="past_%d"),
        "sliding-window KV cache": lambda m: m["decoder"].update(
            sliding_window={"window_size": 16, "slide_key_value_cache": True}
        ),
        "LFM2": lambda m: m["decoder"].update(layer_types=["conv"]),
        "multimodal": lambda m: m.update(vision={"filename": "vision.onnx"}),
    }
    for number, (words, change) in enumerate(cases.items()):
        with pytest.raises(ModelFolderError, match=words):
            og.Model(changed(str(number), change))
