"""What a page asks for: a message as a fork of a run and the settings that differ.

Receives a message as it came; a page can send anything, so nothing of it is believed. Returns values that are of the
right kind. Whether there is such a run or token is for whoever does it to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from genai_lab.workbench.branch_tracer import Fork

KNOBS = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
}


def read_request(message: Mapping[str, Any]) -> tuple[Fork, dict[str, Any]] | None:
    """A message from the page as a fork and changed options; None when it is not one."""
    again = message.get("type") == "again"
    run, index = message.get("run"), 0 if again else message.get("index")
    token, settings = message.get("token"), message.get("settings")
    if not is_count(run) or not is_count(index) or not (again or token is None or is_count(token)):
        return None  # not in the protocol
    if not (settings is None or isinstance(settings, dict)):
        return None
    return Fork(run, index, None if again else token), read_knobs(settings or {})


def read_knobs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The page's settings as search options; what is missing or no number is left as it was."""
    options: dict[str, Any] = {}
    if settings.get("mode") in ("greedy", "sample"):
        options["do_sample"] = settings["mode"] == "sample"
    for name, kind in KNOBS.items():
        value = settings.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            options[name] = kind(value)
    return options


def is_count(value: object) -> TypeGuard[int]:
    """A whole number from 0 on, not a flag."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
