"""An answer under way, for whoever waits for it: in a thread, in an event loop, or not at all.

The engine puts a request's events into its `Mailbox`; an `Answer` is the caller's end. It does not know who steps the
engine. Dropping an `Answer` closes its request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

import numpy as np

from genai_lab.engine.events import EngineErrorCode, EngineEvent, EngineEventFlags, TurnUsage
from genai_lab.engine.request import Request
from genai_lab.errors import CapacityError, GenaiLabError, StateError
from genai_lab.kinds import seconds
from genai_lab.tokenizer import Tokenizer
from genai_lab.types import FinishReason


class Mailbox:
    """Receives one turn's events; read from any thread.

    Args:
        let_go: called once, when the turn is over.
        on_news: called after each change, by the thread that steps; it must not wait or raise.
    """

    def __init__(self, let_go: Callable[[], None], on_news: Callable[[], None] | None = None) -> None:
        self.tokens: list[int] = []
        self.last: EngineEvent | None = None  # the one that ended the turn
        self.error: BaseException | None = None
        self._let_go, self._on_news = let_go, on_news
        self._news = threading.Condition()

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.last is not None or self.error is not None

    def receive(self, event: EngineEvent, cause: BaseException | None) -> None:
        """An event of the turn; `cause` is what made it fail."""
        with self._news:
            if event.token is not None:
                self.tokens.append(event.token)
            if event.flags & EngineEventFlags.TURN_FINISHED:
                self.last = event
                self.error = _error_of(event, cause)
            self._tell()

    def fail(self, error: BaseException) -> None:
        """The engine cannot go on with it."""
        with self._news:
            if not self.over:
                self.error = error
                self._tell()

    def wait(self, seen: int, timeout: float | None = None) -> bool:
        """Wait until there are more than `seen` tokens or it is over; False when the time ran out."""
        with self._news:
            return self._news.wait_for(lambda: self.over or len(self.tokens) > seen, timeout)

    def wait_until_over(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when the time ran out."""
        with self._news:
            return self._news.wait_for(lambda: self.over, timeout)

    def _tell(self) -> None:
        self._news.notify_all()
        if self.over:
            self._let_go()
        if self._on_news is not None:
            self._on_news()


class Answer:
    """What `Engine.submit` returns; as a `concurrent.futures.Future`, but the tokens can be read as they come.

    >>> answer = engine.submit("Why?", max_generated_tokens=20)       # doctest: +SKIP
    >>> for token in answer: ...                                      # doctest: +SKIP
    >>> answer.result(timeout=60)                                     # doctest: +SKIP
    """

    def __init__(self, request: Request, turn_id: int, mailbox: Mailbox, tokenizer: Tokenizer | None) -> None:
        self._request, self._turn_id, self._mailbox, self._tokenizer = request, turn_id, mailbox, tokenizer

    @property
    def number(self) -> int:
        """Its request's number, as decisions and traces name it."""
        return self._request.number

    @property
    def tokens(self) -> list[int]:
        """A copy of the tokens so far."""
        return self._mailbox.tokens.copy()

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended; NONE while it has not, FAILED after an error."""
        box = self._mailbox
        if box.last is not None:
            return box.last.finish_reason
        return FinishReason.NONE if box.error is None else FinishReason.FAILED

    @property
    def usage(self) -> TurnUsage:
        """Tokens of the question and the answer; zeros while it is under way."""
        return self._mailbox.last.usage if self._mailbox.last is not None else TurnUsage()

    def done(self) -> bool:
        """Whether it ended, in whatever way."""
        return self._mailbox.over

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.finish_reason is FinishReason.CANCELLED

    def cancel(self) -> bool:
        """End it now; what was answered stays in `tokens`. False when it was over already."""
        engine = self._request._engine
        if engine is None or self._mailbox.over:
            return False
        conversations = engine._conversations
        with conversations.lock:  # else it could end, and be closed, in between
            is_open = self.number in conversations.states
            return is_open and conversations.cancel_turn(self.number, self._turn_id)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end; the error it ended with, or None. `timeout` and errors as of `result`, TimeoutError among
        them."""
        if not self._mailbox.wait_until_over(seconds("timeout", timeout)):
            raise TimeoutError(
                f"request {self.number}: no end within {timeout} seconds; it goes on. Wait longer or cancel()"
            )
        return self._mailbox.error

    def result(self, timeout: float | None = None) -> str | list[int]:
        """Wait for the end; the answer: text if the prompt was text, else token ids.

        Args:
            timeout: seconds from 0 on; None or math.inf: no limit.

        Raises:
            ArgumentError, ArgumentTypeError: `timeout` is no number of seconds.
            TimeoutError: it is not over after `timeout` seconds; it goes on.
            CancelledError: it was cancelled.
            GenaiLabError: it failed; or whatever a failing model run or policy raised.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._whole()

    def __iter__(self) -> Iterator[int]:
        """Its token ids from the first on, each as soon as it is there; raises what it failed with. A cancelled answer
        simply ends."""
        seen = 0
        while True:
            self._mailbox.wait(seen)
            over = self._mailbox.over
            for token in self._mailbox.tokens[seen:]:
                seen += 1
                yield token
            if over and seen == len(self._mailbox.tokens):
                break
        if self._mailbox.error is not None and not self.cancelled():
            raise self._mailbox.error

    def _whole(self) -> str | list[int]:
        tokens = self.tokens
        return tokens if self._tokenizer is None else self._tokenizer.decode(np.array(tokens, np.int32))

    def _abandon(self) -> None:
        """Close its request without waiting for the engine's lock."""
        self._request._live()._lock.drop(self.number)

    def __repr__(self) -> str:
        state = self.finish_reason.name.lower() if self.done() else "under way"
        return f"<genai_lab answer {self.number}: {state}, {len(self._mailbox.tokens)} tokens>"


def _error_of(event: EngineEvent, cause: BaseException | None) -> BaseException | None:
    """What a caller of `result` is told; None when the turn ended well."""
    if event.finish_reason is FinishReason.CANCELLED:
        return CancelledError()
    if event.finish_reason is not FinishReason.FAILED:
        return None
    error: BaseException
    if event.error_code is EngineErrorCode.REQUEST_UNSERVICEABLE and event.stop_reason is not None:
        error = StateError(
            f"the engine's policy rejected it after {event.usage.generated_tokens} tokens of its answer, and says: "
            f"{event.stop_reason}"
        )
    elif event.error_code is EngineErrorCode.REQUEST_UNSERVICEABLE:
        error = CapacityError(
            f"the conversation needs more blocks than the whole pool has, after {event.usage.generated_tokens} tokens "
            "of its answer; ask for a shorter answer, or make the engine with more num_blocks"
        )
    elif isinstance(cause, GenaiLabError):
        return cause  # its own words say what to do, such as those of a person's own processor that failed
    else:
        error = StateError(f"choosing the next token failed: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error
