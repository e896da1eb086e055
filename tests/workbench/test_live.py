"""Background writing: it streams, it stops, its errors are heard, answers wait for each other."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError, CapacityError
from genai_lab.widgets import models
from genai_lab.workbench import live
from tests.widgets.chunks import Reader
from tests.workbench.live_tools import PATIENCE, Held, Page, at_each_run

pytestmark = pytest.mark.usefixtures("background")
QUESTION = "Hello the world"


def plain_tokens(model: og.Model, ids: list[int], count: int) -> list[int]:
    """What a generator writes after `ids` when nobody watches."""
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(ids) + count)
    generator = og.Generator(model, params)
    generator.append_tokens(ids)
    tokens = []
    while not generator.is_done():
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    return tokens


def test_an_answer_is_what_a_plain_generator_writes(tiny: og.Model) -> None:
    pieces: list[str] = []
    trace = og.ask(tiny, QUESTION, max_new_tokens=12, on_text=pieces.append).wait(PATIENCE)
    tokenizer = og.Tokenizer(tiny)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}])
    ids = tokenizer.encode(prompt).tolist()
    frame = trace.tokens()
    assert frame["token"].tolist() == plain_tokens(tiny, ids, 12)
    assert "".join(pieces) in tokenizer.decode(frame["token"].to_numpy())  # the stream holds back half a character
    run = trace.runs().iloc[0]
    assert (run["status"], run["finish"], run["question"]) == ("done", "length", QUESTION)
    assert run["prompt_tokens"] == len(ids)
    assert not trace.running
    stages = trace.stages()
    assert stages["stage"].tolist()[:2] == ["chat_template", "tokenize"]
    assert (stages["stage"] == "detokenize").sum() == 12


def test_without_the_template_the_model_goes_on_with_the_text(tiny: og.Model) -> None:
    trace = og.ask(tiny, QUESTION, chat=False, max_new_tokens=3).wait(PATIENCE)
    assert trace.recording.runs[0].prompt.tolist() == og.Tokenizer(tiny).encode(QUESTION).tolist()


def test_naming_a_sampling_option_means_sampling(tiny: og.Model) -> None:
    def mode(**options: object) -> object:
        trace = og.ask(tiny, QUESTION, max_new_tokens=1, **options).wait(PATIENCE)
        return trace.recording.runs[0].settings["mode"]

    assert mode() == mode(repetition_penalty=1.1) == mode(do_sample=False, temperature=0.5) == "greedy"
    assert mode(temperature=0.7) == mode(random_seed=3) == mode(min_p=0.1) == "sample"


def test_the_page_hears_every_token_and_keeps_the_whole(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE", 0.0)
    held = Held(monkeypatch, tokens=2)
    trace = og.ask(tiny, QUESTION, max_new_tokens=8, repetition_penalty=1.2)
    page = Page(trace, monkeypatch)
    held.wait()
    page.say(type="hello")
    assert page.state == {"type": "state", "busy": True, "can": {"branch": True, "stop": True}, "why": ""}
    held.let_go()
    trace.wait(PATIENCE)
    assert page.state == {"type": "state", "busy": False, "can": {"branch": True, "stop": False}, "why": ""}
    assert page.reader.gaps == 0
    assert page.reader.runs[0]["status"] == "done"
    whole = Reader().take(page.model.chunk)
    assert whole.columns.keys() == page.reader.columns.keys()
    for name, column in whole.columns.items():
        np.testing.assert_array_equal(page.reader.columns[name], column, name)
    assert sum(m["type"] == "chunk" for m in page.messages) >= 6


def test_between_tokens_the_page_is_left_in_peace(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE", 3600.0)
    trace = og.ask(tiny, QUESTION, max_new_tokens=1).wait(PATIENCE)
    page = Page(trace, monkeypatch)
    trace.again(max_length=60).wait(PATIENCE)
    assert sum(m["type"] == "chunk" for m in page.messages) == 2  # the run opened, the run ended
    assert page.reader.runs[1]["status"] == "done"


def test_a_page_that_was_not_listening_yet_is_told_everything(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE", 0.0)
    monkeypatch.setattr(models, "WHOLE_EVERY", 0.0)
    held = Held(monkeypatch, tokens=2)
    trace = og.ask(tiny, QUESTION, max_new_tokens=8)
    page = Page(trace, monkeypatch, greets=False)
    held.wait()
    page.reader = Reader()  # whatever was told until now reached nobody
    held.let_go()
    trace.wait(PATIENCE)
    assert (page.reader.gaps, page.reader.runs[0]["status"]) == (0, "done")
    assert len(page.reader.columns["tokens.token"]) == 8
    assert all("after" not in m for m in page.messages if m["type"] == "chunk")
    page.say(type="hello")
    trace.again(max_length=60).wait(PATIENCE)
    told = [m for m in page.messages if m["type"] == "chunk"]
    assert all(m["after"] < m["seq"] for m in told[-3:])  # from now on, news


def test_hello_is_answered_with_the_state_and_everything(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = og.ask(tiny, QUESTION, max_new_tokens=4).wait(PATIENCE)
    page = Page(trace, monkeypatch)
    page.reader = Reader()  # a page that was opened later
    page.say(type="hello")
    assert [m["type"] for m in page.messages] == ["state", "chunk"]
    assert len(page.reader.columns["tokens.token"]) == 4


def test_stop_ends_it_before_the_next_token(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, tokens=3)
    trace = og.ask(tiny, QUESTION, max_new_tokens=50)
    page = Page(trace, monkeypatch)
    held.wait()
    page.say(type="stop")
    held.let_go()
    trace.wait(PATIENCE)
    run = trace.runs().iloc[0]
    assert (run["status"], run["finish"], run["new_tokens"]) == ("stopped", "stopped", 3)
    assert page.reader.runs[0]["status"] == "stopped"


def test_stop_interrupts_the_reading_of_a_prompt(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def hold(tokens: int) -> None:
        begun.set()
        assert go.wait(PATIENCE)

    at_each_run(monkeypatch, hold)
    trace = og.ask(tiny, QUESTION * 9)
    assert begun.wait(PATIENCE)
    trace.stop()  # the model's run begins with the order to end
    go.set()
    trace.wait(PATIENCE)
    run = trace.runs().iloc[0]
    assert (run["status"], run["new_tokens"]) == ("stopped", 0)
    assert trace.again().wait(PATIENCE).runs().iloc[1]["new_tokens"] > 0  # nothing stays interrupted


def test_an_error_is_told_in_the_page_and_raised_by_wait(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tokens: int) -> None:
        if tokens == 1:
            raise RuntimeError("the disk is on fire")

    at_each_run(monkeypatch, fail)
    trace = og.ask(tiny, QUESTION)
    page = Page(trace, monkeypatch)
    with pytest.raises(RuntimeError, match="on fire"):
        trace.wait(PATIENCE)
    assert page.reader.runs[0]["status"] == "failed"
    assert page.reader.runs[0]["error"] == "RuntimeError: the disk is on fire"
    assert trace.runs().iloc[0]["new_tokens"] == 1
    monkeypatch.undo()
    trace.again(do_sample=False).wait(PATIENCE)  # the next run begins afresh, and its end is what counts
    assert trace.runs().iloc[1]["status"] == "done"


def test_a_second_answer_waits_for_the_first(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    first = og.ask(tiny, QUESTION, max_new_tokens=5)
    held.wait()
    second, third = og.ask(tiny, "Hello", max_new_tokens=5), og.ask(tiny, "Hello", max_new_tokens=5)
    assert second.running and len(second.runs()) == 0
    with pytest.raises(TimeoutError, match="still writing"):
        second.wait(0)
    assert repr(third) == "<genai_lab.Trace: waiting to begin>"
    third.stop()  # drops what waits; the first goes on
    held.let_go()
    for trace in (first, second, third):
        trace.wait(PATIENCE)
    ends = [trace.runs().iloc[0]["status"] for trace in (first, second, third)]
    assert ends == ["done", "done", "stopped"]
    assert len(third.tokens()) == 0


def test_an_interrupted_wait_stops_the_writing(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    trace = og.ask(tiny, QUESTION, max_new_tokens=50)
    held.wait()

    def interrupted(_event: threading.Event, _timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trace.wait()
    held.let_go()
    assert trace.wait(PATIENCE).runs().iloc[0]["status"] == "stopped"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"model": "smollm2"}, ArgumentTypeError, "genai_lab.load"),
        ({"prompt": 5, "chat": False}, ArgumentTypeError, "a string is allowed"),
        ({"prompt": "xyz" * 100}, CapacityError, "no room"),
        ({"max_new_tokens": 0}, ArgumentError, "at least 1"),
        ({"max_new_tokens": True}, ArgumentTypeError, "max_new_tokens is True"),
        ({"temperatur": 1.0}, ArgumentError, "temperature"),
        ({"temperature": -1.0}, ArgumentError, "temperature"),
        ({"prompt": 5}, ArgumentTypeError, "messages"),
        ({"prompt": ["Hello"]}, ArgumentTypeError, "messages"),
    ],
)
def test_a_bad_question_is_an_error_of_the_call(
    tiny: og.Model, arguments: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        og.ask(**({"model": tiny, "prompt": QUESTION} | arguments))


EXIT = """
import sys, threading
import genai_lab as og
from genai_lab.workbench.live import Live
begun = threading.Event()
def wrote(live):
    begun.set()
    live._jobs[0]._stopping.wait()  # never goes on unless it is stopped
Live.wrote = wrote
trace = og.ask(og.Model(sys.argv[1]), "Hello")
begun.wait()
print("leaving", flush=True)
"""


@pytest.mark.slow
def test_the_interpreter_may_exit_in_the_middle(tiny_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT, str(tiny_folder)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")
