"""The engine's calls before onnxruntime-genai 0.17, so that its scripts of that age run.

    request = Request(params)                 # GeneratorParams
    request.add_tokens(tokenizer.encode(prompt))
    engine.add_request(request)
    while ready := engine.step():             # the request that has something new; None when all is done
        while ready.has_unseen_tokens():
            print(stream.decode(ready.get_unseen_token()), end="")
    engine.remove_request(request)

It translates: tokens that are added are a turn's prompt, the params are its options, events become unseen tokens. It
knows nothing of scheduling.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.config import SearchOptions
from genai_lab.decoding import Hooks
from genai_lab.decoding.token_input import token_array
from genai_lab.engine.events import EngineErrorCode, EngineEvent, EngineEventFlags
from genai_lab.engine.options import RequestOptions, TurnOptions, TurnSettings
from genai_lab.errors import ArgumentError, CapacityError, GenaiLabError, StateError, wrong_kind
from genai_lab.models import Model
from genai_lab.types import FinishReason

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine
    from genai_lab.engine.request import Request


class SearchParams(Protocol):
    """What is needed of a `GeneratorParams`."""

    @property
    def model(self) -> Model: ...
    @property
    def options(self) -> SearchOptions: ...
    @property
    def hooks(self) -> Hooks: ...


@dataclass(slots=True)
class OldTurns:
    """What a request of the earlier API carries beside the engine's state of it."""

    params: SearchParams
    book: OldRequests | None = None  # of the engine it was added to
    prompt: list[NDArray[np.int32]] = field(default_factory=list)
    unseen: deque[int] = field(default_factory=deque)
    complete: bool = False
    removed: bool = False
    error: Exception | None = None
    opaque: Any = None

    def take_prompt(self) -> NDArray[np.int32]:
        """Tokens that were added since the last turn."""
        tokens = np.concatenate(self.prompt) if self.prompt else np.zeros(0, np.int32)
        self.prompt.clear()
        return tokens


class OldRequestCalls:
    """The methods; `Request` inherits them. They work on requests made as `Request(params)`."""

    _old: OldTurns | None
    number: int

    def add_tokens(self, tokens: ArrayLike) -> None:
        """Tokens of the prompt, [n]; several calls add up. When the turn is over: as `continue_with`.

        Raises:
            StateError: the engine works on an answer.
        """
        old = self._of_old("add_tokens")
        if old.book is not None and not old.complete:
            raise StateError(
                "add_tokens: these are the initial input before submission, and the request is in an engine, not done; "
                "step until it is, then continue_with(tokens)"
            )
        if old.book is not None:
            self.continue_with(tokens)
        else:
            old.prompt.append(token_array(tokens, old.params.model.vocab_size))

    def continue_with(self, tokens: ArrayLike) -> None:
        """Ask on, when the turn is over: [n] token ids.

        Raises:
            StateError: the request is not in an engine, or its turn is not over.
        """
        old = self._of_old("continue_with")
        if old.book is None or not old.complete:
            where = "in no engine; engine.add_request(request)" if old.book is None else "not done; step until it is"
            raise StateError(f"continue_with: the request is {where} first")
        old.prompt.append(token_array(tokens, old.params.model.vocab_size))
        old.book.begin(self)  # type: ignore[arg-type]  # Request is the only class that inherits these

    def has_unseen_tokens(self) -> bool:
        """Whether `get_unseen_token` has one."""
        return bool(self._of_old("has_unseen_tokens").unseen)

    def get_unseen_token(self) -> int:
        """The next generated token that was not asked for yet.

        Raises:
            StateError: there is none.
        """
        old = self._of_old("get_unseen_token")
        if not old.unseen:
            raise StateError("get_unseen_token: all tokens were seen; ask has_unseen_tokens() first, or engine.step()")
        return old.unseen.popleft()

    def is_turn_complete(self) -> bool:
        """Whether its answer is over and it can be asked on; unseen tokens may be left. A removed request has no
        turn."""
        old = self._of_old("is_turn_complete")
        return old.complete and not old.removed

    def is_done(self) -> bool:
        """Whether nothing more will come: its answer is over, or it was removed."""
        return self._of_old("is_done").complete

    def set_opaque_data(self, data: object) -> None:
        """Keep anything with the request."""
        self._of_old("set_opaque_data").opaque = data

    def get_opaque_data(self) -> Any:
        """What `set_opaque_data` was given, or None."""
        return self._of_old("get_opaque_data").opaque

    def _of_old(self, call: str) -> OldTurns:
        if self._old is None:
            raise StateError(
                f"{call} is for requests made as Request(params); this one was made by engine.create_request(): "
                "use begin_turn and the events of engine.run"
            )
        return self._old


