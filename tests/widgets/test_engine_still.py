"""The still picture of an engine's run: everybody is in it, nothing in it can act, and its size is bounded."""

from __future__ import annotations

import re

import ipywidgets
import pytest

from genai_lab import analysis, widgets
from genai_lab.tracing import Recorder, Recording
from genai_lab.widgets.engine_still import ENGINE_KINDS, picture
from genai_lab.widgets.page import offline_page
from tests.widgets.recorded_engine import ScriptedEngine

HOSTILE = 5  # the id whose text is a script, see tests.widgets.recorded


def recorded(conversations: int = 5, blocks: int = 24) -> Recording:
    recorder = Recorder()
    engine = ScriptedEngine(recorder, blocks=blocks)
    for number in range(conversations):
        engine.ask([*range(9), HOSTILE, 20 * number + 60], 5 + number % 3)
    engine.run()
    return recorder.snapshot()


@pytest.mark.parametrize("kind", ["all", "engine", "batching", "blocks"])
def test_it_survives_a_sanitiser(kind: str) -> None:
    html = picture(recorded(), kind)
    assert "&lt;script&gt;" in html or kind == "blocks"
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {"div", "p", "b", "u", "span", "table", "tr", "td", "th", "details", "summary"}
    assert not re.search(r"\son\w+=|javascript:|<style", html)


def test_every_request_and_block_is_in_it() -> None:
    recording = recorded()
    served, memory = picture(recording, "batching"), picture(recording, "blocks")
    assert re.findall(r"<b>([A-Z])</b>", served) == list("ABCDE")
    assert memory.count("<td") == 24
    whole = picture(recording)
    assert served.split("<p style")[1] in whole and "What each of 5 turns got" in whole


def test_shared_and_kept_blocks_have_their_marks() -> None:
    memory = picture(recorded(), "blocks")
    assert "&times;3" in memory  # the two full blocks of the common beginning, three rows at a time
    assert "free but kept" in memory


@pytest.mark.slow
def test_many_requests_and_a_large_pool_stay_small() -> None:
    html = picture(recorded(conversations=80, blocks=4000))
    assert "and 64 requests more" in html
    assert len(html) < 60_000


def test_without_an_engine_it_says_so_and_answers_are_shown_as_ever() -> None:
    empty = Recorder().snapshot()
    assert "No step of an engine" in picture(empty, "blocks")
    assert "No token was recorded yet" in picture(empty)


def test_the_offline_page_begins_with_it() -> None:
    page = offline_page(recorded(), ("engine",))
    assert "Who is served in which step?" in page.split('<script type="application/json"')[0]


def test_each_picture_of_an_engine_has_a_name_of_its_own() -> None:
    trace = analysis.Trace(recorded())
    views = [make(trace) for make in (widgets.EngineRun, widgets.BatchingTimeline, widgets.BlockMap)]
    assert [view.kind for view in views] == list(ENGINE_KINDS)
    assert len({view.trace.model_id for view in views}) == 1
    assert "Who is served in which step?" in views[0]._repr_mimebundle_()[0]["text/html"]  # type: ignore[index]
    ipywidgets.Widget.close_all()
