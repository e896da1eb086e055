"""How the next token is searched for: onnxruntime-genai's search options by their names, types and defaults, and
`min_p`.

Receives option values from a person or a model folder, returns a frozen `SearchOptions`. It draws no token and knows
neither vocabulary nor logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

import numpy as np

from genai_lab.config.json_values import INT32_MAX, Place, an_object, as_float, as_whole_number, shorten, shown
from genai_lab.config.other_names import what_to_write
from genai_lab.errors import ArgumentError, ArgumentTypeError

OptionValue: TypeAlias = bool | int | float | None

MAX_BATCH_SIZE: Final = 32
MAX_NUM_BEAMS: Final = 32
LARGEST: Final = 1e30
SMALLEST: Final = 1e-30
"""Within these, dividing or multiplying a logit stays inside float32, in which the arithmetic is done."""


class _RefusedError(Exception):
    """A value that a rule does not allow; says what is allowed. Callers add the name and the place."""

    def __init__(self, allowed: str, *, wrong_type: bool) -> None:
        super().__init__(allowed)
        self.allowed = allowed
        self.wrong_type = wrong_type


@dataclass(frozen=True)
class _Rule:
    """What one option may be. Booleans, integers and numbers are strict: none stands for another."""

    kind: type
    low: float = -LARGEST
    high: float = LARGEST
    or_zero: bool = False
    optional: bool = False
    zero_is_none: bool = False

    def check(self, value: object) -> OptionValue:
        value = value.item() if isinstance(value, np.generic) else value
        if self.optional and value is None:
            return None
        if isinstance(value, bool) != (self.kind is bool) or not isinstance(value, bool | int | float):
            raise _RefusedError(self.allowed(), wrong_type=True)
        if self.kind is bool:
            return value
        number = as_whole_number(value) if self.kind is int else as_float(value)
        if number is None or not self._in_range(number):
            raise _RefusedError(self.allowed(), wrong_type=False)
        return None if self.zero_is_none and number == 0 else number

    def _in_range(self, number: float) -> bool:
        return self.low <= number <= self.high or (self.or_zero and number == 0)

    def allowed(self) -> str:
        if self.kind is bool:
            return "True or False"
        if self.kind is int:
            return f"an integer from {self.low} to {self.high}"
        return f"{'0 or ' * self.or_zero}a finite number from {self.low:g} to {self.high:g}"


def _flag(default: bool) -> bool:
    value: bool = field(default=default, metadata={"rule": _Rule(bool)})
    return value


def _count(default: int, low: int = 0, high: int = INT32_MAX) -> int:
    value: int = field(default=default, metadata={"rule": _Rule(int, low, high)})
    return value


def _number(default: float, low: float = -LARGEST, high: float = LARGEST, *, or_zero: bool = False) -> float:
    value: float = field(default=default, metadata={"rule": _Rule(float, low, high, or_zero)})
    return value


def _maybe(rule: _Rule) -> Any:
    return field(default=None, metadata={"rule": replace(rule, optional=True)})


@dataclass(frozen=True)
class SearchOptions:
    """Options of one generation. Immutable: `with_options` gives a changed copy.

    Args:
        context_length: tokens the model can hold, prompt included. Not an option; it is the default and the upper bound
            of `max_length`.

    Raises:
        ArgumentTypeError: a boolean for a number, a number for a boolean, or neither.
        ArgumentError: a value outside its range, or a name that is no option.

    Example:
        >>> options = SearchOptions(context_length=8192).with_options(do_sample=True, temperature=0.7)
        >>> options.temperature, options.top_k, options.max_length
        (0.7, 50, 8192)
    """

    context_length: int
    do_sample: bool = _flag(False)
    """True draws from the distribution; False takes the highest logit."""
    top_k: int = _count(50)
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = _number(0.0, 0.0, 1.0)
    """Keep the most likely tokens whose probabilities reach p; 0 and 1 keep all."""
    min_p: float = _number(0.0, 0.0, 1.0)
    """Drop tokens less likely than min_p times the most likely one; 0 keeps all. Not in onnxruntime-genai."""
    temperature: float = _number(1.0, SMALLEST, or_zero=True)
    """Divides the logits before the softmax; 0 takes the highest logit."""
    repetition_penalty: float = _number(1.0, SMALLEST)
    """Makes tokens that already occur less likely when above 1."""
    no_repeat_ngram_size: int = _count(0)
    """No n-gram of this size occurs twice; 0 is off."""
    min_length: int = _count(0)
    """No end of sequence before this many tokens, prompt included. Above `max_length`, the answer ends there all the
    same, as in onnxruntime-genai."""
    max_length: int = _count(0)
    """Tokens at most, prompt included. 0 when constructed means `context_length`."""
    random_seed: int = _count(-1, -1)
    """Seed of the random stream; -1 takes a new one each time."""
    batch_size: int = _count(1, 1, MAX_BATCH_SIZE)
    num_beams: int = _count(1, 1, MAX_NUM_BEAMS)
    """Beams kept by beam search; 1 is no beam search."""
    num_return_sequences: int = _count(1, 1)
    length_penalty: float = _number(1.0)
    """Exponent of the length by which a beam's score is divided."""
    diversity_penalty: float = _number(0.0)
    """Has no effect, as in onnxruntime-genai."""
    early_stopping: bool = _flag(True)
    """Beam search ends as soon as `num_beams` sequences are finished."""
    past_present_share_buffer: bool = _flag(False)
    """The KV cache is one buffer of `max_length`."""
    chunk_size: int | None = _maybe(_Rule(int, 0, INT32_MAX, zero_is_none=True))
    """Tokens of the prompt that one run reads; None (or 0) reads all at once."""
    blank_penalty: float = _number(0.0)
    """For speech transducers only, as the following three are for models that speak; kept, not used."""
    audio_temperature: float | None = _maybe(_Rule(float, 0.0))
    audio_top_k: int | None = _maybe(_Rule(int, 0, INT32_MAX))
    audio_interleaved: bool | None = _maybe(_Rule(bool))

    def __post_init__(self) -> None:
        for name, value in _checked({name: getattr(self, name) for name in _RULES}).items():
            object.__setattr__(self, name, value)
        if self.max_length == 0:
            object.__setattr__(self, "max_length", self.context_length)

    def with_options(self, **options: object) -> SearchOptions:
        """A copy with these options changed. All of them are checked first, so an error changes nothing."""
        if (length := as_whole_number(options.get("max_length"))) is not None:
            self._check_max_length(length)
        checked = _checked(options)
        changes: dict[str, Any] = dict(checked)
        return replace(self, **changes)

    def _check_max_length(self, value: OptionValue) -> None:
        if not isinstance(value, int) or not 1 <= value <= self.context_length:
            context, above = self.context_length, ""
            if isinstance(value, int) and value > context:
                above = f": max_length ({value}) cannot be greater than model context_length ({context})"
            raise ArgumentError(
                f"search max_length is {value}; an integer from 1 to {context} (the model's context_length) is "
                f"allowed{above}. It counts the prompt as well as the answer."
            )

    def check_together(self) -> None:
        """Refuse options that are each allowed but cannot work together. To be called when a generator is made.

        Raises:
            ArgumentError: names the options and the way out.
        """
        self._check_max_length(self.max_length)
        if self.num_return_sequences > self.num_beams:
            raise ArgumentError(
                f"num_return_sequences ({self.num_return_sequences}) must be in [1, {self.num_beams}]: at most "
                f"num_beams sequences can be returned. Raise num_beams, or use batch_size for independent answers."
            )
        if self.num_beams > 1 and self.do_sample and self.top_k != 1:
            raise ArgumentError(
                f"do_sample is True with num_beams {self.num_beams}; beam search does not draw. Set do_sample=False, "
                f"or num_beams=1."
            )

    def as_og_dict(self) -> dict[str, bool | float]:
        """The options as onnxruntime-genai's `get_search_options` gives them: booleans and floats only.

        Real numbers are rounded to float32, as they are stored there (0.7 reads 0.699999988079071); a `chunk_size` of
        None reads 0.0. `min_p` and what only speech models use are not in it.
        """
        return {name: _as_og_value(getattr(self, name)) for name in _OG_NAMES}


