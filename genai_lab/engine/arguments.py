"""What an engine is made from and handed, checked before anything is done with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from genai_lab.engine.events import EngineEventBuffer
from genai_lab.errors import wrong_kind
from genai_lab.kinds import flag
from genai_lab.models import Model
from genai_lab.tracing import Tracer

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine


def check_engine(model: object, policy: object, tracer: object, flags: Mapping[str, object]) -> None:
    """
    Raises:
        ArgumentTypeError: no model, a policy that cannot plan, a tracer that cannot record, or a flag that is none.
    """
    if not isinstance(model, Model):
        raise wrong_kind("Engine: model", model, "a genai_lab.Model: model = genai_lab.load('smollm2')")
    if isinstance(policy, type):
        raise wrong_kind("Engine: policy", policy, f"a policy, not its class: policy={policy.__name__}()")
    if policy is not None and not callable(getattr(policy, "plan", None)):
        raise wrong_kind("Engine: policy", policy, "a Policy, which has a method plan(view), or None")
    if tracer is not None and (isinstance(tracer, type) or not isinstance(tracer, Tracer)):
        hint = "a Recorder, such as trace.recorder inside `with genai_lab.record() as trace:`, or None"
        raise wrong_kind("Engine: tracer", tracer, hint)
    for name, value in flags.items():
        flag(f"Engine: {name}", value)


def check_buffer(buffer: object, engine: Engine) -> None:
    """
    Raises:
        ArgumentTypeError: no event buffer.
        StateError: another engine's.
    """
    if not isinstance(buffer, EngineEventBuffer):
        raise wrong_kind("run: buffer", buffer, "what engine.create_event_buffer(capacity) gives")
    buffer._check_of(engine)
