"""The engine's Pythonic face: prompts in, answers out; waiting in a cell, in a thread or in an event loop.

Receives prompts (text, messages or token ids) and turn options by name. It makes requests, hands their events to
`Answer`s, and sees that somebody steps the engine: the caller (`generate_all`, `run_until_idle`) or a thread
(`submit`, `generate`). It decides nothing about who runs when.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast, overload

from genai_lab.engine.answers import Answer, Mailbox
from genai_lab.engine.asking import Prompt, ask, count, warn_if_all_the_same
from genai_lab.engine.plan import Decision, Status, Verdict
from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError
from genai_lab.lifecycle import Closing

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine

STALLED_STEPS = 1000  # a policy may let everybody wait for a while, but not for ever


class EngineFace(Closing):
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
            n: answers to each prompt, which is read once for all of them; with `seed`, answer i has seed + i (0 comes
                after 2**64 - 1). None: one answer, not in a list. Without do_sample=True they are all the same, and a
                UserWarning says so.
            options: `request_options=RequestOptions`, and those of a turn by name: max_generated_tokens,
                min_generated_tokens, do_sample, temperature, top_k, top_p, min_p, repetition_penalty,
                no_repeat_ngram_size, seed, stop_strings, guidance=(type, data), sampler=fn, logits_processors=[fn],
                stopping_criteria=[fn]. Without max_generated_tokens, an answer goes on until the model ends it, a stop
                string or criterion does, or the conversation, prompt included, has the engine's max_session_tokens
                (2,048 or the model's context_length if that is less, unless given), or those of its RequestOptions.

        Returns:
            Text for prompts of text or messages, token ids for token ids; with n, a list of n for each prompt.

        Raises:
            ArgumentError, ArgumentTypeError: a bad prompt or option; nothing was begun.
            CapacityError: a prompt or its answer does not fit.
            StateError: the engine's policy rejected one; the message has the policy's words.

        >>> engine.generate_all(["Why?", "How?"], max_generated_tokens=20)     # doctest: +SKIP
        """
        if isinstance(prompts, str) or not isinstance(prompts, Iterable):
            raise ArgumentTypeError(
                f"generate_all: prompts is {type(prompts).__name__}; a list of prompts is allowed, such as [prompt]"
            )
        engine = _engine(self)
        each = 1 if n is None else count(n)
        warn_if_all_the_same(engine, options, each)
        answers: list[Answer] = []
        try:
            for i, prompt in enumerate(prompts):
                answers += ask(engine, prompt, options, each, name=f"prompts[{i}]")
            if engine._driver.running:
                engine._driver.wake()
            else:
                _step_until_over(engine, answers)
            results = [answer.result() for answer in answers]
        finally:
            for answer in answers:
                answer._abandon()
        return results if n is None else [results[i : i + each] for i in range(0, len(results), each)]

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
        if "n" in options:
            raise ArgumentError("submit: n is not an option of one answer; submit_many(prompt, n=2) gives several")
        return self.submit_many(prompt, n=1, **options)[0]

    def submit_many(self, prompt: Prompt, *, n: int, **options: Any) -> list[Answer]:
        """As `submit`, for n answers to one prompt, which is read once; with `seed`, answer i has seed + i."""
        engine, each = _engine(self), count(n)
        warn_if_all_the_same(engine, options, each)
        answers = ask(engine, prompt, options, each)
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
        (answer,) = await asyncio.to_thread(ask, _engine(self), prompt, options, 1, tell)
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
        engine = self._live()
        engine._lock.check_no_guest()
        engine._driver.start()

    def stop(self) -> None:
        """End the background thread after the step under way. Answers that are not over end with a StateError."""
        engine = _engine(self)
        engine._lock.check_no_guest()
        engine._driver.stop()
        _fail_open(engine, StateError("the engine was stopped before the answer ended; submit it again after start()"))

    # ---- the end

    def close(self) -> None:
        """Stop, close every request and give the memory back; closing twice is allowed. Later calls are StateErrors."""
        engine = _engine(self)
        engine._lock.check_no_guest()
        engine._driver.stop()
        with engine._lock:  # else somebody's submit could come in between, and its answer would never end
            _fail_open(engine, StateError("the engine was closed before the answer ended"))
            engine._give_back()

    def _live(self) -> Engine:
        engine = _engine(self)
        engine._check_open()
        return engine

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
