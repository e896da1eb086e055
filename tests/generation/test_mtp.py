"""Speculation by a head on the model's own hidden states: the text is what the main model writes alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError, StateError
from tests.graphs_mtp import HIDDEN, mtp_llama, mtp_tables
from tests.tables import random_table, table_model

PROMPT = [1, 2, 3, 1, 2]


def mtp(
    model: og.Model, head: og.Model | None, options: dict[str, Any] | None = None, width: int = 4
) -> og.MtpGenerator:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 40} | (options or {}))
    params.set_speculative_options(max_draft_tokens=width)
    return og.MtpGenerator(model, head, params)


def written(made: og.MtpGenerator, prompt: list[int] = PROMPT) -> list[int]:
    made.append_tokens(np.array(prompt, np.int32))
    while not made.is_done():
        made.generate_next_token()
    tokens = made.get_sequence().tolist()
    return tokens[:-1] if made.finish_reason is og.FinishReason.EOS else tokens  # which a Generator's text is without


def plain(model: og.Model, options: dict[str, Any] | None = None, prompt: list[int] = PROMPT) -> list[int]:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 40} | (options or {}))
    made = og.Generator(model, params)
    made.append_tokens(prompt)
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(0).tolist()


@pytest.fixture(scope="module", params=[(0, np.float32), (1, np.float32), (2, np.float16)], ids=str)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[og.Model, og.Model]:
    seed, dtype = request.param
    main, head = mtp_tables(tmp_path_factory.mktemp("mtp"), seed, noise=0.4, dtype=dtype)
    return og.Model(main), og.Model(head)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    return og.Model(mtp_llama(tmp_path_factory.mktemp("llama")))


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2, 4, 9])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.4}, {"min_length": 30}])
def test_greedy_is_plain_greedy(models: tuple[og.Model, og.Model], width: int, options: dict[str, Any]) -> None:
    made = mtp(*models, options, width)
    assert written(made) == plain(models[0], options)
    stats = made.get_stats()
    assert stats["accepts"] == stats["draft_tokens_accepted"] and stats["trials"] >= stats["accepts"]
    assert stats["forwards"] == stats["rounds"], "nothing is read twice"


def test_a_head_that_guesses_right_saves_runs(tmp_path: Path) -> None:
    main, head = (og.Model(folder) for folder in mtp_tables(tmp_path, 0, noise=0.0))
    made = mtp(main, head, width=3)
    tokens = len(written(made)) - len(PROMPT)
    stats = made.get_stats()
    assert stats["acceptance_rate"] == 1.0
    assert stats["forwards"] <= -(-tokens // 4) + 1


def test_a_llama_with_a_head_of_one_layer_in_its_folder(llama: og.Model) -> None:
    for prompt in ([40], [40, 50, 60, 70]):
        made = mtp(llama, None, width=3)
        assert written(made, prompt) == plain(llama, prompt=prompt)
        assert made.get_stats()["rounds"] > 5


def test_the_head_reads_the_answer_as_it_would_at_once(llama: og.Model) -> None:
    """What is in the head's cache after many rounds is what one run over all pairs leaves there."""
    made = mtp(llama, None, width=2)
    text = np.array(written(made, [40, 50, 60]), np.int32)
    params = og.GeneratorParams(llama)
    params.set_search_options(max_length=60)
    main = og.Generator(llama, params)
    main.append_tokens(text)
    hidden = main.get_output("hidden_states")[:, 2:-1]
    head = og.Generator(made.mtp_model, og.GeneratorParams(made.mtp_model))
    head.set_hidden_states(hidden)
    head.append_tokens(text[3:])
    proposer = made._search._proposer
    proposer.propose(made._search._tokens, 1)
    np.testing.assert_allclose(proposer._state.read_logits(), head.get_output("logits")[0, -1], atol=1e-4)


@pytest.mark.slow
def test_sampling_keeps_the_main_models_distribution(tmp_path: Path) -> None:
    main, head = (og.Model(folder) for folder in mtp_tables(tmp_path, 3, noise=0.5))
    counts: list[Counter[tuple[int, ...]]] = [Counter(), Counter()]
    for number in range(500):
        options = {"max_length": 4, "do_sample": True, "top_k": 0, "temperature": 3.0, "random_seed": number}
        counts[0][tuple(plain(main, options, [1])[1:])] += 1
        counts[1][tuple(written(mtp(main, head, options, 2), [1])[1:])] += 1
    a, b = counts
    texts = [t for t in set(a) | set(b) if a[t] + b[t] >= 10]
    chi = sum((a[t] - b[t]) ** 2 / (a[t] + b[t]) for t in texts)
    assert len(texts) > 10 and chi < len(texts) + 4 * (2 * len(texts)) ** 0.5, (chi, len(texts))


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_going_on_after_another_prompt_and_after_reset(models: tuple[og.Model, og.Model], calls: int) -> None:
    made = mtp(*models)
    made.append_tokens(PROMPT)
    for _ in range(calls):
        made.generate_next_token()
    so_far = made.get_sequence().tolist()
    assert written(made, [3, 1]) == plain(models[0], prompt=[*so_far, 3, 1])
    made.reset()
    assert made.get_sequence().size == 0 and made.get_stats()["rounds"] == 0
    assert written(made) == plain(models[0])


