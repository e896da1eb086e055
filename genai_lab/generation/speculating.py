"""Whether and how a generator speculates: the checks, and the search made of its parts."""

from __future__ import annotations

from genai_lab.config import SearchOptions
from genai_lab.decoding import Chooser, Hooks
from genai_lab.decoding.speculation import SpeculativeOptions, SpeculativeStats
from genai_lab.errors import ArgumentError, StateError
from genai_lab.generation.guided import Grammar
from genai_lab.generation.proposers import DraftProposer, NgramProposer, Proposer
from genai_lab.generation.speculative import Speculative
from genai_lab.models import Model
from genai_lab.sampling import EffectiveMode


def speculates(model: Model, speculative: SpeculativeOptions) -> bool:
    """Whether generators of this model propose tokens: it has a draft, or n-grams are looked up.

    Raises:
        ArgumentError: a look-up that goes on from itself, and none is on.
    """
    if speculative.ngram_chained_lookup and not speculative.ngram_size:
        raise ArgumentError(
            "ngram_chained_lookup is True with ngram_size 0, which looks nothing up; set ngram_size, or leave it out"
        )
    return model.draft is not None or speculative.ngram_size > 0


def make_speculative(
    model: Model,
    options: SearchOptions,
    mode: EffectiveMode,
    chooser: Chooser,
    hooks: Hooks,
    speculative: SpeculativeOptions,
) -> Speculative:
    """The search of a generator that speculates.

    Raises:
        ArgumentError, StateError: options or a model that speculation cannot be combined with; says which.
    """
    check_speculation(model, options, speculative)
    stats, grammar = SpeculativeStats(), Grammar(chooser)
    proposer: Proposer = NgramProposer(speculative, stats, grammar)
    if model.draft is not None:
        proposer = DraftProposer(model.draft, options.max_length, chooser, stats, grammar)
    return Speculative(model, options, mode, chooser, hooks, speculative, stats, proposer, grammar)


def check_speculation(model: Model, options: SearchOptions, speculative: SpeculativeOptions) -> None:
    """Raises when options or the model do not allow speculation."""
    if model.draft is not None and speculative.ngram_size:
        raise ArgumentError(
            "n-gram decoding cannot be combined with a draft model; this model has one (model.draft of "
            "genai_config.json), set ngram_size=0"
        )
    if options.num_beams > 1:
        raise ArgumentError(
            f"num_beams is {options.num_beams}: beam search does not speculate; set num_beams=1, or speculate on "
            "another generator"
        )
    if options.batch_size > 1:
        raise ArgumentError(f"batch_size is {options.batch_size}: speculation works on one sequence; set batch_size=1")
    if model.draft is not None and options.no_repeat_ngram_size:
        raise ArgumentError(
            f"no_repeat_ngram_size is {options.no_repeat_ngram_size}: a draft model does not support it; set it to 0"
        )
    if not model.rewindable or (model.draft is not None and not model.draft.rewindable):
        raise StateError(
            "speculation needs a rewindable KV cache; this model has an encoder, or layers that keep one state and not "
            "one per token (convolution, recurrence). Set ngram_size=0 and leave model.draft out"
        )
    if model.draft is None:
        _check_ngram(model)


def _check_ngram(model: Model) -> None:
    decoder = model.config.model.decoder
    window = decoder.sliding_window
    if window is not None and (window.get("slide_key_value_cache", True) or window.get("slide_inputs", True)):
        raise StateError(
            "n-gram decoding needs a rewindable KV cache; this model's slides (model.decoder.sliding_window). Set "
            "ngram_size=0"
        )
    logits = model.session.outputs[decoder.outputs.logits]
    if len(logits.shape) == 3 and logits.shape[1] == 1:
        raise StateError(
            f"n-gram decoding needs logits of every position; {model.session.filename!r} gives pruned last-token-only "
            "logits. Build it again so (python -m genai_lab.builder ... --extra_options prune_lm_head=false), take "
            "genai_lab.load('tiny'), which has them all, or set ngram_size=0"
        )
