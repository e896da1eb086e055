"""The engine: it holds the loop. Requests come and go; each step decides who computes what, and why, and computes it.

A step is a transaction: plan, reserve blocks, run the model, choose tokens, and only then commit. Whatever fails before
the commit is undone, and the other requests go on.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from numpy.typing import ArrayLike

from genai_lab.decoding import Chooser, Sequence
from genai_lab.decoding.token_input import token_array
from genai_lab.engine.backends import make_store
from genai_lab.engine.checking import check_plan
from genai_lab.engine.driver import Driver
from genai_lab.engine.events import EngineErrorCode, EngineEvent, EngineEventBuffer, EngineEventFlags
from genai_lab.engine.face import EngineFace, Patience
from genai_lab.engine.invariants import raise_if_step_broken
from genai_lab.engine.legacy import OldRequests
from genai_lab.engine.limits import engine_limits
from genai_lab.engine.log import EngineLog
from genai_lab.engine.options import RequestOptions, TurnOptions, TurnSettings
from genai_lab.engine.plan import Decision, Policy, QueueView, RequestView, Status, StepPlan, Verdict
from genai_lab.engine.policies import Fcfs
from genai_lab.engine.request import Request, RequestState, Times, Turn
from genai_lab.engine.rows import RowTable
from genai_lab.engine.snapshot import StepRecord, TurnCounts, take_snapshot
from genai_lab.engine.step import Outcome, StepRunner
from genai_lab.engine.turnstile import Turnstile
from genai_lab.errors import ArgumentError, CapacityError, StateError
from genai_lab.kvcache import PagedCache
from genai_lab.models import Model
from genai_lab.models.rows import RowsExecutor
from genai_lab.sampling import RandomStream, build_processors, effective_mode
from genai_lab.tracing import Tracer, current_tracer
from genai_lab.types import FinishReason

_LOOKED_AT = 64  # waiting requests that a policy sees in one step


class Engine(EngineFace):
    """Serves many conversations on one model (og class Engine).

    Args:
        model: a loaded model.
        policy: who runs when; a `Policy`, such as a subclass of `OrderedPolicy` written in a cell. None: first come,
        first
            served.
        max_batch_size: conversations that hold a row at a time.
        max_scheduled_tokens: tokens that one step may compute.
        max_session_tokens: tokens of a conversation, over all its turns.
        block_size, num_blocks: the block pool, in tokens and blocks.
        chunk_size: largest piece of one prompt in one step.
        prefix_caching: share blocks of equal beginnings.
        kv_backend: "slots", or "vm" on Linux: a prefix hit is mapped instead of copied.
        tracer: who records; None: whoever records where `step` is called (`with genai_lab.record()`), which does not
            reach other threads.
        check_invariants: look after every step whether all that must hold holds; slow.

    Raises:
        CapacityError: the rows and the pool can never fit into memory.

    >>> engine = Engine(model)                                        # doctest: +SKIP
    >>> answers = engine.generate_all(["Why?", "How?"])               # doctest: +SKIP
    """

    def __init__(
        self,
        model: Model,
        *,
        policy: Policy | None = None,
        max_batch_size: int | None = None,
        max_scheduled_tokens: int | None = None,
        max_session_tokens: int | None = None,
        block_size: int | None = None,
        num_blocks: int | None = None,
        chunk_size: int | None = None,
        prefix_caching: bool = True,
        kv_backend: str = "slots",
        tracer: Tracer | None = None,
        check_invariants: bool = False,
    ) -> None:
        given = {
            "max_batch_size": max_batch_size,
            "max_scheduled_tokens": max_scheduled_tokens,
            "max_session_tokens": max_session_tokens,
            "block_size": block_size,
            "num_blocks": num_blocks,
            "chunk_size": chunk_size,
        }
        self.model, self.limits = model, engine_limits(model.config, given)
        self.policy: Policy = policy if policy is not None else Fcfs()
        limits = self.limits
        self._store = make_store(kv_backend, model.kv_layout, limits)
        self._cache = PagedCache(
            limits.num_blocks,
            limits.block_size,
            prefix_caching=prefix_caching,
            writes_in_place=self._store.writes_in_place,
        )
        self._rows = RowTable(limits.max_batch_size)
        self._runner = StepRunner(RowsExecutor(model, self._store.slab), self._cache, self._store, self._rows)
        self._log, self._tracer = EngineLog(model, self._cache), tracer
        self._states: dict[int, RequestState] = {}
        # by number: a waiting event keeps no request alive
        self._events: deque[tuple[int | None, EngineEvent]] = deque()
        self._handles: dict[int, weakref.ref[Request]] = {}
        self._next = 0
        self.steps = 0
        self._lock = Turnstile(self._close)
        self._counts, self.check_invariants = TurnCounts(), check_invariants
        self._old = OldRequests()
        self._driver, self._patience, self._closed = Driver(self), Patience(), False

    # ---- og's methods -------------------------------------------------------------------------------------------

    def create_request(self, *, options: RequestOptions | None = None) -> Request:
        """A new, empty conversation. Dropping the last reference to it closes it."""
        return self._adopt(Request._blank(), options)

    def _adopt(self, request: Request, options: RequestOptions | None) -> Request:
        """Make `request` the handle of a new conversation."""
        with self._lock:
            self._check_open()
            number, self._next = self._next, self._next + 1
            limit = self.limits.max_session_tokens
            own = options or RequestOptions()
            tokens = min(own.max_session_tokens or limit, limit)
            self._states[number] = RequestState(number, own, Sequence(tokens), RandomStream(None), self.steps)
            request._engine, request.number = self, number
            self._handles[number] = weakref.ref(request)
            weakref.finalize(request, self._lock.drop, number).atexit = False
            return request

    def create_event_buffer(self, capacity: int) -> EngineEventBuffer:
        """A buffer for `run`."""
        return EngineEventBuffer(capacity)

    def run(self, buffer: EngineEventBuffer) -> EngineEventBuffer:
        """Hand over waiting events; when there are none, step until there are or nothing is left to do."""
        with self._lock:
            self._check_open()
            while not self._events and self.has_pending_requests():
                self.step()
            events: list[EngineEvent] = []
            while self._events and len(events) < buffer.capacity:
                number, event = self._events.popleft()
                if number is not None:
                    self._states[number].undrained -= 1
                    event = replace(event, request=self._handles[number]())
                events.append(event)
            buffer._hold(events)
            return buffer

    def has_pending_requests(self) -> bool:
        """Whether a turn is under way, or an event waits to be taken."""
        with self._lock:
            return bool(self._events) or self._has_turns() or self._old.has_ready()

    def _has_turns(self) -> bool:
        with self._lock:
            return any(s.status in _BUSY for s in self._states.values())

    # ---- the calls before onnxruntime-genai 0.17 ------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Take in a request made as `Request(params)`, with its tokens; from now on `step` answers as it did then.

        Raises:
            StateError: the request has no tokens, or is in an engine.
            CapacityError: its tokens leave no room for an answer.
        """
        with self._lock:
            self._check_open()
            self._old.add(self, request)

    def remove_request(self, request: Request) -> None:
        """Close a request that was added; what it generated can still be read."""
        with self._lock:
            self._old.remove(request)

    # ---- the step -----------------------------------------------------------------------------------------------

    def step(self) -> Any:
        """One step; returns what was decided about every request that the policy saw, a tuple of `Decision`.

        With requests of the earlier API (`add_request`): as many steps as it takes until one of them has something
        new; returns that request, or None when all are done.

        Raises:
            PolicyError: the policy's plan cannot be carried out; nothing was done.
            Exception: the model run failed; the step was undone and may be tried again.
        """
        with self._lock:
            self._check_open()
            return self._old.next_ready(self) if self._old.used else self._advance()

    def _advance(self) -> tuple[Decision, ...]:
        with self._lock:
            self._check_open()
            if not self.check_invariants:
                return self._one_step()
            before = take_snapshot(self)
            decisions: tuple[Decision, ...] = ()
            try:
                decisions = self._one_step()
                return decisions
            finally:
                raise_if_step_broken(StepRecord(before, decisions, take_snapshot(self)))

    def _one_step(self) -> tuple[Decision, ...]:
        with self._lock:
            start = perf_counter_ns()
            self._log.follow(self._tracer if self._tracer is not None else current_tracer())
            view = self.view()
            plan = check_plan(self.policy.plan(view), view, self.policy)
            self._apply_preemptions(plan)
            outcome = self._runner.reserve(plan, self._states, self.steps, self._evict_idle)
            try:
                self._runner.run(outcome, self._held_tokens())
                self._runner.choose(outcome, self._log.place)
            except Exception:
                self._runner.undo(outcome)
                raise
            self._runner.commit(outcome)
            self._finish_step(plan, outcome)
            holders = [state for state in self._states.values() if state.row is not None]
            self._log.step(view, outcome, holders, start, perf_counter_ns())
            return tuple(outcome.decisions)

    def view(self) -> QueueView:
        """What a policy would see now. Looking changes nothing."""
        limits = self.limits
        by_status: dict[Status, list[RequestState]] = {status: [] for status in Status}
        for state in self._states.values():
            by_status[state.status].append(state)
        waiting = sorted(by_status[Status.WAITING], key=lambda s: (s.preemptions == 0, s.arrival_step, s.request))
        usage = self._cache.usage()
        idle = [s.request for s in by_status[Status.IDLE] if s.row is not None]
        return QueueView(
            step=self.steps,
            waiting=tuple(self._view_waiting(state) for state in waiting[:_LOOKED_AT]),
            running=tuple(
                s.view(len(self._cache.block_table(s.request)), s.computed) for s in by_status[Status.RUNNING]
            ),
            budget=limits.max_scheduled_tokens,
            free_rows=self._rows.free + len(idle),
            free_blocks=usage.blocks_free + usage.blocks_cached + sum(len(self._cache.block_table(n)) for n in idle),
            num_blocks=limits.num_blocks,
            block_size=limits.block_size,
            chunk_size=limits.chunk_size,
            rows=limits.max_batch_size,
        )

    # ---- a request's calls (its handle makes them) --------------------------------------------------------------

    def _begin_turn(self, number: int, tokens: ArrayLike, options: TurnOptions | None) -> int:
        with self._lock:
            state = self._state(number)
            if state.status is not Status.IDLE or state.undrained:
                raise StateError(
                    f"request {number}: its last turn is {'under way' if state.status in _BUSY else 'over'} and "
                    f"{state.undrained} of its events were not taken; run the engine until the last event is taken"
                )
            ids = token_array(tokens, self.model.vocab_size)
            settings = (options or TurnOptions()).settings(self.model.config.search_options())
            start = len(state.sequence)
            if start + ids.size >= state.sequence.max_length:
                raise CapacityError(
                    f"request {number}: {ids.size} tokens after {start} leave no room to answer; allowed are "
                    f"{state.sequence.max_length} (max_session_tokens). Begin a new request, or raise the limit"
                )
            state.sequence.extend(ids)
            state.prompts.append((start, start + ids.size))
            state.starts.append(start)
            self._counts.begun += 1
            state.turn = self._new_turn(state, settings, start, int(ids.size))
            state.arrival_step, state.preemptions = self.steps, 0
            state.times = Times(arrived=perf_counter_ns())
            state.status = Status.RUNNING if state.row is not None else Status.WAITING
            return len(state.starts)

    def _new_turn(self, state: RequestState, settings: TurnSettings, start: int, prompt_tokens: int) -> Turn:
        if settings.seed is not None:
            state.stream = RandomStream(settings.seed)
        search, eos = settings.search, self.model.config.model.eos_token_ids
        minimum = start + prompt_tokens + settings.min_generated_tokens if settings.min_generated_tokens else 0
        own = (
            search.with_options(min_length=min(minimum, search.context_length))
            if minimum > search.min_length
            else search
        )
        chooser = Chooser(build_processors(own, eos), effective_mode(own).mode, own, state.stream)
        stream = self.model.tokenizer.create_stream() if settings.stop_strings else None
        return Turn(len(state.starts), settings, start, prompt_tokens, chooser, stream=stream)

    def _cancel_turn(self, number: int, turn_id: int) -> bool:
        with self._lock:
            state = self._state(number)
            if state.turn is None or state.turn.turn_id != turn_id or state.status not in _BUSY:
                return False
            self._end_turn(state, FinishReason.CANCELLED)
            self._log.turn(state)
            return True

    def _rewind(self, number: int, turn_id: int) -> None:
        with self._lock:
            state = self._state(number)
            if state.status is not Status.IDLE:
                raise StateError(f"request {number}: a turn is under way; cancel_turn first")
            if not 1 <= turn_id <= len(state.starts):
                raise ArgumentError(f"turn_id is {turn_id}; request {number} has turns 1 to {len(state.starts)}")
            length = state.starts[turn_id - 1]
            state.sequence.rewind(length)
            state.starts = state.starts[: turn_id - 1]
            state.prompts = [(a, b) for a, b in state.prompts if a < length]
            if state.row is not None and state.computed > length:
                self._cache.rewind(number, length, self.steps)
                self._store.rewind(state.row, length)
                state.computed = length
            state.high_water = min(state.high_water, length)

    def _close(self, number: int) -> None:
        with self._lock:
            state = self._states.pop(number, None)
            if state is None:
                return
            self._counts.closed += state.status in _BUSY
            if state.row is not None:
                self._runner.evict(state)
            del self._handles[number]
            if state.undrained:
                self._events = deque((n, event) for n, event in self._events if n != number)

    def _state(self, number: int) -> RequestState:
        if number not in self._states:
            self._check_open()
            raise StateError(f"request {number} is closed; make a new one with engine.create_request()")
        return self._states[number]

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the engine is closed; make a new one: genai_lab.Engine(model)")

    def _give_back(self) -> None:
        """Close every request, then the memory."""
        with self._lock:
            if self._closed:
                return
            for number in list(self._states):
                self._close(number)
            self._closed = True
            self._events.clear()
            self._store.close()
            del self._runner  # its bindings hold the rows' memory

    # ---- inside -------------------------------------------------------------------------------------------------

    def _view_waiting(self, state: RequestState) -> RequestView:
        match = self._cache.match_prefix(state.marked_tokens()[:-1], state.options.adapter, state.options.salt)
        return state.view(len(match.blocks), match.num_cached_tokens)

    def _held_tokens(self) -> dict[int, int]:
        return {s.row: s.computed for s in self._states.values() if s.row is not None}

    def _apply_preemptions(self, plan: StepPlan) -> None:
        for decision in plan.others:
            state = self._states[decision.request]
            if decision.verdict is Verdict.PREEMPT:
                self._runner.evict(state)
                state.status, state.preemptions = Status.WAITING, state.preemptions + 1
            elif decision.verdict is Verdict.REJECT:
                self._end_turn(state, FinishReason.FAILED, EngineErrorCode.REQUEST_UNSERVICEABLE)
                self._log.turn(state)

    def _evict_idle(self) -> bool:
        """Take the row of the conversation that has been silent longest; its full blocks stay in the prefix cache."""
        idle = [s for s in self._states.values() if s.status is Status.IDLE and s.row is not None]
        if not idle:
            return False
        self._runner.evict(min(idle, key=lambda s: s.times.finished))
        return True

    def _finish_step(self, plan: StepPlan, outcome: Outcome) -> None:
        now = perf_counter_ns()
        for work in outcome.works:
            state = work.state
            state.status = Status.RUNNING
            state.times.scheduled = state.times.scheduled or work.started_ns
            if work.error is not None:
                state.failure = work.error
                self._end_turn(state, FinishReason.FAILED, EngineErrorCode.ENGINE_CONTRACT_FAILURE)
            elif work.choice is not None:
                state.times.first_token = state.times.first_token or now
                if state.turn is not None:
                    self._log.token(work, state.turn, now)
                self._take_token(state, work.choice.token)
            self._log.turn(state)
        self.steps += 1
        if not outcome.works and not self._events and plan.others:
            blocked = EngineEvent(EngineEventFlags.CAPACITY_BLOCKED, error_code=EngineErrorCode.CAPACITY_DEFERRED)
            self._events.append((None, blocked))

    def _take_token(self, state: RequestState, token: int) -> None:
        turn = state.turn
        if turn is None:
            raise AssertionError("a request without a turn is not scheduled")
        if token in self.model.config.model.eos_token_ids:
            self._end_turn(state, FinishReason.EOS)
            return
        state.sequence.append(token)
        turn.generated += 1
        finish, stop = self._after_token(state, turn, token)
        if finish is None:
            self._emit(state, EngineEventFlags.TOKEN, token=token)
        else:
            self._end_turn(state, finish, token=token, stop=stop)

    def _after_token(self, state: RequestState, turn: Turn, token: int) -> tuple[FinishReason | None, int | None]:
        settings = turn.settings
        if turn.stream is not None:
            turn.text += turn.stream.decode(token)
            for index, text in enumerate(settings.stop_strings):
                if text in turn.text:
                    return FinishReason.STOP_STRING, index
            turn.text = turn.text[-max(len(text) for text in settings.stop_strings) :]
        if settings.max_generated_tokens and turn.generated >= settings.max_generated_tokens:
            return FinishReason.MAX_GENERATED_TOKENS, None
        if len(state.sequence) >= state.sequence.max_length:
            return FinishReason.MAX_SESSION_TOKENS, None
        return None, None

    def _end_turn(
        self,
        state: RequestState,
        finish: FinishReason,
        error: EngineErrorCode = EngineErrorCode.NONE,
        *,
        token: int | None = None,
        stop: int | None = None,
    ) -> None:
        flags = EngineEventFlags.TURN_FINISHED
        flags |= EngineEventFlags.TOKEN if token is not None else EngineEventFlags.NONE
        flags |= EngineEventFlags.FAILED if finish is FinishReason.FAILED else EngineEventFlags.NONE
        state.status, state.times.finished = Status.IDLE, perf_counter_ns()
        self._counts.ended[finish] += 1
        if state.turn is not None:
            state.turn.finish = finish
        self._emit(state, flags, token=token, finish=finish, error=error, stop=stop)

    def _emit(
        self,
        state: RequestState,
        flags: EngineEventFlags,
        *,
        token: int | None = None,
        finish: FinishReason = FinishReason.NONE,
        error: EngineErrorCode = EngineErrorCode.NONE,
        stop: int | None = None,
    ) -> None:
        if state.turn is None:
            return
        event = EngineEvent(flags, None, state.turn.turn_id, token, finish, error, stop, state.turn.usage)
        if state.sink is not None:
            state.sink.receive(event, state.failure)
            return
        state.undrained += 1
        self._events.append((state.request, event))


_BUSY = (Status.WAITING, Status.RUNNING)
