"""From raw logits to one token. Pure: logits and options in, a named choice out; no model, no tracer, no text."""

from __future__ import annotations

from genai_lab.sampling.mode import EffectiveMode, SamplingMode, effective_mode
from genai_lab.sampling.own import OwnProcessor, OwnSampler, OwnStopping
from genai_lab.sampling.processors import (
    BUILT_IN,
    FORBIDDEN,
    Guidance,
    LogitsProcessor,
    MinLength,
    NoRepeatNgram,
    RepetitionPenalty,
    build_processors,
)
from genai_lab.sampling.random_stream import RandomStream
from genai_lab.sampling.sampler import Choice, choose_greedy, choose_sample

__all__ = [
    "BUILT_IN",
    "FORBIDDEN",
    "Choice",
    "EffectiveMode",
    "Guidance",
    "LogitsProcessor",
    "MinLength",
    "NoRepeatNgram",
    "OwnProcessor",
    "OwnSampler",
    "OwnStopping",
    "RandomStream",
    "RepetitionPenalty",
    "SamplingMode",
    "build_processors",
    "choose_greedy",
    "choose_sample",
    "effective_mode",
]