def test_rounds_are_recorded(models: tuple[og.Model, og.Model]) -> None:
    with og.record() as trace:
        made = mtp(*models, width=3)
        written(made)
    rounds, stats = trace.rounds(), made.get_stats()
    assert set(rounds["by"]) == {"mtp"} and len(rounds) == stats["rounds"]
    assert len(trace.proposals()) == stats["draft_tokens_proposed"]
    assert trace.tokens()["token"].tolist() == made.get_sequence().tolist()[len(PROMPT) :]


def test_the_same_by_hand(models: tuple[og.Model, og.Model]) -> None:
    """og's own example: two generators, hidden states handed over by the caller."""
    main, head = models
    params = og.GeneratorParams(main)
    params.set_search_options(max_length=60)
    made = og.Generator(main, params)
    made.append_tokens(PROMPT)
    text, hidden, tokens = list(PROMPT), [], []
    token, state = int(made.get_output("logits")[0, -1].argmax()), made.get_output("hidden_states")[0, -1]
    while len(text) < 20:
        text.append(token)
        hidden.append(state)
        tokens.append(token)
        drafting = og.Generator(head, og.GeneratorParams(head))
        drafting.set_hidden_states(np.stack(hidden)[None])
        drafting.append_tokens(tokens)
        draft = int(drafting.get_output("logits")[0, -1].argmax())
        length = made.token_count()
        made.snapshot_state()
        made.append_tokens([token, draft])
        logits, states = made.get_output("logits")[0], made.get_output("hidden_states")[0]
        best = logits[-2:].argmax(-1).tolist()
        if best[0] == draft:
            text.append(draft)
            hidden.append(states[-2])
            tokens.append(draft)
            token, state = best[1], states[-1]
        else:
            made.rewind_to(length + 1)
            token, state = best[0], states[-2]
    assert text[:20] == plain(main)[:20]


def test_what_does_not_fit_is_said(models: tuple[og.Model, og.Model], tmp_path: Path) -> None:
    main, head = models
    for options, words in (({"batch_size": 2}, "batch_size is 2"), ({"num_beams": 2}, "num_beams is 2")):
        with pytest.raises(ArgumentError, match=words):
            mtp(main, head, options)
    params = og.GeneratorParams(main)
    with pytest.raises(ArgumentTypeError, match=r"got Model, str, GeneratorParams"):
        og.MtpGenerator(main, "head", params)
    plain_model = og.Model(table_model(tmp_path / "plain", random_table(0)))
    with pytest.raises(ModelFolderError, match=r"no model\.mtp\.filename"):
        mtp(plain_model, None)
    with pytest.raises(ArgumentError, match="must name one of logits"):
        mtp(plain_model, head)
    with pytest.raises(ArgumentError, match="no input 'hidden_states'"):
        mtp(main, plain_model)
    alone = og.Model(mtp_tables(tmp_path / "alone", 0, feeds_back=False)[1])
    first = og.Model(mtp_tables(tmp_path / "again", 0, feeds_back=False)[0])
    with pytest.raises(ArgumentError, match=r"set_speculative_options\(max_draft_tokens=1\)"):
        mtp(first, alone)
    assert written(mtp(first, alone, width=1)) == plain(first)
    with pytest.raises(StateError, match="nothing was appended"):
        mtp(main, head).generate_next_token()


def test_hidden_states_of_another_size_are_refused(tmp_path: Path) -> None:
    main, _ = mtp_tables(tmp_path / "wide", 0, hidden=HIDDEN + 1)
    _, head = mtp_tables(tmp_path / "usual", 0)
    with pytest.raises(ArgumentError, match=f"{HIDDEN + 1} numbers in the main model and {HIDDEN} in the head"):
        mtp(og.Model(main), og.Model(head))


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    main, head = mtp_tables(tmp_path, 0)
    config = json.loads((head / "genai_config.json").read_text())
    config["model"]["vocab_size"] = 9
    (head / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(ArgumentError, match="8 tokens, the head's 9"):
        mtp(og.Model(main), og.Model(head))


def test_after_close_every_call_says_so(llama: og.Model) -> None:
    with mtp(llama, None) as made:
        written(made, [40])
        own = made.mtp_model
        assert "MtpGenerator" in {thing.kind for thing in og.live_objects()}
    made.close()
    calls = (made.generate_next_token, made.get_sequence, made.is_done, made.get_stats, made.reset)
    for call in (*calls, lambda: made.append_tokens([1])):
        with pytest.raises(StateError, match="this MtpGenerator is closed"):
            call()
    assert repr(made) == "<genai_lab.MtpGenerator: closed>"
    with pytest.raises(StateError, match="closed"):
        _ = own.graph
    assert plain(llama, prompt=[40])[0] == 40, "the main model stays"