class OldRequests:
    """An engine's requests of the earlier API: it holds them until they are removed."""

    def __init__(self) -> None:
        self.requests: dict[int, Request] = {}
        self.used = False  # from the first add_request on, `step` answers the old way
        self._ready: deque[int] = deque()  # requests with something new

    def add(self, engine: Engine, request: Request) -> None:
        """Take a request in and begin its turn; see `Engine.add_request`."""
        if not isinstance(request, OldRequestCalls):
            raise wrong_kind("add_request: request", request, "a Request made as Request(params)")
        old = request._of_old("add_request")
        if old.book is not None:
            raise StateError("add_request: the request is in an engine already; a request can be added once")
        if old.params.model is not engine.model:
            raise ArgumentError("add_request: the request's params are of another model than the engine's")
        if not old.prompt:
            raise StateError("add_request: the request has no tokens; request.add_tokens(tokens) first")
        options = RequestOptions()
        options.set_max_session_tokens(old.params.options.max_length)
        tokens = old.take_prompt()
        engine._conversations.create(engine, request, options)
        try:
            self._begin(engine, request, old, tokens)
        except BaseException:
            request.close()
            old.prompt.append(tokens)
            raise
        self.used, old.book, self.requests[request.number] = True, self, request

    def begin(self, request: Request) -> None:
        """The next turn of a request that is in."""
        old = request._of_old("continue_with")
        old.complete = False
        try:
            self._begin(request._live(), request, old, old.take_prompt())
        except BaseException:
            old.complete = True
            raise

    def remove(self, request: Request) -> None:
        """Close a request; what it generated can still be read."""
        if not isinstance(request, OldRequestCalls):
            raise wrong_kind("remove_request: request", request, "a Request that add_request put into this engine")
        old = request._of_old("remove_request")
        if old.removed:
            return
        if self.requests.get(request.number) is not request:
            raise ArgumentError("remove_request: the request does not belong to this engine; add_request puts it in")
        del self.requests[request.number]
        old.complete = old.removed = True
        if request.number in self._ready:
            self._ready.remove(request.number)
        request.close()

    def has_ready(self) -> bool:
        """Whether `next_ready` has one without a step."""
        return any(number in self.requests for number in self._ready)

    def next_ready(self, engine: Engine) -> Request | None:
        """The next request with something new, stepping the engine until there is one; None when all is done."""
        while not self._ready and engine._has_turns():
            engine._patience.check(engine._advance())
        while self._ready:
            request = self.requests.get(self._ready.popleft())
            if request is None:
                continue
            error = request._of_old("step").error
            if error is not None:
                request._of_old("step").error = None
                raise error
            return request
        return None

    def _begin(self, engine: Engine, request: Request, old: OldTurns, tokens: NDArray[np.int32]) -> None:
        # the sink holds no request: the engine's state must not keep its own handle alive
        engine._conversations.state(request.number).sink = _Unseen(old, self._ready, request.number)
        request.begin_turn(tokens, _OldTurnOptions(old.params.options, old.params.hooks, first=old.book is None))


class _Unseen:
    """Turns events into unseen tokens."""

    def __init__(self, old: OldTurns, ready: deque[int], number: int) -> None:
        self._old, self._ready, self._number = old, ready, number

    def receive(self, event: EngineEvent, cause: BaseException | None) -> None:
        if event.token is not None:
            self._old.unseen.append(event.token)
        if event.flags & EngineEventFlags.TURN_FINISHED:
            self._old.complete = True
            self._old.error = _error_of(event, cause, self._number)
        if self._number not in self._ready:
            self._ready.append(self._number)


class _OldTurnOptions(TurnOptions):
    """A GeneratorParams' options as a turn's."""

    def __init__(self, search: SearchOptions, hooks: Hooks, *, first: bool) -> None:
        super().__init__(hooks=hooks)
        self._search, self._first = search, first

    def _settings(self, defaults: SearchOptions) -> TurnSettings:
        seed = self._search.random_seed
        return TurnSettings(self._search, seed=seed if self._first and seed >= 0 else None, hooks=self.hooks)


def _error_of(event: EngineEvent, cause: BaseException | None, number: int) -> Exception | None:
    if event.finish_reason is not FinishReason.FAILED:
        return None
    error: Exception
    if event.error_code is EngineErrorCode.REQUEST_UNSERVICEABLE and event.stop_reason is not None:
        error = StateError(f"the engine's policy rejected request {number}, and says: {event.stop_reason}")
    elif event.error_code is EngineErrorCode.REQUEST_UNSERVICEABLE:
        error = CapacityError(
            f"request {number} needs more blocks than the whole pool has; set a smaller max_length, or make the engine "
            "with more num_blocks"
        )
    elif isinstance(cause, GenaiLabError):
        return cause
    else:
        error = StateError(f"request {number}: choosing the next token failed: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error
