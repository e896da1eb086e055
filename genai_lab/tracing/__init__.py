"""Recording of runs. Receives facts from the live rooms, keeps them within bounds, gives them back as plain columns.

It knows numbers, interned strings and numpy arrays; it does not know models, tokenizers, pandas or widgets.
"""

from __future__ import annotations

from genai_lab.tracing.digest import BINS, CANDIDATES, Digest, digest_logits
from genai_lab.tracing.engine_facts import StepFact, TurnFact
from genai_lab.tracing.export import to_chrome_json
from genai_lab.tracing.recorder import Recorder
from genai_lab.tracing.recording import Recording, RunFacts
from genai_lab.tracing.speculation_facts import Origin, ProposedFact, RoundFact
from genai_lab.tracing.storage import load_recording, save_recording
from genai_lab.tracing.tracer import (
    NULL,
    Change,
    Masking,
    NullTracer,
    TokenFact,
    TokenText,
    Tracer,
    current_tracer,
    use_tracer,
)

__all__ = [
    "BINS",
    "CANDIDATES",
    "NULL",
    "Change",
    "Digest",
    "Masking",
    "NullTracer",
    "Origin",
    "ProposedFact",
    "Recorder",
    "Recording",
    "RoundFact",
    "RunFacts",
    "StepFact",
    "TokenFact",
    "TokenText",
    "Tracer",
    "TurnFact",
    "current_tracer",
    "digest_logits",
    "load_recording",
    "save_recording",
    "to_chrome_json",
    "use_tracer",
]
