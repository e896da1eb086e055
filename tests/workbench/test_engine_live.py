"""An engine's run on a picture while it runs: it streams from a thread, and is kept when it is over."""

from __future__ import annotations

import ipywidgets
import pytest

import genai_lab as og
from genai_lab.engine import Engine
from genai_lab.widgets import Runtime
from tests.widgets.chunks import Reader
from tests.workbench.live_tools import PATIENCE, Page

pytestmark = pytest.mark.usefixtures("background")
PROMPTS = ["Hello the world", "Why", "How many are there"]


def settled(trace: og.Trace) -> None:
    """Wait until everything was told."""
    telling = trace.driver._telling
    assert telling is not None
    thread = telling._thread
    if thread is not None:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def everything(trace: og.Trace) -> Reader:
    from genai_lab.widgets.codec import encode_recording

    return Reader().take(encode_recording(trace.recording))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["submit", "cell"])
def test_it_streams_and_is_kept(tiny: og.Model, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    with og.record() as trace:
        engine = Engine(tiny, max_batch_size=2, max_session_tokens=100)
        page = Page(trace, monkeypatch)
        page.say(type="hello")
        if way == "submit":
            for answer in [engine.submit(prompt, max_generated_tokens=20) for prompt in PROMPTS]:
                answer.result()
        else:
            engine.generate_all(PROMPTS, max_generated_tokens=20)
        settled(trace)
    engine.close()
    whole = everything(trace)
    assert page.reader.gaps == 0
    assert len(page.reader.columns["steps.step"]) == len(trace.steps()) == len(whole.columns["steps.step"])
    assert page.reader.columns["tokens.token"].tolist() == whole.columns["tokens.token"].tolist()
    assert page.reader.turns == whole.turns
    assert {turn["finish"] for turn in page.reader.turns.values()} == {"max_generated_tokens"}
    assert {run["status"] for run in page.reader.runs.values()} == {"done"}
    kept = Reader().take(page.model.chunk)  # what a saved notebook has
    assert len(kept.columns["steps.step"]) == len(trace.steps())
    assert [m["type"] for m in page.messages].count("chunk") > 1


def test_runs_are_running_until_their_turn_is_over(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    with og.record() as trace:
        engine = Engine(tiny, max_batch_size=2, max_session_tokens=100)
        page = Page(trace, monkeypatch)
        request = engine.create_request()
        request.begin_turn(og.Tokenizer(tiny).encode(PROMPTS[0]))
        engine.step()
        assert trace.driver.running == {0}
        page.say(type="hello")
        assert page.reader.runs[0]["status"] == "running"
        request.cancel_turn(1)
        settled(trace)
        assert trace.driver.running == frozenset()
        assert page.reader.runs[0]["status"] == "stopped"
    engine.close()


def test_an_engine_that_fell_silent_is_not_said_to_be_writing(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from genai_lab.workbench import engine_live

    monkeypatch.setattr(engine_live, "SILENCE", 0.01)
    with og.record() as trace:
        engine = Engine(tiny, max_batch_size=2, max_session_tokens=100)
        page = Page(trace, monkeypatch)
        page.say(type="hello")
        engine.create_request()  # its handle is dropped at once
        request = engine.create_request()
        request.begin_turn(og.Tokenizer(tiny).encode(PROMPTS[0]))
        engine.step()
        settled(trace)
    assert page.reader.runs[0]["status"] == "done"
    assert Reader().take(page.model.chunk).columns["steps.step"].tolist() == [0]
    engine.close()


def test_a_picture_of_everything_that_was_shown_first_gets_the_engine_s_code(tiny: og.Model) -> None:
    with og.record() as trace:
        whole, answer = trace.show(), trace.show("ribbon")
        assert whole.rt is answer.rt is Runtime.shared("answers")
        with Engine(tiny, max_batch_size=2, max_session_tokens=100) as engine:
            engine.generate_all(PROMPTS, max_generated_tokens=3)
        settled(trace)
    assert whole.rt is trace.show().rt is Runtime.shared("engine")
    assert answer.rt is Runtime.shared("answers")
    ipywidgets.Widget.close_all()
