"""How to speculate: og's speculative options, checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from genai_lab.config import SpeculativeConfig
from genai_lab.errors import ArgumentError
from genai_lab.kinds import flag, number


@dataclass(frozen=True, slots=True)
class SpeculativeOptions:
    """Options of one generator; the defaults are onnxruntime-genai's."""

    max_draft_tokens: int = 4
    """Tokens proposed at once, 1 to 16."""
    ngram_size: int = 0
    """Propose what followed the last ngram_size - 1 tokens earlier in the text; 0 is off, else 2 to 16."""
    ngram_chained_lookup: bool = False
    """Look up again with proposed tokens, so that proposals do not end where the text does."""
    min_adaptive_k: int = 0
    """Let the number of proposed tokens adapt, from this one up to 16; 0 keeps it at max_draft_tokens."""
    cooldown: bool = False
    """After three rounds in which nothing was accepted, take one step without proposals."""

    @classmethod
    def from_config(cls, config: SpeculativeConfig) -> SpeculativeOptions:
        """As the folder says."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    def with_options(self, **options: Any) -> SpeculativeOptions:
        """A changed copy; all or nothing.

        Raises:
            ArgumentError: an unknown name, or a value out of range.
            ArgumentTypeError: a flag for a number, or a number for a flag.
        """
        checked: dict[str, Any] = {name: _checked(name, value) for name, value in options.items()}
        return replace(self, **checked)

    def as_og_dict(self) -> dict[str, float | bool]:
        """Flags as bool, numbers as float, as onnxruntime-genai reports them."""
        return {name: value if isinstance(value, bool) else float(value) for name, value in asdict(self).items()}


_RANGES = {"max_draft_tokens": (1, 16, False), "ngram_size": (2, 16, True), "min_adaptive_k": (1, 16, True)}
_FLAGS = ("ngram_chained_lookup", "cooldown")


def _checked(name: str, value: Any) -> int | bool:
    if name in _FLAGS:
        return flag(f"speculative.{name}", value)
    if name not in _RANGES:
        raise ArgumentError(
            f'Unknown value "{name}": there is no such speculative option; allowed are {", ".join((*_RANGES, *_FLAGS))}'
        )
    low, high, zero = _RANGES[name]
    allowed = f"{'0 (off) or ' if zero else ''}a whole number from {low} to {high}"
    count = number(f"speculative.{name}", value, allowed)
    if not (low <= count <= high or (zero and count == 0)) or not count.is_integer():
        raise ArgumentError(f"speculative.{name} is {value!r:.60}; {allowed} is allowed")
    return int(count)
