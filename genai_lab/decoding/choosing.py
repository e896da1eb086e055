"""Search options and a person's hooks -> the `Chooser` of one sequence. Here a grammar is compiled, so here it is an
error when it is wrong."""

from __future__ import annotations

from genai_lab.config import SearchOptions
from genai_lab.decoding.hooks import Hooks
from genai_lab.decoding.step import Chooser
from genai_lab.grammar import Guide
from genai_lab.models import Model
from genai_lab.sampling import (
    EffectiveMode,
    Guidance,
    LogitsProcessor,
    RandomStream,
    SamplingMode,
    build_processors,
    effective_mode,
)


def mode_of(options: SearchOptions, hooks: Hooks, *, og_compat: bool = False) -> EffectiveMode:
    """How tokens will be chosen, and why."""
    if hooks.sampler is None:
        return effective_mode(options, og_compat=og_compat)
    return EffectiveMode(SamplingMode.SAMPLE, f"a sampler of your own chooses: {hooks.sampler.name}")


def make_chooser(
    model: Model, options: SearchOptions, hooks: Hooks, mode: SamplingMode, stream: RandomStream
) -> Chooser:
    """A chooser for one sequence.

    Raises:
        GrammarError: the guidance is wrong; says where.
    """
    eos = model.config.model.eos_token_ids
    guidance = hooks.guidance
    guide = None if guidance is None else model.grammars.guide(guidance.kind, guidance.text)
    return Chooser(
        processors=_in_order(options, hooks, guide, eos),
        mode=mode,
        settings=options,
        stream=stream,
        guide=guide,
        ff_tokens=guidance is not None and guidance.enable_ff_tokens,
        end_ids=frozenset(eos),
        sampler=hooks.sampler,
        stopping=hooks.stopping,
    )


def _in_order(
    options: SearchOptions, hooks: Hooks, guide: Guide | None, eos: tuple[int, ...]
) -> tuple[LogitsProcessor, ...]:
    """The processors that act, as `hooks.order` has them."""
    acting: list[LogitsProcessor] = [*build_processors(options, eos), *hooks.processors]
    if guide is not None:
        acting.append(Guidance(guide))
    return tuple(sorted(acting, key=lambda processor: hooks.order.index(processor.name)))
