"""The conversations of an engine between its steps: made, asked, cancelled, rewound, forked, closed.

Each call comes from a handle, in any thread, and takes the engine's lock. It decides nothing about who runs when.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from genai_lab.decoding import Sequence
from genai_lab.decoding.token_input import token_array
from genai_lab.engine.limits import EngineLimits
from genai_lab.engine.log import EngineLog
from genai_lab.engine.memory import Memory
from genai_lab.engine.options import RequestOptions, TurnOptions
from genai_lab.engine.outbox import Outbox
from genai_lab.engine.plan import Status
from genai_lab.engine.request import NO_TOKENS, Request, RequestState
from genai_lab.engine.turns import Turns
from genai_lab.engine.turnstile import Turnstile
from genai_lab.engine.view import BUSY, leader_of
from genai_lab.errors import ArgumentError, CapacityError, CountError, StateError, wrong_kind
from genai_lab.lifecycle import born, died
from genai_lab.models import Model
from genai_lab.sampling import RandomStream
from genai_lab.types import FinishReason

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine


def one_dimensional(tokens: ArrayLike) -> ArrayLike:
    """`tokens` itself, if it is one sequence of ids."""
    try:
        dimensions = np.ndim(tokens)
    except ValueError as error:
        raise ArgumentError("tokens is a ragged list; a request asks one sequence of token ids, [n]") from error
    if dimensions == 0:
        hint = ", as tokenizer.encode(text) gives them" if isinstance(tokens, str) else ""
        raise wrong_kind("tokens", tokens, f"one sequence of token ids, [n]{hint}")
    if dimensions != 1:
        raise ArgumentError(
            f"tokens must be a one-dimensional array, one sequence of token ids; got {dimensions} dimensions. For one "
            "row of a batch: tokens[0]"
        )
    return tokens


def _check_turn_id(turn_id: object) -> None:
    if isinstance(turn_id, bool) or not isinstance(turn_id, int | np.integer):
        raise wrong_kind("turn_id", turn_id, "an int, what begin_turn returned")
    if not 0 <= turn_id < 2**64:
        raise CountError(f"turn_id is {turn_id}; what begin_turn returned is allowed")


class Conversations:
    """All requests of one engine.

    Args:
        model, limits, memory, log: the engine's.
    """

    def __init__(self, model: Model, limits: EngineLimits, memory: Memory, log: EngineLog) -> None:
        self._model, self._limits, self._memory, self._log = model, limits, memory, log
        self.states: dict[int, RequestState] = {}
        self.handles: dict[int, weakref.ref[Request]] = {}
        self.outbox = Outbox()
        self.turns = Turns(model, self.outbox)
        self.lock = Turnstile(self.close)
        self.step = 0
        self.closed = False
        self.broken: BaseException | None = None
        self._next = 0

    def create(self, engine: Engine, request: Request, options: RequestOptions | None) -> Request:
        """Make `request` the handle of a new, empty conversation; dropping its last reference closes it."""
        if options is not None and not isinstance(options, RequestOptions):
            raise wrong_kind("create_request: options", options, "a RequestOptions, or None")
        with self.lock:
            self.check_open()
            limit, own = self._limits.max_session_tokens, (options or RequestOptions())._checked()
            tokens = min(own.max_session_tokens or limit, limit)
            number, self._next = self._next, self._next + 1
            self.states[number] = RequestState(
                number, own, Sequence(tokens), RandomStream(None), self.step, is_marked=self._limits.marks_answers
            )
            request._engine, request.number = engine, number
            self.handles[number] = weakref.ref(request)
            born(request, "Request", Request.held_bytes)
            weakref.finalize(request, self.lock.drop, number).atexit = False
            return request

    def begin_turn(self, number: int, tokens: ArrayLike, options: TurnOptions | None) -> int:
        """See `Request.begin_turn`."""
        if options is not None and not isinstance(options, TurnOptions):
            raise wrong_kind("begin_turn: turn_options", options, "a TurnOptions, or None")
        with self.lock:
            state = self.state(number)
            self._check_silent(state)
            prompt = token_array(one_dimensional(tokens), self._model.vocab_size)
            settings = (options or TurnOptions())._settings(self._model.config.search_options())
            length, limit = len(state.sequence), state.sequence.max_length
            if length + prompt.size >= limit:
                raise CapacityError(
                    f"request {number}: {prompt.size} tokens after {length} leave no room to answer; allowed are "
                    f"{limit} (max_session_tokens). Begin a new request, or raise the limit"
                )
            least, room = settings.min_generated_tokens, limit - length - prompt.size
            if least > room:
                raise CapacityError(
                    f"request {number}: min_generated_tokens is {least}, but {prompt.size} tokens after {length} leave "
                    f"room for {room} of {limit} (max_session_tokens). Lower it, or raise the limit"
                )
            return self.turns.begin(state, prompt, settings, self.step)

    def cancel_turn(self, number: int, turn_id: int) -> bool:
        """See `Request.cancel_turn`."""
        with self.lock:
            state = self.state(number)
            _check_turn_id(turn_id)
            if state.turn is None:
                raise StateError(f"request {number}: there is no turn to cancel; begin_turn first")
            if state.turn.turn_id != turn_id or state.status not in BUSY:
                return False
            self.turns.end(state, FinishReason.CANCELLED)
            self._log.turn(state)
            return True

    def rewind(self, number: int, turn_id: int) -> None:
        """See `Request.rewind_to_start_of_turn`."""
        with self.lock:
            state = self.state(number)
            _check_turn_id(turn_id)
            if state.status is not Status.IDLE:
                raise StateError(
                    f"request {number}: rewind is only valid after the current turn is complete; cancel_turn first"
                )
            if turn_id not in state.starts:
                known = ", ".join(map(str, state.starts)) or "none"
                raise ArgumentError(f"turn_id is {turn_id}; the turns of request {number} are {known}")
            state.rewind(turn_id)
            self._memory.go_back(state, len(state.sequence), self.step)

    def set_drafts(self, number: int, tokens: ArrayLike, most: int) -> None:
        """See `Request.set_draft_tokens`. `most`: that one proposal may have."""
        with self.lock:
            state = self.state(number)
            drafts, turn = one_dimensional(tokens), state.turn
            if turn is None or state.status is not Status.RUNNING or state.computed != len(state.sequence) - 1:
                raise StateError(
                    f"request {number}: it is not about to be decoded; draft tokens may only be proposed when it is "
                    "ready to decode, between two steps of its answer"
                )
            if most == 0:
                raise StateError(
                    "this engine cannot verify proposed tokens: it runs rows one at a time (exact=True), or the graph "
                    "gives logits of the last position only; build the model with prune_lm_head=False"
                )
            drafts = token_array(drafts, self._model.vocab_size) if np.size(drafts) else NO_TOKENS
            if drafts.size > most:
                raise ArgumentError(f"{drafts.size} tokens were proposed; at most {most} are allowed in one proposal")
            room = state.sequence.max_length - len(state.sequence) - 1
            if turn.settings.max_generated_tokens:
                room = min(room, turn.settings.max_generated_tokens - turn.generated - 1)
            state.drafts = drafts[: max(0, room)].copy()

    def fork(self, engine: Engine, number: int, seed: int | None) -> Request:
        """See `Request.fork`."""
        with self.lock:
            source = self.state(number)
            if seed is not None:
                TurnOptions().set_seed(seed)  # refuses what is no seed, before anything is made
            request = self.create(engine, Request._blank(), source.options)
            target = self.states[request.number]
            target.stream = RandomStream(seed)
            target.follow(source)
            target.times = replace(source.times)
            if source.turn is not None:
                self.turns.continue_in(target, source.turn)
            self._place(source, target)
            return request

    def close(self, number: int) -> None:
        """See `Request.close`."""
        with self.lock:
            state = self.states.pop(number, None)
            if state is None:
                return
            self.turns.counts.closed += state.status in BUSY
            if state.row is not None:
                self._memory.evict(state)
            request = self.handles.pop(number)()
            if request is not None:
                died(request)
            if state.undrained:
                self.outbox.forget(number)

    def close_all(self) -> None:
        """Close every request; nothing can be asked any more."""
        for number in list(self.states):
            self.close(number)
        self.closed = True
        self.outbox.events.clear()

    def state(self, number: int) -> RequestState:
        """What is known of an open request."""
        if number not in self.states:
            self.check_open()
            raise StateError(f"request {number} is a closed request; make a new one: engine.create_request()")
        return self.states[number]

    def has_turns(self) -> bool:
        """Whether a turn is under way."""
        return any(state.status in BUSY for state in self.states.values())

    def check_open(self) -> None:
        """Refuse to go on after the end."""
        if self.closed:
            raise StateError("the engine is closed; make a new one: genai_lab.Engine(model)")
        if self.broken is not None:
            raise StateError(
                f"a step failed in the middle of its commit ({self.broken!r}), so what the engine knows may be wrong; "
                "close it and make a new one"
            ) from self.broken

    # ---- inside

    def _check_silent(self, state: RequestState) -> None:
        self.check_open()
        if state.status is not Status.IDLE:
            raise StateError(
                f"request {state.request}: begin_turn is only valid for a new request or after the current turn is "
                "complete; run the engine, or cancel_turn"
            )
        if state.undrained:
            raise StateError(
                f"request {state.request}: an event is pending ({state.undrained} not taken yet); run the engine until "
                "the last event is taken"
            )

    def _place(self, source: RequestState, target: RequestState) -> None:
        """A fork that can share what its origin has computed does so at once; one whose origin still reads its prompt
        waits for that; any other reads for itself."""
        reads = source.status in BUSY and source.turn is not None and source.turn.generated == 0
        if reads and source.turn is not None:
            leader = leader_of(source, self.states) or source
            target.leader = (leader.request, source.turn.turn_id)
            target.status = Status.WAITING
            return
        shared = self._memory.fork(source, target, self.step)
        busy = Status.RUNNING if shared else Status.WAITING
        target.status = busy if source.status in BUSY else source.status
