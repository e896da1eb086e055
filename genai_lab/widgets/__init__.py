"""Traces as linked pictures in a notebook. Reads recordings; it never touches a live generator.

    genai_lab.widgets.TokenRibbon(trace)         what was said, and what else could have been
    genai_lab.widgets.SamplingPipeline(trace)    how a token was picked
    genai_lab.widgets.StageTimeline(trace)       where the time went
    genai_lab.widgets.EngineRun(trace)           an engine's run: all of the following, and a request's answer
    genai_lab.widgets.BatchingTimeline(trace)    who is served in which step, and why not
    genai_lab.widgets.BlockMap(trace)            where the memory of each answer lives

All pictures of one trace share one `TraceModel`: pick a token in one, and it is picked in all.
"""

from __future__ import annotations

from genai_lab import analysis
from genai_lab.widgets.models import Abilities, Driver, ReadOnly, Runtime, TraceModel, View

__all__ = [
    "Abilities",
    "BatchingTimeline",
    "BlockMap",
    "Driver",
    "EngineRun",
    "Runtime",
    "SamplingPipeline",
    "StageTimeline",
    "TokenRibbon",
    "TraceModel",
    "View",
    "trace_model",
]

_KEPT = "_widget_model"  # on the trace itself, so that the two live and die together


def trace_model(trace: analysis.Trace) -> TraceModel:
    """The one model of a trace, up to date; a new one after its comm was closed, or when the recorder has dropped rows
    since. A trace that has a `driver` can be continued from its pictures."""
    driver: Driver = getattr(trace, "driver", None) or ReadOnly()
    with driver.lock:  # nothing is written between what the picture begins with and what it is told
        model: TraceModel | None = vars(trace).get(_KEPT)
        if model is None or model.comm is None or model.outgrown:
            model = TraceModel(trace, driver)
            setattr(trace, _KEPT, model)
        model.refresh()
        driver.show_in(model)
    return model


def TokenRibbon(trace: analysis.Trace) -> View:
    """The answer token by token, tinted by probability, doubt or latency; alternatives of each token."""
    return View(trace_model(trace), "ribbon")


def SamplingPipeline(trace: analysis.Trace) -> View:
    """The candidates of one token after each processor and filter, with sliders that recompute them in the browser."""
    return View(trace_model(trace), "pipeline")


def StageTimeline(trace: analysis.Trace) -> View:
    """Every measured stage on a line of time, and the time to first token and per token."""
    return View(trace_model(trace), "timeline")


def EngineRun(trace: analysis.Trace) -> View:
    """An engine's run under one playhead: who is served when, where memory lies, and the chosen request's answer."""
    return View(trace_model(trace), "engine")


def BatchingTimeline(trace: analysis.Trace) -> View:
    """Requests over an engine's steps: waits, prompt chunks, tokens, lost places; the budget beneath; why, in words."""
    return View(trace_model(trace), "batching")


def BlockMap(trace: analysis.Trace) -> View:
    """An engine's block pool after a step, by owner, and the chosen request's own order of blocks."""
    return View(trace_model(trace), "blocks")
