"""Options of a request and of a turn, with onnxruntime-genai's setters. Copied when they are handed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np

from genai_lab.config import SearchOptions
from genai_lab.decoding import Hooks, HookSetters
from genai_lab.errors import ArgumentError, ArgumentTypeError, CountError, StateError, wrong_kind
from genai_lab.grammar.compiler import KINDS

MAX_STOP_STRINGS = 16
MAX_STOP_BYTES = 16 * 1024  # of all of them together
MAX_COUNT, MAX_SEED = 2**63 - 1, 2**64 - 1


class RequestOptions:
    """Options of a request over all its turns (og class RequestOptions)."""

    def __init__(self) -> None:
        self.max_session_tokens = 0
        self.priority = 0  # ours; lower runs first, for PriorityFirst
        self.adapter = ""  # ours; part of the prefix cache's key
        self.salt = ""  # ours; requests with different salts share nothing

    def set_max_session_tokens(self, tokens: int) -> None:
        """Tokens, prompt and answers of every turn, that the request may reach; 0 takes the engine's limit."""
        self.max_session_tokens = _whole("max_session_tokens", tokens, 0)

    def _checked(self) -> RequestOptions:
        """A copy whose every attribute is of its kind; a person may have set them to anything."""
        own = RequestOptions()
        own.set_max_session_tokens(self.max_session_tokens)
        own.priority = _whole("RequestOptions.priority", self.priority, -MAX_COUNT)
        for name in ("adapter", "salt"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise wrong_kind(f"RequestOptions.{name}", value, 'a text (str), "" for none')
            setattr(own, name, value)
        return own


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """A turn's options, checked."""

    search: SearchOptions
    max_generated_tokens: int = 0  # 0: no cap of its own
    min_generated_tokens: int = 0
    stop_strings: tuple[str, ...] = ()
    seed: int | None = None
    hooks: Hooks = field(default_factory=Hooks)  # a grammar, and a person's own parts of the step


@dataclass(slots=True)
class TurnOptions(HookSetters):
    """Options of one turn (og class TurnOptions). What is not set is the model folder's.

    Args:
        request: og's constructor names the request; nothing of it is needed, so it may be left out.
    """

    request: InitVar[Any] = None
    _given: dict[str, Any] = field(default_factory=dict)
    hooks: Hooks = field(default_factory=Hooks)

    def __post_init__(self, request: Any) -> None:
        if request is None:
            return
        if not hasattr(request, "begin_turn"):
            raise wrong_kind("TurnOptions: request", request, "a Request: engine.create_request(), or None")
        if request.closed:
            raise StateError("TurnOptions cannot be made for a closed request; make a new one: engine.create_request()")

    def reset(self) -> None:
        """Unset every option."""
        self._given.clear()
        self.hooks = Hooks()

    def set_guidance(self, type: str, data: str) -> None:
        """Let this turn's answer be only what a grammar allows; see `GeneratorParams.set_guidance`. The next turn has
        none unless it is set again. `begin_turn` raises GrammarError for a wrong grammar."""
        if isinstance(type, str) and type not in ("", *KINDS):
            raise ArgumentError(f"set_guidance: Unsupported guidance type: {type:.60}; allowed are {', '.join(KINDS)}")
        self._guide_by(type, data)

    def clear_guidance(self) -> None:
        """No grammar."""
        self._guide_by("", "")

    def set_do_sample(self, do_sample: bool) -> None:
        """True draws; False takes the highest logit."""
        self._given["do_sample"] = _flag("do_sample", do_sample)

    def set_temperature(self, temperature: float) -> None:
        """Sampling temperature; 0 takes the highest logit."""
        self._given["temperature"] = _number("temperature", temperature)

    def set_top_k(self, top_k: int) -> None:
        """Keep the k best; 1 takes the best, 0 keeps all."""
        self._given["top_k"] = _integer("top_k", top_k)

    def set_top_p(self, top_p: float) -> None:
        """Keep the best until their probabilities reach p."""
        self._given["top_p"] = _number("top_p", top_p)

    def set_min_p(self, min_p: float) -> None:
        """Drop what is less likely than min_p times the best (ours)."""
        self._given["min_p"] = _number("min_p", min_p)

    def set_repetition_penalty(self, penalty: float) -> None:
        """Penalty for tokens that occur already; above 0."""
        self._given["repetition_penalty"] = _number("repetition_penalty", penalty)

    def set_no_repeat_ngram_size(self, size: int) -> None:
        """No n-gram of this size twice; 0 is off."""
        self._given["no_repeat_ngram_size"] = _integer("no_repeat_ngram_size", size)

    def set_max_generated_tokens(self, tokens: int) -> None:
        """Tokens this turn may generate; 0 is no cap."""
        self._given["max_generated_tokens"] = _whole("max_generated_tokens", tokens, 0)

    def set_min_generated_tokens(self, tokens: int) -> None:
        """No end token before this many are generated; 0 is off."""
        self._given["min_generated_tokens"] = _whole("min_generated_tokens", tokens, 0)

    def set_seed(self, seed: int) -> None:
        """Restart the request's random stream from this seed when the turn begins; 0 is a seed like any other."""
        self._given["seed"] = _whole("seed", seed, 0, MAX_SEED)

    def clear_seed(self) -> None:
        """Go on with the request's random stream."""
        self._given.pop("seed", None)

    def set_stop_strings(self, strings: Sequence[str]) -> None:
        """The turn ends when the answer contains one of these; an empty list clears them. At most 16, of 16 KiB
        together."""
        if isinstance(strings, str) or not isinstance(strings, Sequence):
            raise wrong_kind("stop_strings", strings, "a list of strings")
        if not all(isinstance(text, str) for text in strings):
            raise ArgumentTypeError(f"stop_strings is {strings!r:.80}; a list of strings is allowed")
        if len(strings) > MAX_STOP_STRINGS:
            raise ArgumentError(f"stop_strings: {len(strings)} were given, allowed are at most {MAX_STOP_STRINGS}")
        if any(text == "" or "\0" in text for text in strings):
            raise ArgumentError(
                f"stop_strings: one is empty or has a NUL character; text without NUL is allowed; got {strings!r:.80}"
            )
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in strings)
        if size > MAX_STOP_BYTES:
            raise ArgumentError(f"stop_strings: {size} bytes together, allowed are at most {MAX_STOP_BYTES}")
        self._given["stop_strings"] = tuple(strings)

    def _settings(self, defaults: SearchOptions) -> TurnSettings:
        """These options over the model folder's, all checked.

        Raises:
            ArgumentError, ArgumentTypeError: a value out of range, or sampling options with do_sample False.
        """
        own = {"max_generated_tokens", "min_generated_tokens", "stop_strings", "seed"}
        search = defaults.with_options(**{k: v for k, v in self._given.items() if k not in own})
        self._check_sampling(search)
        settings = TurnSettings(search, hooks=self.hooks)
        settings = replace(settings, **{k: v for k, v in self._given.items() if k in own})
        least, most = settings.min_generated_tokens, settings.max_generated_tokens
        if most and least > most:
            raise ArgumentError(
                f"min_generated_tokens is {least}; at most max_generated_tokens = {most} are allowed. Lower one, or "
                "raise the other"
            )
        return settings

    def _check_sampling(self, search: SearchOptions) -> None:
        """Refuse options that contradict each other; those that change nothing may be given."""
        given = self._given
        if given.get("top_k") == 1:
            why, remedy = "top_k is 1", "Give another top_k"
        elif given.get("temperature") == 0:
            why, remedy = "temperature is 0", "Give another temperature"
        else:
            why, remedy = "do_sample is False", "Call set_do_sample(True)"
            if given.get("do_sample"):
                _check_defaults_sample(given, search)
            if search.do_sample:
                return
        pointless = [name for name, neutral in _NEUTRAL.items() if given.get(name, neutral[0]) not in neutral]
        if pointless:
            raise ArgumentError(
                f"{why}, so the likeliest token is taken, and these options contradict it: "
                f"{', '.join(pointless)}. {remedy}, or leave them out"
            )


