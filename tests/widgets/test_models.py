"""Widgets without a notebook: one runtime, one model a trace, small views, a still picture in every output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import ipywidgets
import pytest

from genai_lab import analysis, widgets
from genai_lab.errors import ArgumentError
from genai_lab.tracing import Recorder
from genai_lab.widgets.models import NO_DRIVER
from tests.widgets.chunks import Reader
from tests.widgets.recorded import ScriptedRun

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def all_closed() -> Iterator[None]:
    yield
    ipywidgets.Widget.close_all()


def recorded(tokens: int = 24, vocabulary: int = 49_152) -> analysis.Trace:
    recorder = Recorder()
    ScriptedRun(recorder, vocabulary).write(tokens)
    return analysis.Trace(recorder)


def shown(view: widgets.View) -> dict[str, Any]:
    bundle = view._repr_mimebundle_()
    assert bundle is not None
    return bundle[0]


def test_views_of_one_trace_share_one_model_and_all_share_the_code() -> None:
    first, second = recorded(2), recorded(3)
    ribbon, pipeline = widgets.TokenRibbon(first), widgets.SamplingPipeline(first)
    timeline = widgets.StageTimeline(second)
    assert ribbon.trace is pipeline.trace is not timeline.trace
    assert ribbon.rt is timeline.rt is widgets.Runtime.shared()
    assert [view.kind for view in (ribbon, pipeline, timeline)] == ["ribbon", "pipeline", "timeline"]
    saved = ipywidgets.Widget.get_manager_state()["state"]
    kinds = [model["state"]["_anywidget_id"] for model in saved.values() if model["model_name"] == "AnyModel"]
    assert kinds.count("genai_lab.widgets.models.Runtime") == 1
    assert kinds.count("genai_lab.widgets.models.TraceModel") == 2


def test_every_output_has_a_still_picture() -> None:
    bundle = shown(widgets.TokenRibbon(recorded(60)))
    assert bundle[VIEW]["model_id"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert bundle["text/plain"] == "<genai_lab view: ribbon>"


def test_ten_views_saved_with_their_state_are_small() -> None:
    trace = recorded(24)
    makers = (widgets.TokenRibbon, widgets.SamplingPipeline, widgets.StageTimeline)
    outputs = [shown(makers[number % 3](trace)) for number in range(10)]
    state = ipywidgets.Widget.get_manager_state(drop_defaults=False)
    size = len(json.dumps(outputs)) + len(json.dumps(state))
    assert size <= 200_000, size


def test_a_model_is_made_anew_when_the_old_one_is_of_no_use() -> None:
    recorder = Recorder(max_tokens=5)
    run = ScriptedRun(recorder).write(5)
    trace = analysis.Trace(recorder)
    first = widgets.trace_model(trace)
    assert widgets.trace_model(trace) is first
    run.write(1)  # the oldest row is dropped: what was sent can no longer be told from its start
    second = widgets.trace_model(trace)
    assert second is not first
    assert Reader().take(second.chunk).columns["tokens.index"].tolist() == [1, 2, 3, 4, 5]
    second.close()
    assert widgets.trace_model(trace) is not second
    widgets.Runtime.shared().close()
    assert widgets.Runtime.shared().comm is not None


def test_showing_it_again_tells_what_was_recorded_since() -> None:
    recorder = Recorder()
    run = ScriptedRun(recorder).write(3)
    trace = analysis.Trace(recorder)
    model = widgets.trace_model(trace)
    first = model.chunk
    assert widgets.trace_model(trace).chunk is first  # nothing new, nothing sent
    run.write(2)
    assert widgets.TokenRibbon(trace).trace is model
    assert len(Reader().take(model.chunk).columns["tokens.token"]) == 5
    recorder.close_run(0, "eos")
    widgets.trace_model(trace)
    assert Reader().take(model.chunk).runs[0]["finish"] == "eos"


def test_without_a_driver_hello_is_answered_and_nothing_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(widgets.TraceModel, "send", lambda _self, content, buffers=None: said.append(content))
    model = widgets.trace_model(recorded(3))
    model.hear({"type": "hello"})
    model.hear({"type": "branch", "run": 0, "index": 0, "token": 1, "settings": None})
    model.hear(["not", "a", "message"])
    assert said[0] == {
        "type": "state",
        "busy": False,
        "can": {"branch": False, "stop": False},
        "why": NO_DRIVER,
    }
    assert [message["type"] for message in said] == ["state", "chunk"]


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="ribbon"):
        widgets.View(widgets.trace_model(recorded(1)), "pie")
