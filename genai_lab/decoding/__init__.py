"""One step of decoding, and what a sequence and its end are. Both drivers, Generator and Engine, compose these."""

from __future__ import annotations

from genai_lab.decoding.sequence import Sequence
from genai_lab.decoding.step import Chooser, Place, choose, commit, forward, run_step, settle
from genai_lab.decoding.stopping import StopRule

__all__ = ["Chooser", "Place", "Sequence", "StopRule", "choose", "commit", "forward", "run_step", "settle"]
