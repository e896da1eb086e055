"""The engine's Pythonic face: prompts in, answers out; waiting in a cell, in a thread or in an event loop.

Receives prompts (text, messages or token ids) and turn options by name. It makes requests, hands their events to
`Answer`s, and sees that somebody steps the engine: the caller (`generate_all`, `run_until_idle`) or a thread
(`submit`, `generate`). It decides nothing about who runs when.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast, overload

from numpy.typing import ArrayLike, NDArray

from genai_lab.decoding.token_input import token_array
from genai_lab.engine.answers import Answer, Mailbox
from genai_lab.engine.options import RequestOptions, TurnOptions
from genai_lab.engine.plan import Decision, Status, Verdict
from genai_lab.engine.request import Request
from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError
from genai_lab.tokenizer import Tokenizer

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]] | ArrayLike
"""Text as it is, a list of messages for the chat template, or token ids [n]."""

STALLED_STEPS = 1000  # a policy may let everybody wait for a while, but not for ever


class EngineFace:
    """The methods; `Engine` inherits them."""

    # ---- the caller steps

    @overload
    def generate_all(self, prompts: Iterable[Prompt], *, n: None = None, **options: Any) -> list[str | list[int]]: ...
    @overload
    def generate_all(self, prompts: Iterable[Prompt], *, n: int, **options: Any) -> list[list[str | list[int]]]: ...
    def generate_all(self, prompts: Iterable[Prompt], *, n: int | None = None, **options: Any) -> list[Any]:
        """Answer prompts, batched; the answers in the prompts' order.

        Args:
            prompts: each is text, a list of messages, or token ids [k].
            n: answers to each prompt, which is read once for all of them; with `seed`, answer i has seed + i. None: one
                answer, not in a list.
            options: `request_options=RequestOptions`, and those of a turn by name: max_generated_tokens,
                min_generated_tokens, do_sample, temperature, top_k, top_p, min_p, repetition_penalty,
                no_repeat_ngram_size, seed, stop_strings, guidance=(type, data), sampler=fn, logits_processors=[fn],
                stopping_criteria=[fn].

        Returns:
            Text for prompts of text or messages, token ids for token ids; with n, a list of n for each prompt.

        Raises:
            ArgumentError, ArgumentTypeError: a bad prompt or option; nothing was begun.
            CapacityError: a prompt or its answer does not fit.

        >>> engine.generate_all(["Why?", "How?"], max_generated_tokens=20)     # doctest: +SKIP
        """
        if isinstance(prompts, str) or not isinstance(prompts, Iterable):
            raise ArgumentTypeError(
                f"generate_all: prompts is {type(prompts).__name__}; a list of prompts is allowed, such as [prompt]"
            )
        engine = _engine(self)
        count = 1 if n is None else _count(n)
        answers: list[Answer] = []
        try:
            for prompt in prompts:
                answers += _ask(engine, prompt, options, count)
            if engine._driver.running:
                engine._driver.wake()
            else:
                _step_until_over(engine, answers)
            results = [answer.result() for answer in answers]
        finally:
            for answer in answers:
                answer._abandon()
        return results if n is None else [results[i : i + count] for i in range(0, len(results), count)]

    def run_until_idle(self) -> int:
        """Step until no turn is under way; how many steps it took. Events of `create_request`'s requests wait for
        `run`.

        Raises:
            StateError: the policy lets everybody wait, for 1,000 steps.
            Exception: a step failed; it was undone and may be tried again.
        """
        engine, steps, patience = _engine(self), 0, Patience()
        while engine._has_turns():
            patience.check(engine._advance())
            steps += 1
        return steps

    # ---- a thread steps

    def submit(self, prompt: Prompt, **options: Any) -> Answer:
        """Ask from any thread and go on; a background thread steps the engine while an answer is under way.

        Args and errors are those of `generate_all`, for one prompt. What a failing step raises reaches every answer
        under way; the engine goes on with what is asked next.

        >>> with Engine(model) as engine:                                      # doctest: +SKIP
        ...     answers = [engine.submit(p) for p in prompts]
        ...     texts = [answer.result() for answer in answers]
        """
        return self.submit_many(prompt, n=1, **options)[0]

    def submit_many(self, prompt: Prompt, *, n: int, **options: Any) -> list[Answer]:
        """As `submit`, for n answers to one prompt, which is read once; with `seed`, answer i has seed + i."""
        engine = _engine(self)
        answers = _ask(engine, prompt, options, _count(n))
        engine._driver.wake()
        return answers

    async def generate(self, prompt: Prompt, **options: Any) -> AsyncIterator[int]:
        """The answer's token ids, as they come. Many at once in one event loop, or several, are batched; leaving the
        loop or cancelling its task cancels the turn.

        Args and errors are those of `submit`.

        >>> async for token in engine.generate("Why?", max_generated_tokens=20): ...   # doctest: +SKIP
        """
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(news.set)

        # in a thread: the engine may be in the middle of a step, and an event loop must not wait for it
        (answer,) = await asyncio.to_thread(_ask, _engine(self), prompt, options, 1, tell)
        _engine(self)._driver.wake()
        try:
            seen = 0
            while True:
                news.clear()
                over, tokens = answer.done(), answer.tokens[seen:]
                for token in tokens:
                    yield token
                seen += len(tokens)
                if over:
                    break
                await news.wait()
            answer.result()
        finally:
            answer._abandon()

    def start(self) -> None:
        """Keep a background thread ready. Without it, `submit` starts one that ends when nothing is left to do.

        The thread records into what recorded where it was started (`with genai_lab.record()`).
        """
        engine = _engine(self)
        engine._check_open()
        engine._driver.start()

    def stop(self) -> None:
        """End the background thread after the step under way. Answers that are not over end with a StateError."""
        engine = _engine(self)
        engine._driver.stop()
        _fail_open(engine, StateError("the engine was stopped before the answer ended; submit it again after start()"))

    # ---- the end

    def close(self) -> None:
        """Stop, close every request and give the memory back; closing twice is allowed. Later calls are StateErrors."""
        engine = _engine(self)
        engine._driver.stop()
        _fail_open(engine, StateError("the engine was closed before the answer ended"))
        engine._give_back()

    def __enter__(self) -> Self:
        _engine(self)._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- for the driver

    def _work(self) -> bool:
        engine = _engine(self)
        try:
            with engine._lock:
                if engine._conversations.closed or not _open_mailboxes(engine):
                    return False
                engine._patience.check(engine._advance())
        except BaseException as error:  # the thread has nobody to raise to; those who wait have
            _fail_open(engine, error)
        return True


class Patience:
    """Counts steps in which nothing happened."""

    def __init__(self) -> None:
        self.idle = 0

    def check(self, decisions: tuple[Decision, ...]) -> None:
        """Raises StateError when a policy let everybody wait too often in a row."""
        if any(decision.verdict is not Verdict.WAIT for decision in decisions):
            self.idle = 0
            return
        self.idle += 1
        if self.idle >= STALLED_STEPS:
            self.idle = 0
            words = f" Request {decisions[0].request}: {decisions[0].in_words()}" if decisions else ""
            raise StateError(
                f"the policy scheduled nothing in {STALLED_STEPS} steps, though turns are under way; it must let "
                f"somebody run, or reject who never can.{words}"
            )


def _engine(face: EngineFace) -> Engine:
    """`Engine` is the only class that inherits the face."""
    return cast("Engine", face)


def _ask(
    engine: Engine, prompt: Prompt, options: Mapping[str, Any], n: int = 1, on_news: Callable[[], None] | None = None
) -> list[Answer]:
    """A request with one turn and n - 1 forks of it, whose events go to `Answer`s."""
    engine._check_open()
    tokens, is_text = _encoded(engine, prompt)
    request_options, turn = _options(options)
    tokenizer, seed = engine.model.tokenizer if is_text else None, options.get("seed")
    with engine._lock:
        first = engine.create_request(options=request_options)
        turn_id = first.begin_turn(tokens, turn)
        twins = [first.fork(seed=None if seed is None else seed + i) for i in range(1, n)]
        return [_answer(engine, request, turn_id, tokenizer, on_news) for request in (first, *twins)]


def _answer(
    engine: Engine, request: Request, turn_id: int, tokenizer: Tokenizer | None, on_news: Callable[[], None] | None
) -> Answer:
    mailbox = Mailbox(partial(engine._lock.dropped.append, request.number), on_news)
    engine._conversations.state(request.number).sink = mailbox
    return Answer(request, turn_id, mailbox, tokenizer)


def _count(n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int):
        raise ArgumentTypeError(f"n is {n!r}; a number of answers is allowed, an integer")
    if n < 1:
        raise ArgumentError(f"n is {n}; at least 1 answer is allowed")
    return n


def _encoded(engine: Engine, prompt: Prompt) -> tuple[NDArray[Any], bool]:
    tokenizer = engine.model.tokenizer
    if isinstance(prompt, str):
        return token_array(tokenizer.encode(prompt), engine.model.vocab_size), True
    if isinstance(prompt, Sequence) and prompt and all(isinstance(message, Mapping) for message in prompt):
        text = tokenizer.apply_chat_template(cast("Sequence[Mapping[str, Any]]", prompt))
        return token_array(tokenizer.encode(text), engine.model.vocab_size), True
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


def _step_until_over(engine: Engine, answers: list[Answer]) -> None:
    patience = Patience()
    while not all(answer.done() for answer in answers):
        patience.check(engine._advance())


def _open_mailboxes(engine: Engine) -> list[tuple[int, Mailbox]]:
    busy = (Status.WAITING, Status.RUNNING)
    states = engine._states.values()
    return [(s.request, s.sink) for s in states if isinstance(s.sink, Mailbox) and s.status in busy]


def _fail_open(engine: Engine, error: BaseException) -> None:
    """Every answer under way ends with `error`."""
    with engine._lock:
        for _, mailbox in _open_mailboxes(engine):
            mailbox.fail(error)
