"""The Engine: the engine holds the loop. Requests, policies with reasons, and the step as a transaction."""

from __future__ import annotations

from genai_lab.engine.answers import Answer
from genai_lab.engine.capabilities import EngineCapabilities
from genai_lab.engine.checking import PolicyError
from genai_lab.engine.engine import Engine
from genai_lab.engine.events import EngineErrorCode, EngineEvent, EngineEventBuffer, EngineEventFlags, TurnUsage
from genai_lab.engine.limits import EngineLimits
from genai_lab.engine.options import RequestOptions, TurnOptions
from genai_lab.engine.plan import Decision, Policy, QueueView, Reason, RequestView, Status, StepPlan, Verdict
from genai_lab.engine.policies import Fcfs, OrderedPolicy, PrefixFirst, PriorityFirst, ShortestFirst, Static
from genai_lab.engine.request import Request

__all__ = [
    "Answer",
    "Decision",
    "Engine",
    "EngineCapabilities",
    "EngineErrorCode",
    "EngineEvent",
    "EngineEventBuffer",
    "EngineEventFlags",
    "EngineLimits",
    "Fcfs",
    "OrderedPolicy",
    "Policy",
    "PolicyError",
    "PrefixFirst",
    "PriorityFirst",
    "QueueView",
    "Reason",
    "Request",
    "RequestOptions",
    "RequestView",
    "ShortestFirst",
    "Static",
    "Status",
    "StepPlan",
    "TurnOptions",
    "TurnUsage",
    "Verdict",
]
