"""Asking by name: a prompt and options as a caller writes them become requests, turns and answers.

Receives text, messages or token ids, and options by keyword. It steps nothing and waits for nothing.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.decoding import mode_of
from genai_lab.decoding.token_input import token_array
from genai_lab.engine.answers import Answer, Mailbox
from genai_lab.engine.options import MAX_SEED, RequestOptions, TurnOptions
from genai_lab.engine.request import Request
from genai_lab.errors import ArgumentError, ArgumentTypeError, CapacityError, GenaiLabError, TemplateError, wrong_kind
from genai_lab.kinds import whole
from genai_lab.sampling import SamplingMode
from genai_lab.tokenizer import Tokenizer
from genai_lab.types import Tensor

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]] | ArrayLike
"""Text as it is, a list of messages for the chat template, or token ids [n]."""


def ask(
    engine: Engine,
    prompt: Prompt,
    options: Mapping[str, Any],
    n: int = 1,
    on_news: Callable[[], None] | None = None,
    *,
    name: str = "prompt",
) -> list[Answer]:
    """A request with one turn and n - 1 forks of it, whose events go to `Answer`s; seeds count up, and after the
    largest comes 0. Errors about the prompt begin with its `name`."""
    engine._check_open()
    with _about(name, ArgumentError, ArgumentTypeError, TemplateError):
        tokens, is_text = _encoded(engine, prompt)
    request_options, turn = _options(options)
    tokenizer, seed = engine.model.tokenizer if is_text else None, options.get("seed")
    with engine._lock:
        first = engine.create_request(options=request_options)
        with _about(name, CapacityError):
            turn_id = first.begin_turn(tokens, turn)
        seeds = [None if seed is None else (int(seed) + i) % (MAX_SEED + 1) for i in range(n)]
        twins = [first.fork(seed=own) for own in seeds[1:]]
        return [_answer(engine, request, turn_id, tokenizer, on_news) for request in (first, *twins)]


@contextmanager
def _about(name: str, *errors: type[GenaiLabError]) -> Iterator[None]:
    """What is raised inside says which prompt it speaks of."""
    try:
        yield
    except errors as error:
        error.args = (f"{name}: {error}",)
        raise


def _answer(
    engine: Engine, request: Request, turn_id: int, tokenizer: Tokenizer | None, on_news: Callable[[], None] | None
) -> Answer:
    mailbox = Mailbox(partial(engine._lock.dropped.append, request.number), on_news)
    engine._conversations.state(request.number).sink = mailbox
    return Answer(request, turn_id, mailbox, tokenizer)


def count(n: object) -> int:
    """`n` as an int, if it is a number of answers."""
    answers = whole("n", n, "a number of answers, a whole number (int)")
    if answers < 1:
        raise ArgumentError(f"n is {answers}; at least 1 answer is allowed")
    return answers


def warn_if_all_the_same(engine: Engine, options: Mapping[str, Any], n: int) -> None:
    """A UserWarning when nothing can make n answers to one prompt differ. A processor or sampler of one's own may.

    Raises:
        ArgumentError, ArgumentTypeError: an option that is not allowed.
    """
    if n < 2:
        return
    _, turn = _options(options)
    settings = turn._settings(engine.model.config.search_options())
    if not options.get("logits_processors") and mode_of(settings.search, settings.hooks).mode is SamplingMode.GREEDY:
        warnings.warn(
            f"{n} answers are the same without sampling: do_sample=True (and no top_k=1, no temperature=0) draws each "
            "by itself; or leave n out",
            UserWarning,
            stacklevel=3,
        )


def _encoded(engine: Engine, prompt: Prompt) -> tuple[NDArray[Any], bool]:
    tokenizer = engine.model.tokenizer
    if isinstance(prompt, str):
        tokens = tokenizer.encode(prompt)
        if tokens.size == 0:
            raise ArgumentError(f"{prompt!r:.60} is no token at all, so it is an empty prompt; ask something")
        return token_array(tokens, engine.model.vocab_size), True
    if isinstance(prompt, Sequence) and prompt and all(isinstance(message, Mapping) for message in prompt):
        text = tokenizer.apply_chat_template(cast("Sequence[Mapping[str, Any]]", prompt))
        return token_array(tokenizer.encode(text), engine.model.vocab_size), True
    if isinstance(prompt, bytes) or not (isinstance(prompt, Sequence | Tensor) or np.ndim(cast("ArrayLike", prompt))):
        raise wrong_kind("what was given", prompt, "text, a list of messages, or token ids [n]")
    return token_array(cast("ArrayLike", prompt), engine.model.vocab_size), False


_SETTERS = {name.removeprefix("set_"): name for name in dir(TurnOptions) if name.startswith("set_")}


def _set_guidance(turn: TurnOptions, value: Any) -> None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ArgumentTypeError(f"guidance is {value!r:.60}; a pair is allowed, such as ('regex', 'yes|no')")
    turn.set_guidance(*value)


def _add_each(add: Callable[[TurnOptions, Any], Any], name: str) -> Callable[[TurnOptions, Any], None]:
    def add_all(turn: TurnOptions, functions: Any) -> None:
        if not isinstance(functions, tuple | list):
            raise ArgumentTypeError(f"{name} is {type(functions).__name__}; a list of callables is allowed")
        for function in functions:
            add(turn, function)

    return add_all


_OWN: dict[str, Callable[[TurnOptions, Any], None]] = {
    "guidance": _set_guidance,
    "logits_processors": _add_each(TurnOptions.add_logits_processor, "logits_processors"),
    "stopping_criteria": _add_each(TurnOptions.add_stopping_criterion, "stopping_criteria"),
}
"""Options of a turn that no setter takes as one value."""


def _options(given: Mapping[str, Any]) -> tuple[RequestOptions | None, TurnOptions]:
    """Options by name as the two objects that requests take."""
    turn, request = TurnOptions(), None
    for name, value in given.items():
        if name == "request_options":
            if not isinstance(value, RequestOptions):
                raise ArgumentTypeError(f"request_options is {type(value).__name__}; a RequestOptions is allowed")
            request = value
        elif name in _OWN:
            _OWN[name](turn, value)
        elif name not in _SETTERS:
            near = difflib.get_close_matches(name, [*_SETTERS, *_OWN], 1)
            hint = f"did you mean {near[0]}?" if near else f"allowed are {', '.join(sorted({*_SETTERS, *_OWN}))}"
            raise ArgumentError(f"{name} is not an option of a turn; {hint}")
        else:
            getattr(turn, _SETTERS[name])(value)
    return request, turn
