"""The MtpGenerator: speculation by a head on the model's own hidden states (multi-token prediction), og's calls.

The search is `Speculative`, as with a draft; who proposes is an `MtpProposer`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.config import Config
from genai_lab.decoding import make_chooser
from genai_lab.decoding.speculation import SpeculativeStats
from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError, StateError
from genai_lab.generation.checks import check_goes_on, check_not_empty
from genai_lab.generation.guided import Grammar
from genai_lab.generation.mtp_proposer import HiddenNames, MtpProposer
from genai_lab.generation.params import GeneratorParams
from genai_lab.generation.speculative import Speculative
from genai_lab.lifecycle import Closing, born, died
from genai_lab.models import Model
from genai_lab.sampling import RandomStream
from genai_lab.tracing import current_tracer
from genai_lab.types import FinishReason, Tensor


class MtpGenerator(Closing):
    """Generates one sequence with a model that has a multi-token prediction head (og class MtpGenerator).

    Args:
        model: the main model; its graph gives hidden states (`model.mtp.main_hidden_states` of its config).
        mtp_model: the head as a model of its own, whose graph takes hidden states
            (`model.decoder.inputs.hidden_states`), and gives them (`model.decoder.outputs.hidden_states`) when it is to
            propose more than one token. None: the head in the main model's folder (`model.mtp.filename`).
        params: options of the main model; `set_speculative_options(max_draft_tokens=...)` says how many tokens to
            propose.

    Raises:
        ArgumentError: an option that does not go with it, or a head that does not fit; says which.

    >>> generator = og.MtpGenerator(model, head, params)              # doctest: +SKIP
    >>> generator.append_tokens(tokenizer.encode("Once upon a time")) # doctest: +SKIP
    >>> while not generator.is_done():                                # doctest: +SKIP
    ...     generator.generate_next_token()
    >>> generator.get_stats()["acceptance_rate"]                      # doctest: +SKIP
    """

    def __init__(self, model: Model, mtp_model: Model | None, params: GeneratorParams) -> None:
        _check_types(model, mtp_model, params)
        params.options.check_together()
        _check_options(params)
        head = own_head(model) if mtp_model is None else mtp_model
        names = hidden_names(model, head)
        _check_fit(model, head, names, params)
        self.model, self.mtp_model, self.params = model, head, copy(params)
        self._names, self._owns_head = names, mtp_model is None
        self._search: Speculative | None = self._make_search()
        size = params.kv_cache_bytes + head.kv_bytes_per_token * params.options.max_length
        born(self, "MtpGenerator", lambda _: size)

    def append_tokens(self, tokens: ArrayLike | Tensor) -> None:
        """Add tokens [n] and read them at once; what was decided ahead is thrown away.

        Raises as `Generator.append_tokens`.
        """
        self._live().append(tokens, current_tracer())

    def generate_next_token(self) -> None:
        """One more token.

        Raises:
            StateError: nothing was appended yet, or the generation is done.
        """
        search = self._live()
        check_not_empty(search, "generate_next_token")
        check_goes_on(search)
        search.generate(current_tracer())

    def get_sequence(self) -> NDArray[np.int32]:
        """A copy of every token so far, prompt included, [n] int32. As in onnxruntime-genai, and unlike a Generator's,
        it ends with the end token that was chosen."""
        search = self._live()
        text = search.sequence(0)
        return np.append(text, search.next_tokens) if self.finish_reason is FinishReason.EOS else text

    def is_done(self) -> bool:
        """Whether an end token was chosen, or max_length is reached."""
        return self._live().finish is not None

    def get_stats(self) -> dict[str, Any]:
        """What `Generator.get_speculative_stats` gives, and under shorter names the runs of the main model after the
        prompt's (`forwards`), the proposed tokens that were looked at (`trials`) and accepted (`accepts`)."""
        stats = self._live().stats
        forwards, trials = stats["target_forward_passes"], stats["draft_tokens_evaluated"]
        return stats | {"forwards": forwards, "trials": trials, "accepts": stats["draft_tokens_accepted"]}

    def reset(self) -> None:
        """Forget every token, the counters too: as if it had just been made."""
        self._live()
        self._search = self._make_search()

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the generation is done; None while it goes on."""
        return self._live().finish

    def close(self) -> None:
        """Free the caches. Any later call is an error; closing twice is allowed. The models stay as they are, but for a
        head that was loaded here."""
        self._search = None
        if self._owns_head:
            self.mtp_model.close()
        died(self)

    def __repr__(self) -> str:
        if self._search is None:
            return "<genai_lab.MtpGenerator: closed>"
        state = "done" if self.is_done() else "going on"
        return f"<genai_lab.MtpGenerator: {self._search.token_count} tokens, {state}>"

    def _live(self) -> Speculative:
        if self._search is None:
            raise StateError("this MtpGenerator is closed; make a new one from the models and the params")
        _ = self.model.graph, self.mtp_model.graph  # say so when a model is closed
        return self._search

    def _make_search(self) -> Speculative:
        model, params, options = self.model, self.params, self.params.options
        stream = RandomStream(None if options.random_seed == -1 else options.random_seed)
        chooser = make_chooser(model, options, params.hooks, params.effective_mode.mode, stream)
        stats = SpeculativeStats()
        size = model.graph.outputs[self._names.given].shape[-1]
        if not isinstance(size, int):
            raise StateError("the checks let only known sizes through")
        proposer = MtpProposer(self.mtp_model, self._names, size, options.max_length, chooser, stats)
        return Speculative(
            model,
            options,
            params.effective_mode,
            chooser,
            params.hooks,
            params.speculative,
            stats,
            proposer,
            Grammar(chooser),
        )


def own_head(model: Model) -> Model:
    """The head in a model's folder, as its config's `model.mtp` describes it.

    Raises:
        ModelFolderError: it has none.
    """
    config, mtp = model.config, model.config.model.mtp
    if mtp is None or not mtp.get("filename"):
        raise ModelFolderError(
            f"genai_config.json of {str(config.folder)!r} has no model.mtp.filename, so the folder has no multi-token "
            "prediction head; give MtpGenerator the head as a model of its own"
        )
    decoder = config.model.decoder
    sizes = {
        name: mtp[name] for name in ("num_hidden_layers", "num_key_value_heads", "head_size", "filename") if name in mtp
    }
    inputs = replace(decoder.inputs, **{"hidden_states": "hidden_states", **mtp.get("inputs", {})})
    outputs = replace(decoder.outputs, **{"hidden_states": None, **mtp.get("outputs", {})})
    head: Config = copy(config)
    section = replace(decoder, **sizes, inputs=inputs, outputs=outputs, layer_types=(), sliding_window=None)
    head.model = replace(config.model, type="mtp", decoder=section, draft=None, mtp=None)
    return Model(head)


def hidden_names(model: Model, head: Model) -> HiddenNames:
    """What hidden states are called in both graphs: the head's own config, or else the main one's `model.mtp`."""
    mtp, own = model.config.model.mtp or {}, head.config.model.decoder
    given = mtp.get("main_hidden_states") or model.config.model.decoder.outputs.hidden_states or "hidden_states"
    taken = own.inputs.hidden_states or mtp.get("inputs", {}).get("hidden_states") or "hidden_states"
    fed_back = own.outputs.hidden_states or mtp.get("outputs", {}).get("hidden_states")
    return HiddenNames(given, taken, fed_back)


def _check_types(model: object, mtp_model: object, params: object) -> None:
    if (
        not isinstance(model, Model)
        or not isinstance(mtp_model, Model | None)
        or not isinstance(params, GeneratorParams)
    ):
        kinds = ", ".join(type(value).__name__ for value in (model, mtp_model, params))
        raise ArgumentTypeError(
            f"MtpGenerator() takes a Model, the head's Model (or None) and GeneratorParams, got {kinds}"
        )


def _check_options(params: GeneratorParams) -> None:
    options = params.options
    for name in ("batch_size", "num_beams", "num_return_sequences"):
        if getattr(options, name) != 1:
            raise ArgumentError(
                f"MtpGenerator: {name} is {getattr(options, name)}; only 1 is allowed. Use a Generator for several rows"
            )
    if params.hooks.guidance is not None:
        raise ArgumentError("MtpGenerator: guidance is not supported; leave set_guidance out, or use a Generator")


def _check_fit(model: Model, head: Model, names: HiddenNames, params: GeneratorParams) -> None:
    """Raises ArgumentError when the two graphs do not fit together."""
    if not model.rewindable or not head.rewindable:
        raise ArgumentError(
            "MtpGenerator: a model with layers of convolution or recurrence, or with an encoder, cannot go back to an "
            "earlier token; use a Generator"
        )
    if names.given not in model.graph.outputs:
        raise ArgumentError(
            f"MtpGenerator: the main model's graph has no output {names.given!r}; model.mtp.main_hidden_states must "
            f"name one of {', '.join(list(model.graph.outputs)[:4])} ... that gives hidden states"
        )
    if names.taken not in head.graph.inputs:
        raise ArgumentError(
            f"MtpGenerator: the head's graph has no input {names.taken!r}; model.decoder.inputs.hidden_states of its "
            f"config must name one of {', '.join(head.graph.inputs)}"
        )
    if model.vocab_size != head.vocab_size:
        raise ArgumentError(
            f"MtpGenerator: the main model's vocabulary has {model.vocab_size} tokens, the head's {head.vocab_size}; "
            "they must be the same"
        )
    sizes = model.graph.outputs[names.given].shape[-1], head.graph.inputs[names.taken].shape[-1]
    if sizes[0] != sizes[1] or not isinstance(sizes[0], int):
        raise ArgumentError(
            f"MtpGenerator: hidden states have {sizes[0]} numbers in the main model and {sizes[1]} in the head; both "
            "graphs must state the same number"
        )
    can_feed_back = names.fed_back is not None and names.fed_back in head.graph.outputs
    if params.speculative.max_draft_tokens > 1 and not can_feed_back:
        raise ArgumentError(
            f"MtpGenerator: max_draft_tokens is {params.speculative.max_draft_tokens}, but the head gives no hidden "
            "states to go on from (model.decoder.outputs.hidden_states, or model.mtp.outputs.hidden_states); "
            "set_speculative_options(max_draft_tokens=1)"
        )
