"""What a person puts into the step: guidance, processors of their own and their order, a sampler, stopping rules.

`Hooks` are values: each change makes new ones, so copies of params never share a change. `HookSetters` are the methods
that `GeneratorParams` and `TurnOptions` have in common. Nothing is called and no grammar is compiled here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.kinds import whole
from genai_lab.sampling import BUILT_IN, OwnProcessor, OwnSampler, OwnStopping
from genai_lab.sampling.own import ProcessorFunction, SamplerFunction, StoppingFunction

TAKEN: Final = (
    "chat_template",
    "tokenize",
    "run_vision",
    "run_speech",
    "run_embedding",
    "prepare_inputs",
    "run_prefill",
    "run_decode",
    "read_logits",
    "select",
    "commit",
    "kv_append",
    "detokenize",
    "recorder",
)
"""Names of other stages in a trace."""
UNUSED: Final = {"temperature": 1.0, "top_k": 0, "top_p": 0.0, "min_p": 0.0}
"""Settings that a sampler of one's own does not look at, as if off."""
MAX_NAME: Final = 40  # characters
MAX_OWN: Final = 32  # callables of one kind


@dataclass(frozen=True, slots=True)
class GuidanceText:
    """A grammar as it was given."""

    kind: str  # json_schema, regex or lark_grammar
    text: str
    enable_ff_tokens: bool = False  # append what the grammar forces without asking the model


@dataclass(frozen=True, slots=True)
class Hooks:
    """All of it, in one value."""

    guidance: GuidanceText | None = None
    order: tuple[str, ...] = BUILT_IN  # names of all processors, ours and theirs, first to last
    processors: tuple[OwnProcessor, ...] = ()
    sampler: OwnSampler | None = None
    stopping: tuple[OwnStopping, ...] = ()

    def describe(self) -> dict[str, Any]:
        """For a trace: what is there by name; empty when nothing is."""
        facts: dict[str, Any] = {}
        if self.guidance is not None:
            facts["guidance"] = {
                "type": self.guidance.kind,
                "data": self.guidance.text,
                "enable_ff_tokens": self.guidance.enable_ff_tokens,
            }
        if self.processors or self.order != BUILT_IN:
            facts["logits_processors"] = list(self.order)
        if self.sampler is not None:
            facts["sampler"] = self.sampler.name
            facts |= UNUSED  # so that no picture shows filters that were not there
        if self.stopping:
            facts["stopping_criteria"] = [rule.name for rule in self.stopping]
        return facts


