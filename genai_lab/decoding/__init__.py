"""One step of decoding, and what a sequence and its end are. Both drivers, Generator and Engine, compose these."""

from __future__ import annotations

from genai_lab.decoding.choosing import make_chooser, mode_of
from genai_lab.decoding.hooks import Hooks, HookSetters
from genai_lab.decoding.sequence import Sequence
from genai_lab.decoding.step import Chooser, Place, choose, commit, forward, forward_all, process, put, run_step, settle
from genai_lab.decoding.stopping import StopRule

__all__ = [
    "Chooser",
    "HookSetters",
    "Hooks",
    "Place",
    "Sequence",
    "StopRule",
    "choose",
    "commit",
    "forward",
    "forward_all",
    "make_chooser",
    "mode_of",
    "process",
    "put",
    "run_step",
    "settle",
]
