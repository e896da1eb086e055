"""Which way of choosing the options really ask for, and why: og's quiet rules put into words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class SamplingMode(StrEnum):
    GREEDY = "greedy"  # the most likely token
    SAMPLE = "sample"  # drawn at random from what the filters leave


@dataclass(frozen=True, slots=True)
class EffectiveMode:
    mode: SamplingMode
    reason: str


class SelectionSettings(Protocol):
    """The search options that decide how a token is selected."""

    @property
    def do_sample(self) -> bool: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...


def effective_mode(options: SelectionSettings, *, og_compat: bool = False) -> EffectiveMode:
    """The mode that `options` lead to.

    `do_sample=True` with `top_k=0` and `top_p=0` is silently argmax in onnxruntime-genai. Here it samples from the
    whole distribution, unless `og_compat` asks for og's behaviour.
    """
    if not options.do_sample:
        return EffectiveMode(SamplingMode.GREEDY, "do_sample is False: the most likely token is taken")
    if options.top_k == 1:
        return EffectiveMode(SamplingMode.GREEDY, "top_k is 1: only the most likely token is left")
    if options.temperature == 0:
        return EffectiveMode(SamplingMode.GREEDY, "temperature is 0: the most likely token is taken")
    if options.top_k == 0 and not 0.0 < options.top_p < 1.0:
        if og_compat:
            return EffectiveMode(
                SamplingMode.GREEDY, "og_compat: do_sample with top_k 0 and top_p 0 is argmax in onnxruntime-genai"
            )
        return EffectiveMode(SamplingMode.SAMPLE, "no filter is on: drawn from the whole distribution")
    return EffectiveMode(SamplingMode.SAMPLE, "do_sample is True: drawn from what the filters leave")