def _as_og_value(value: OptionValue) -> bool | float:
    if isinstance(value, bool):
        return value
    return float(np.float32(value)) if isinstance(value, float) else float(value or 0)


_RULES: Final[dict[str, _Rule]] = {
    item.name: item.metadata["rule"] for item in fields(SearchOptions) if "rule" in item.metadata
}
OPTION_NAMES: Final = tuple(_RULES)
_OG_NAMES: Final = tuple(
    sorted(set(OPTION_NAMES) - {"min_p", "blank_penalty", "audio_temperature", "audio_top_k", "audio_interleaved"})
)


def allowed_values(name: str) -> str:
    """In words, what the option may be.

    >>> allowed_values("top_p"), allowed_values("do_sample")
    ('a finite number from 0 to 1', 'True or False')
    """
    return _RULES[name].allowed()


def _checked(options: dict[str, object]) -> dict[str, OptionValue]:
    checked: dict[str, OptionValue] = {}
    for name, value in options.items():
        if name not in _RULES:
            raise _unknown(name)
        try:
            checked[name] = _RULES[name].check(value)
        except _RefusedError as refused:
            raise _refused(name, value, refused) from None
    return checked


def _unknown(name: str) -> ArgumentError:
    shown_name = shorten(name)
    return ArgumentError(
        f'Unknown value "{shown_name}": {shown_name!r} is no search option; {what_to_write(name, OPTION_NAMES)}'
    )


def _refused(name: str, value: object, refused: _RefusedError) -> ArgumentError | ArgumentTypeError:
    kind = ArgumentTypeError if refused.wrong_type else ArgumentError
    return kind(f"{name} is {shown(value)}; {refused.allowed} is allowed.")


def read_search_options(value: object, place: Place, context_length: int) -> SearchOptions:
    """The `search` section of genai_config.json. A `max_length` above the context is kept here and refused when used.

    Raises:
        ModelFolderError: names the key, the value and what is allowed.
    """
    given: dict[str, Any] = {}
    for name, item in an_object(value, place).items():
        if name not in _RULES:
            raise place.unknown_key(name, OPTION_NAMES)
        try:
            given[name] = _RULES[name].check(item)
        except _RefusedError as refused:
            raise place.key(name).error(item, refused.allowed) from None
    return SearchOptions(context_length=context_length, **given)