_NEUTRAL = {"temperature": (1.0, 0.0), "top_k": (0, 1), "top_p": (1.0, 0.0), "min_p": (0.0,)}
"""What means, or changes nothing when, the likeliest token is taken."""


def _check_defaults_sample(given: dict[str, Any], search: SearchOptions) -> None:
    """A default of the folder, which the caller does not see, must not silently undo set_do_sample(True)."""
    undone = [
        f"search.{name} = {value}"
        for name, value in (("top_k", 1), ("temperature", 0))
        if name not in given and getattr(search, name) == value
    ]
    if undone:
        raise ArgumentError(
            f"do_sample is True, but the model folder's {' and '.join(undone)} takes the likeliest token; set "
            f"{' and '.join(entry.split()[0].removeprefix('search.') for entry in undone)} for this turn, too"
        )


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(f"{name} is {value!r:.60}; True or False is allowed")
    return bool(value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentTypeError(f"{name} is {value!r:.60}; a number is allowed")
    try:
        return float(value)
    except OverflowError as error:
        raise CountError(f"{name} is larger than a float can be; a smaller number is allowed") from error


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ArgumentTypeError(f"{name} is {value!r:.60}; a whole number (int) is allowed")
    return int(value)


def _whole(name: str, value: object, low: int, high: int = MAX_COUNT) -> int:
    number = _integer(name, value)
    if not low <= number <= high:
        raise CountError(
            f"{name} is {number}; a whole number (int) of at least {low} is allowed, below 2**{high.bit_length()}"
        )
    return number
