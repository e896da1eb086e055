"""What a trace says about a generator: runs, branches, stages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab as og

PROMPT = [1, 20, 30, 40, 50]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def generator(model: og.Model, **options: object) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**({"max_length": 60} | options))
    return og.Generator(model, params)


def steps(made: og.Generator, count: int) -> None:
    for _ in range(count):
        made.generate_next_token()


def test_a_chat_is_recorded_from_template_to_text(model: og.Model) -> None:
    tokenizer = og.Tokenizer(model)
    with og.record() as trace:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Hello there"}])
        made = generator(model, repetition_penalty=1.2, min_length=50)
        made.append_tokens(tokenizer.encode(prompt))
        stream = tokenizer.create_stream()
        for _ in range(4):
            made.generate_next_token()
            stream.decode(int(made.get_next_tokens()[0]))
    stages = trace.stages()
    assert set(stages["run"]) == {0}
    first = stages["stage"].tolist()[:4]
    assert first == ["chat_template", "tokenize", "prepare_inputs", "run_prefill"]
    for name, count in {
        "run_prefill": 1, "run_decode": 3, "min_length": 4, "repetition_penalty": 4, "select": 4, "commit": 4,
        "detokenize": 4, "recorder": 4, "kv_append": 4,
    }.items():  # fmt: skip
        assert (stages["stage"] == name).sum() == count, name
    assert stages.loc[stages["stage"] == "detokenize", "token"].tolist() == [0, 1, 2, 3]
    assert stages.loc[stages["stage"] == "run_prefill", "n"].tolist() == [len(tokenizer.encode(prompt))]
    run = trace.runs().iloc[0]
    assert run["question"] == "Hello there"
    assert run["ttft_ms"] > 0


def test_times_are_in_order_and_inside_their_step(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model)
        made.append_tokens(PROMPT)
        steps(made, 6)
    tokens, stages = trace.tokens(), trace.stages()
    assert (tokens["start_ms"].diff().dropna() > 0).all()
    assert (tokens["end_ms"] >= tokens["start_ms"]).all()
    for index, token in tokens.iterrows():
        own = stages[(stages["token"] == index) & (stages["stage"] != "recorder")]
        assert own["start_ms"].min() >= token["start_ms"] - 1e-6
        assert (own["start_ms"] + own["dur_ms"]).max() <= token["end_ms"] + 1e-6


def test_a_second_turn_is_a_second_run(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model)
        made.append_tokens(PROMPT)
        steps(made, 3)
        made.append_tokens([60, 61])
        steps(made, 2)
    runs = trace.runs()
    assert runs["prompt_tokens"].tolist() == [5, 10]
    assert runs["cached_tokens"].tolist() == [0, 7]  # the last generated token was not read yet
    assert runs["new_tokens"].tolist() == [3, 2]
    assert runs["parent"].isna().all()


def test_rewinding_and_choosing_makes_a_branch(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model)
        made.append_tokens(PROMPT)
        steps(made, 5)
        made.rewind_to(len(PROMPT) + 2)
        other = int(trace.candidates(2)["token"].iloc[1])
        made.append_tokens([other])
        steps(made, 3)
        made.rewind_to(len(PROMPT) + 4)  # inside the branch: a branch of the branch
        steps(made, 2)
    runs = trace.runs()
    assert runs["parent"].tolist()[1:] == [0, 1]
    assert runs["fork"].tolist()[1:] == [2, 2]
    first, branch = trace.tokens().query("run == 0"), trace.tokens().query("run == 1")
    assert branch["index"].tolist() == [0, 1, 2, 3]
    assert branch["token"].iloc[0] == other
    assert branch["position"].iloc[0] == first["position"].iloc[2]
    assert branch["rank"].iloc[0] == 2  # the distribution is that of the token it replaces
    assert branch["entropy"].iloc[0] == first["entropy"].iloc[2]
    assert trace.recording.runs[1].forced == other
    assert trace.recording.runs[1].cached_tokens == len(PROMPT) + 2


def test_rewinding_to_where_one_stands_is_no_branch(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model)
        made.append_tokens(PROMPT)
        steps(made, 3)
        made.rewind_to(made.token_count())
        steps(made, 2)
    assert len(trace.runs()) == 1
    assert len(trace.tokens()) == 5


def test_a_fork_is_a_branch_of_its_source(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(model)
        made.append_tokens(PROMPT)
        steps(made, 4)
        twin = made.fork(len(PROMPT) + 1)
        twin.append_tokens([99])
        steps(twin, 2)
        steps(made, 1)
    runs = trace.runs()
    assert runs["new_tokens"].tolist() == [5, 3]
    assert (runs["parent"].iloc[1], runs["fork"].iloc[1]) == (0, 1)


def test_a_trace_may_begin_in_the_middle(model: og.Model) -> None:
    made = generator(model)
    made.append_tokens(PROMPT)
    steps(made, 3)
    with og.record() as trace:
        steps(made, 2)
    steps(made, 2)  # outside: nothing is added
    with og.record() as second:
        steps(made, 1)
    assert trace.runs()["prompt_tokens"].tolist() == [8]
    assert len(trace.tokens()) == 2
    assert second.runs()["prompt_tokens"].tolist() == [12]
    assert len(second.tokens()) == 1


def test_candidates_follow_the_settings(model: og.Model) -> None:
    with og.record() as trace:
        made = generator(
            model, do_sample=True, random_seed=2, top_k=10, top_p=0.8, temperature=1.5, repetition_penalty=1.3
        )
        made.append_tokens(PROMPT)
        steps(made, 5)
    frame, token = trace.candidates(4), trace.tokens().iloc[4]
    assert frame["top_k"].notna().sum() == 10
    assert frame["top_p"].notna().sum() == token["kept_top_p"]
    assert frame["min_p"].sum() == pytest.approx(1.0)
    drawn = frame[frame["chosen"]]
    assert drawn["min_p"].iloc[0] == pytest.approx(token["final_prob"], rel=1e-4)
    assert drawn["prob"].iloc[0] == pytest.approx(token["prob"], rel=1e-4)
    assert not np.allclose(frame["logit"], frame["after_repetition_penalty"])


def test_a_trace_does_not_keep_the_model_or_the_generator_alive(tiny_folder: Path) -> None:
    import gc
    import weakref

    own = og.Model(tiny_folder)
    with og.record() as trace:
        made = generator(own)
        made.append_tokens(PROMPT)
        steps(made, 3)
    dead = weakref.ref(made), weakref.ref(own)
    del made, own
    gc.collect()
    assert [ref() for ref in dead] == [None, None]
    assert len(trace.tokens()["text"]) == 3  # the texts are still found
