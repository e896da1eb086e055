"""What a generator is asked to do: og's GeneratorParams over our immutable search options."""

from __future__ import annotations

from typing import Any

from genai_lab.config import SearchOptions
from genai_lab.decoding import Hooks, HookSetters, mode_of
from genai_lab.decoding.speculation import SpeculativeOptions
from genai_lab.errors import ArgumentTypeError
from genai_lab.generation.compat import in_og_compat
from genai_lab.models import Model
from genai_lab.sampling import EffectiveMode


class GeneratorParams(HookSetters):
    """Search options for one or more generators of a model (og class GeneratorParams). The defaults are the folder's.
    What og keeps closed is open: a grammar, logits processors, a sampler and stopping criteria of your own. A copy
    (`copy.copy`) is independent.

    Args:
        model: a loaded `Model`.
    """

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise ArgumentTypeError(f"GeneratorParams() takes a genai_lab.Model, got {type(model).__name__}")
        self.model = model
        self.options: SearchOptions = model.config.search_options()
        self.hooks = Hooks()
        self.speculative = SpeculativeOptions.from_config(model.config.speculative)

    def set_search_options(self, **options: Any) -> None:
        """Change options by name: do_sample, temperature, top_k, top_p, min_p, repetition_penalty, min_length,
        max_length, no_repeat_ngram_size, random_seed, ...; all or none.

        Raises:
            ArgumentError: an unknown name (says what to write instead) or a value out of range.
            ArgumentTypeError: a number for a flag or a flag for a number.
        """
        self.options = self.options.with_options(**options)

    def set_speculative_options(self, **options: Any) -> None:
        """Change how tokens are proposed and checked, by name: max_draft_tokens, ngram_size, ngram_chained_lookup,
        min_adaptive_k, cooldown; all or none. Proposals come from the folder's draft model, or, with ngram_size > 0,
        from the text itself.

        Raises:
            ArgumentError: an unknown name, or a value out of range.
            ArgumentTypeError: a number for a flag or a flag for a number.

        >>> params.set_speculative_options(ngram_size=3, max_draft_tokens=4)  # doctest: +SKIP
        """
        self.speculative = self.speculative.with_options(**options)

    def get_speculative_options(self) -> dict[str, float | bool]:
        """Every speculative option: flags as bool, numbers as float."""
        return self.speculative.as_og_dict()

    def set_guidance(self, type: str, data: str, enable_ff_tokens: bool = False) -> None:
        """Let answers be only what a grammar allows. It is compiled when a generator is made.

        The grammar covers each answer, not the prompts. `rewind_to(n)` takes it back to where it was after n tokens.

        Args:
            type: "json_schema", "regex" or "lark_grammar" (llguidance's dialect). "" with empty data: no grammar.
            data: the grammar.
            enable_ff_tokens: tokens that the grammar forces are appended without asking the model what to choose, and
                read together in one run. (Not in batches and beams.)

        Raises:
            ArgumentTypeError: not strings, or not a flag. (Making a generator raises GrammarError for a wrong grammar;
            the message says where.)

        >>> params.set_guidance("regex", "yes|no")                    # doctest: +SKIP
        """
        self._guide_by(type, data, enable_ff_tokens)

    def get_search_options(self) -> dict[str, Any]:
        """Every option as onnxruntime-genai reports it: flags as bool, numbers as float (stored as float32)."""
        return self.options.as_og_dict()

    @property
    def effective_mode(self) -> EffectiveMode:
        """How tokens will really be chosen with these options, and why."""
        return mode_of(self.options, self.hooks, og_compat=in_og_compat())

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes that the keys and values of `max_length` tokens take in every row."""
        rows = self.options.batch_size * self.options.num_beams
        return self.model.kv_bytes_per_token * self.options.max_length * rows

    def __repr__(self) -> str:
        mode = self.effective_mode
        return f"<genai_lab.GeneratorParams: {mode.mode.value} ({mode.reason}), max_length {self.options.max_length:,}>"