class HookSetters:
    """The methods. They replace `hooks`, which is a value."""

    hooks: Hooks

    def add_logits_processor(
        self,
        function: ProcessorFunction,
        name: str | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        at: int | None = None,
    ) -> str:
        """Call `function` on the logits of every token, before one is selected.

        Args:
            function: `fn(tokens, logits)`; tokens int32 [n] (prompt and answer, read-only), logits float32 [V], as the
                processors before it left them. It changes them in place and returns None, or returns new ones [V].
                -inf forbids a token. The memory is used again: copy what you keep.
            name: in traces and pictures; its own name unless given.
            before, after: name of the processor it goes next to. at: its place, 0 is first. None of them: last.

        Returns:
            The name it got.

        Raises:
            ArgumentError, ArgumentTypeError: not callable; a name that is taken or not there; two places.

        >>> def no_digits(tokens, logits): logits[digit_ids] = -np.inf     # doctest: +SKIP
        >>> params.add_logits_processor(no_digits, after="guidance")       # doctest: +SKIP
        'no_digits'
        """
        hooks = self.hooks
        own = _named(function, name, hooks.order, "add_logits_processor")
        _check_count(len(hooks.processors), "logits processors")
        place = _place(hooks.order, before, after, at)
        order = (*hooks.order[:place], own, *hooks.order[place:])
        self.hooks = replace(hooks, order=order, processors=(*hooks.processors, OwnProcessor(function, own)))
        return own

    def remove_logits_processor(self, name: str) -> None:
        """Take out a processor that was added.

        Raises:
            ArgumentError: there is none of this name among those that were added.
        """
        hooks = self.hooks
        left = tuple(p for p in hooks.processors if p.name != name)
        if len(left) == len(hooks.processors):
            names = ", ".join(repr(p.name) for p in hooks.processors) or "none was added"
            raise ArgumentError(
                f"remove_logits_processor: {name!r:.60} was not added; allowed: {names}. Our own are switched off by "
                "their options (min_length=0, repetition_penalty=1.0, no_repeat_ngram_size=0)"
            )
        self.hooks = replace(hooks, processors=left, order=tuple(n for n in hooks.order if n != name))

    @property
    def logits_processors(self) -> tuple[str, ...]:
        """Names of all processors in the order in which they act, ours (even where their option leaves them off) and
        those that were added. Assign the same names in another order to change it."""
        return self.hooks.order

    @logits_processors.setter
    def logits_processors(self, names: Sequence[str]) -> None:
        order = self.hooks.order
        if isinstance(names, str) or sorted(map(str, names)) != sorted(order):
            raise ArgumentError(
                f"logits_processors is {names!r:.200}; allowed are the same names in any order: {', '.join(order)}. "
                "To add one call add_logits_processor, to take one out remove_logits_processor"
            )
        self.hooks = replace(self.hooks, order=tuple(names))

    def set_sampler(self, function: SamplerFunction | None, name: str | None = None) -> None:
        """Let `function` select every token, in place of greedy or of temperature, top-k, top-p, min-p and the draw.

        Args:
            function: `fn(logits, rng)`; logits float32 [V] after all processors (read-only), rng a
                `numpy.random.Generator` over the generator's own random stream (seeded by random_seed). It returns
                one token id. None: ours again.
            name: in traces and pictures; its own name unless given.

        >>> params.set_sampler(lambda logits, rng: int(logits.argmax()))   # doctest: +SKIP
        """
        sampler = None
        if function is not None:
            sampler = OwnSampler(function, _named(function, name, self.hooks.order, "set_sampler"))
        self.hooks = replace(self.hooks, sampler=sampler)

    def add_stopping_criterion(self, function: StoppingFunction, name: str | None = None) -> str:
        """Ask `function` after every token (an end token excepted) whether the answer is over.

        Args:
            function: `fn(tokens)`; tokens int32 [n], prompt and answer with the new token (read-only). It returns
                True or a reason in words to end, else False or None.
            name: in the reason; its own name unless given.

        Returns:
            The name it got.
        """
        taken = tuple(rule.name for rule in self.hooks.stopping)
        own = _named(function, name, taken, "add_stopping_criterion")
        _check_count(len(taken), "stopping criteria")
        self.hooks = replace(self.hooks, stopping=(*self.hooks.stopping, OwnStopping(function, own)))
        return own

    def remove_stopping_criterion(self, name: str) -> None:
        """Take out a stopping criterion.

        Raises:
            ArgumentError: there is none of this name.
        """
        left = tuple(rule for rule in self.hooks.stopping if rule.name != name)
        if len(left) == len(self.hooks.stopping):
            names = ", ".join(repr(rule.name) for rule in left) or "none was added"
            raise ArgumentError(f"remove_stopping_criterion: {name!r:.60} was not added; allowed: {names}")
        self.hooks = replace(self.hooks, stopping=left)

    def _guide_by(self, kind: object, text: object, enable_ff_tokens: object = False) -> None:
        for argument, value in (("type", kind), ("data", text)):
            if not isinstance(value, str):
                raise ArgumentTypeError(f"set_guidance: {argument} is {type(value).__name__}; a string is allowed")
        if not isinstance(enable_ff_tokens, bool | int):
            raise ArgumentTypeError(
                f"set_guidance: enable_ff_tokens is {type(enable_ff_tokens).__name__}; True or False is allowed"
            )
        given = GuidanceText(str(kind), str(text), bool(enable_ff_tokens)) if kind or text else None
        self.hooks = replace(self.hooks, guidance=given)


def _named(function: object, name: object, taken: Sequence[str], call: str) -> str:
    """The name a callable gets."""
    if not callable(function):
        raise ArgumentTypeError(f"{call}: got {type(function).__name__} {function!r:.40}; a callable is allowed")
    if name is None:
        return _free(_own_name(function), taken)
    if not isinstance(name, str):
        raise ArgumentTypeError(f"{call}: name is {type(name).__name__}; a string is allowed")
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise ArgumentError(f"{call}: name is {name!r:.60}; 1 to {MAX_NAME} printable characters are allowed")
    if name in taken or name in TAKEN or name in BUILT_IN:
        raise ArgumentError(f"{call}: the name {name!r} is taken; choose another")
    return name


def _own_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__
    name = "lambda" if name == "<lambda>" else str(name)
    return "".join(c for c in name if c.isprintable())[: MAX_NAME - 4] or "callable"


def _free(name: str, taken: Sequence[str]) -> str:
    """`name`, or with a number behind it."""
    used = {*taken, *TAKEN, *BUILT_IN}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 2 + len(used)))) if n not in used)


def _check_count(count: int, what: str) -> None:
    if count >= MAX_OWN:
        raise ArgumentError(f"{count} {what} were added already; at most {MAX_OWN} are allowed")


def _place(order: Sequence[str], before: str | None, after: str | None, at: int | None) -> int:
    """The index in `order` that the three arguments ask for."""
    given = [name for name, value in (("before", before), ("after", after), ("at", at)) if value is not None]
    if len(given) > 1:
        raise ArgumentError(f"add_logits_processor: {' and '.join(given)} were given; one place is allowed")
    if at is not None:
        place = whole("add_logits_processor: at", at)
        if not 0 <= place <= len(order):
            raise ArgumentError(f"add_logits_processor: at is {place}; 0 to {len(order)} is allowed")
        return place
    neighbour = before if before is not None else after
    if neighbour is None:
        return len(order)
    if neighbour not in order:
        raise ArgumentError(
            f"add_logits_processor: {given[0]} is {neighbour!r:.60}; allowed are {', '.join(map(repr, order))}"
        )
    return order.index(neighbour) + (before is None)
