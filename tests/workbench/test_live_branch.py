"""Branches: another token somewhere, from a running generator, a kept one or none at all; the same text follows."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import genai_lab as og
from genai_lab import widgets
from genai_lab.errors import ArgumentError, StateError
from genai_lab.workbench.continuing import CLOSED, NO_MODEL
from genai_lab.workbench.kept import KEPT
from genai_lab.workbench.page_request import read_request
from tests.workbench.live_tools import PATIENCE, Held, Page
from tests.workbench.test_live import QUESTION, plain_tokens

pytestmark = pytest.mark.usefixtures("background")
PROMPT = [1, 20, 30, 40, 50]


def asked(model: og.Model, tokens: int = 10) -> og.Trace:
    return og.ask(model, QUESTION, max_new_tokens=tokens).wait(PATIENCE)


def answer(trace: og.Trace, run: int) -> list[int]:
    return trace.tokens().query(f"run == {run}")["token"].tolist()


def whole(trace: og.Trace, run: int) -> list[int]:
    """Prompt and answer of a run, as one sequence."""
    return trace.recording.runs[run].prompt.tolist() + answer(trace, run)


def recorded_by_hand(model: og.Model, tokens: int = 8, **options: object) -> tuple[og.Trace, og.Generator]:
    params = og.GeneratorParams(model)
    params.set_search_options(**({"max_length": 60} | options))
    with og.record() as trace:
        generator = og.Generator(model, params)
        generator.append_tokens(PROMPT)
        for _ in range(tokens):
            generator.generate_next_token()
    return trace, generator


def test_a_branch_goes_on_after_the_token_put_there(tiny: og.Model) -> None:
    trace = asked(tiny)
    other = int(trace.candidates(4)["token"].iloc[1])
    trace.branch(4, other).wait(PATIENCE)
    facts = trace.recording.runs[1]
    assert (facts.parent, facts.fork, facts.forced) == (0, 4, other)
    assert facts.prompt.tolist() == whole(trace, 0)[: facts.prompt.size]
    assert facts.cached_tokens == facts.prompt.size  # copied, not read again
    branch = trace.tokens().query("run == 1")
    assert branch["index"].tolist() == list(range(len(branch)))
    assert branch["token"].iloc[0] == other and np.isnan(branch["final_prob"].iloc[0])
    assert branch["rank"].iloc[0] == 2
    assert branch["position"].tolist() == list(range(facts.prompt.size, facts.prompt.size + len(branch)))
    before = [*facts.prompt.tolist(), other]
    assert answer(trace, 1)[1:] == plain_tokens(tiny, before, len(branch) - 1)
    assert len(whole(trace, 1)) == len(whole(trace, 0))  # as long as the run it leaves may be


def test_branches_of_branches(tiny: og.Model) -> None:
    trace = asked(tiny)
    for run, (index, token) in enumerate([(5, 99), (2, 98), (0, 97), (1, 96)]):
        trace.branch(index, token, run=run).wait(PATIENCE)
    for run in (1, 2, 3, 4):
        facts = trace.recording.runs[run]
        index = facts.fork or 0
        assert facts.parent == run - 1
        assert facts.prompt.tolist() == trace.recording.runs[run - 1].prompt.tolist() + answer(trace, run - 1)[:index]
        assert answer(trace, run)[0] == facts.forced
        before = [*facts.prompt.tolist(), answer(trace, run)[0]]
        assert answer(trace, run)[1:] == plain_tokens(tiny, before, len(answer(trace, run)) - 1)
        assert facts.cached_tokens == facts.prompt.size  # every one of them from the cache
    assert trace.recording.runs[3].prompt.size == trace.recording.runs[2].prompt.size


def test_inside_og_compat_a_token_is_drawn_anew_all_the_same(tiny: og.Model) -> None:
    def tokens_of_two_branches() -> list[list[int]]:
        trace = asked(tiny)
        trace.branch(1, 99).wait(PATIENCE)
        trace.branch(3, run=1).wait(PATIENCE)  # the first branch is kept, and rewound
        return [answer(trace, run) for run in (0, 1, 2)]

    with og.og_compat():
        compatible = tokens_of_two_branches()
    KEPT.clear()
    assert compatible == tokens_of_two_branches()


def test_a_seed_that_is_given_draws_the_same_branch(tiny: og.Model) -> None:
    sampled = {"do_sample": True, "temperature": 5.0, "random_seed": 5}
    trace = asked(tiny)
    for _ in range(2):
        trace.branch(1, **sampled).wait(PATIENCE)
    for _ in range(2):
        trace.branch(3, run=1, random_seed=6).wait(PATIENCE)
    trace.branch(3, run=1).wait(PATIENCE)
    first, again, other, other_again, anew = (answer(trace, run) for run in range(1, 6))
    assert first == again
    assert other == other_again != anew


def test_a_branch_of_a_recorded_generator_leaves_it_alone(tiny: og.Model) -> None:
    trace, generator = recorded_by_hand(tiny)
    before = generator.get_sequence(0).tolist()
    trace.branch(3, 77).wait(PATIENCE)
    trace.branch(1, 76, run=1).wait(PATIENCE)
    assert generator.get_sequence(0).tolist() == before
    generator.generate_next_token()
    assert generator.get_sequence(0).tolist() == PROMPT + plain_tokens(tiny, PROMPT, 9)
    assert trace.runs()["parent"].tolist()[1:] == [0, 1]
    assert trace.runs()["cached_tokens"].tolist()[1:] == [len(PROMPT) + 3, len(PROMPT) + 3 + 1]


def test_a_generator_that_is_gone_is_rebuilt_from_its_model(tiny: og.Model) -> None:
    trace, generator = recorded_by_hand(tiny)
    trace.show()  # a picture was shown while it lived
    del generator
    gc.collect()
    trace.branch(3, 77).wait(PATIENCE)
    facts = trace.recording.runs[1]
    assert (facts.parent, facts.fork, facts.forced, facts.cached_tokens) == (0, 3, 77, 0)
    assert answer(trace, 1)[0] == 77
    assert answer(trace, 1)[1:] == plain_tokens(tiny, [*facts.prompt.tolist(), 77], len(answer(trace, 1)) - 1)
    prefill = trace.stages().query("run == 1 and stage == 'run_prefill'")
    assert prefill["n"].tolist() == [facts.prompt.size + 1]  # what had to be read again is in the trace


def test_a_closed_generator_is_as_good_as_gone(tiny: og.Model) -> None:
    trace, generator = recorded_by_hand(tiny)
    generator.close()
    trace.branch(3, 77).wait(PATIENCE)
    assert trace.recording.runs[1].cached_tokens == 0
    assert len(answer(trace, 1)) > 1


def test_without_generator_and_model_nothing_goes_on(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = og.Model(tiny_folder)
    trace, generator = recorded_by_hand(own)
    del generator, own
    gc.collect()
    page = Page(trace, monkeypatch)
    page.say(type="hello")
    assert page.state == {"type": "state", "busy": False, "can": {"branch": False, "stop": False}, "why": NO_MODEL}
    page.say(type="branch", run=0, index=2, token=7, settings=None)
    assert len(trace.runs()) == 1
    with pytest.raises(StateError, match=r"trace\.show\(model=model\)"):
        trace.branch(2, 7)


def test_a_closed_model_is_said_to_be_closed(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = og.Model(tiny_folder)
    trace = asked(own)
    own.close()
    page = Page(trace, monkeypatch)
    page.say(type="again", run=0, settings={})
    assert (page.state["can"]["branch"], page.state["why"]) == (False, CLOSED)
    trace.show(model=og.Model(tiny_folder))
    assert trace.again().wait(PATIENCE).runs()["status"].tolist() == ["done", "done"]


def test_a_model_closed_while_a_question_waits_fails_in_words(
    tiny: og.Model, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, own = Held(monkeypatch), og.Model(tiny_folder)
    first = og.ask(tiny, QUESTION, max_new_tokens=2)
    held.wait()
    second = og.ask(own, QUESTION)
    own.close()
    held.let_go()
    first.wait(PATIENCE)
    with pytest.raises(StateError, match="closed"):
        second.wait(PATIENCE)
    assert second.recording.runs[0].status == "failed"


def test_drawing_anew_and_asking_again_use_other_settings(tiny: og.Model) -> None:
    trace = asked(tiny)
    trace.branch(4, do_sample=True, temperature=2.0, top_k=0, random_seed=3).wait(PATIENCE)
    trace.again(run=1, repetition_penalty=1.5).wait(PATIENCE)
    drawn, again = trace.recording.runs[1], trace.recording.runs[2]
    assert (drawn.parent, drawn.fork, drawn.forced) == (0, 4, None)
    assert (drawn.settings["mode"], drawn.settings["temperature"]) == ("sample", 2.0)
    assert (again.parent, again.fork, again.forced) == (1, 0, None)
    assert again.prompt.tolist() == drawn.prompt.tolist()
    assert (again.settings["temperature"], again.settings["repetition_penalty"]) == (2.0, 1.5)
    assert trace.recording.runs[0].settings["mode"] == "greedy"


def test_an_end_token_put_by_hand_ends_the_branch(tiny: og.Model) -> None:
    trace = asked(tiny)
    end = tiny.config.model.eos_token_ids[0]
    trace.branch(2, end).wait(PATIENCE)
    assert answer(trace, 1) == [end]
    assert trace.runs().iloc[1][["status", "finish"]].tolist() == ["done", "eos"]


def test_a_generator_of_a_long_context_branches_for_a_bounded_time(tiny: og.Model) -> None:
    trace, _generator = recorded_by_hand(tiny, max_length=250)
    trace.branch(3, 77).wait(PATIENCE)
    assert trace.recording.runs[1].settings["max_length"] <= 250


def test_only_a_few_generators_are_kept(tiny: og.Model) -> None:
    trace = asked(tiny)
    for token in range(60, 60 + 2 * KEPT.limit):
        trace.branch(3, token, do_sample=True, temperature=float(token)).wait(PATIENCE)  # no two can be rewound
    assert len(KEPT) == KEPT.limit
    trace.branch(5, 59).wait(PATIENCE)  # the first generator was closed: read again from what is common
    facts = trace.recording.runs[-1]
    assert 0 < facts.cached_tokens < facts.prompt.size
    assert answer(trace, facts.run)[1:] == plain_tokens(
        tiny, [*facts.prompt.tolist(), 59], len(answer(trace, facts.run)) - 1
    )


def test_kept_generators_of_another_model_are_closed(tiny: og.Model, tiny_folder: Path) -> None:
    asked(tiny)
    asked(og.Model(tiny_folder))
    assert len(KEPT) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"index": 10}, "10 recorded tokens"),
        ({"index": -1}, "10 recorded tokens"),
        ({"index": 1, "run": 1}, "it has one run, 0"),
        ({"index": 1, "token": 10**6}, "vocabulary"),
        ({"index": 1, "temperature": -2.0}, "temperature"),
    ],
)
def test_a_branch_that_cannot_be_is_an_error_of_the_call(
    tiny: og.Model, arguments: dict[str, float], words: str
) -> None:
    trace = asked(tiny)
    with pytest.raises(ArgumentError, match=words):
        trace.branch(**arguments)  # type: ignore[arg-type]
    assert len(trace.runs()) == 1


# ---- as the page asks for it


def test_every_way_of_showing_a_trace_can_continue_it(tiny: og.Model) -> None:
    trace = asked(tiny, 3)
    ribbon, everything = widgets.TokenRibbon(trace), trace.show()
    assert ribbon.trace is everything.trace
    ribbon.trace.hear({"type": "branch", "run": 0, "index": 1, "token": 5, "settings": None})
    assert len(trace.wait(PATIENCE).runs()) == 2


def test_the_page_asks_for_a_branch_and_for_an_answer_again(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = asked(tiny)
    page = Page(trace, monkeypatch)
    page.say(type="branch", run=0, index=3, token=88, settings=None)
    trace.wait(PATIENCE)
    knobs = {
        "mode": "sample",
        "temperature": 1.25,
        "top_k": 7.0,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
    }
    page.say(type="again", run=0, settings=knobs)
    trace.wait(PATIENCE)
    branch, again = page.reader.runs[1], page.reader.runs[2]
    assert (branch["parent"], branch["fork"], branch["forced"]) == (0, 3, 88)
    assert (again["parent"], again["fork"], again["forced"]) == (0, 0, None)
    assert {name: again["settings"][name] for name in knobs} == knobs
    assert page.reader.columns["tokens.run"].tolist() == trace.tokens()["run"].tolist()
    assert page.reader.gaps == 0


def test_settings_that_are_not_allowed_fail_in_words(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = asked(tiny)
    page = Page(trace, monkeypatch)
    page.say(type="branch", run=0, index=3, token=88, settings={"top_p": 7.5})
    failed = page.reader.runs[1]
    assert (failed["status"], failed["parent"], failed["fork"], failed["forced"]) == ("failed", 0, 3, 88)
    assert "top_p" in failed["error"] and "0 to 1" in failed["error"]
    assert page.state["can"]["branch"] is True


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
FIELDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["branch", "again", "stop", "hello", "dance"])},
    optional={"run": JSON, "index": JSON, "token": JSON, "settings": JSON},
)


@given(FIELDS | JSON)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_any_message_is_read_or_ignored(message: object) -> None:
    if not isinstance(message, dict):
        return
    request = read_request(message)
    assert request is None or (request[0].run >= 0 and request[0].index >= 0)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "branch"},
        {"type": "branch", "run": 7, "index": 0, "token": 3},
        {"type": "branch", "run": 0, "index": 99, "token": 3},
        {"type": "branch", "run": 0, "index": 1, "token": 10**9},
        {"type": "branch", "run": True, "index": 1, "token": 3},
        {"type": "again", "run": None, "settings": {}},
        {"type": "dance"},
        "hello",
        None,
    ],
)
def test_messages_that_make_no_sense_change_nothing(
    tiny: og.Model, message: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = asked(tiny, 3)
    page = Page(trace, monkeypatch)
    page.model.hear(message)
    assert not trace.running
    assert len(trace.runs()) == 1


# ---- loaded from a file


def test_a_loaded_trace_is_shown_and_goes_on_when_given_its_model(
    tiny: og.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = asked(tiny).branch(2, 55).wait(PATIENCE)
    trace = og.Trace.load(original.save(tmp_path / "trace.npz"))
    page = Page(trace, monkeypatch)
    page.say(type="hello")
    assert page.state["can"] == {"branch": False, "stop": False}
    assert "loaded" in page.state["why"]
    with pytest.raises(StateError, match="loaded"):
        trace.branch(1, 5)
    before = trace.recording
    trace.show(model=tiny)
    after = trace.recording
    for table in ("tokens", "stages", "changed", "seen"):
        for name, column in before.tables[table].items():
            np.testing.assert_allclose(after.tables[table][name].astype(float), column.astype(float), atol=2e-6)
    trace.branch(3, 44, run=1).wait(PATIENCE)
    facts = trace.recording.runs[2]
    assert (facts.parent, facts.fork, facts.forced) == (1, 3, 44)
    assert answer(trace, 2)[1:] == plain_tokens(tiny, [*facts.prompt.tolist(), 44], len(answer(trace, 2)) - 1)
    times = trace.tokens()
    assert times.query("run == 2")["start_ms"].min() > times.query("run < 2")["end_ms"].max()  # its clock goes on
    again = og.Trace.load(trace.save(tmp_path / "longer.npz"))
    assert again.tokens()["token"].tolist() == trace.tokens()["token"].tolist()


def test_another_models_vocabulary_is_refused(tiny: og.Model, tmp_path: Path) -> None:
    trace = og.Trace.load(asked(tiny, 2).save(tmp_path / "trace.npz"))
    trace.recording.model["vocab_size"] = 49_152
    with pytest.raises(ArgumentError, match="the model that wrote it"):
        trace.show(model=tiny)
