"""What a generator is asked to do: og's GeneratorParams over our immutable search options."""

from __future__ import annotations

from typing import Any

from genai_lab.config import SearchOptions
from genai_lab.errors import ArgumentTypeError
from genai_lab.generation.compat import in_og_compat
from genai_lab.models import Model
from genai_lab.sampling import EffectiveMode, effective_mode


class GeneratorParams:
    """Search options for one or more generators of a model (og class GeneratorParams). The defaults are the folder's.

    Args:
        model: a loaded `Model`.
    """

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise ArgumentTypeError(f"GeneratorParams() takes a genai_lab.Model, got {type(model).__name__}")
        self.model = model
        self.options: SearchOptions = model.config.search_options()

    def set_search_options(self, **options: Any) -> None:
        """Change options by name: do_sample, temperature, top_k, top_p, min_p, repetition_penalty, min_length,
        max_length, no_repeat_ngram_size, random_seed, ...; all or none.

        Raises:
            ArgumentError: an unknown name (the closest known one is named) or a value out of range.
            ArgumentTypeError: a number for a flag or a flag for a number.
        """
        self.options = self.options.with_options(**options)

    def get_search_options(self) -> dict[str, Any]:
        """Every option as onnxruntime-genai reports it: flags as bool, numbers as float (stored as float32)."""
        return self.options.as_og_dict()

    @property
    def effective_mode(self) -> EffectiveMode:
        """How tokens will really be chosen with these options, and why."""
        return effective_mode(self.options, og_compat=in_og_compat())

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes that the keys and values of `max_length` tokens take."""
        return self.model.kv_layout.bytes_per_token * self.options.max_length

    def __repr__(self) -> str:
        mode = self.effective_mode
        return f"<genai_lab.GeneratorParams: {mode.mode.value} ({mode.reason}), max_length {self.options.max_length:,}>"
