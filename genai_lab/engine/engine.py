"""The engine: it holds the loop. Requests come and go; each step decides who computes what, and why, and computes it.

A step is a transaction: plan, reserve blocks, run the model, choose tokens, and only then commit. Whatever fails before
the commit is undone, and the other requests go on. An error in the middle of the commit ends the engine.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from genai_lab.engine.arguments import check_buffer, check_engine
from genai_lab.engine.backends import backend_of, limits_of, make_runs, prefix_caching_of
from genai_lab.engine.capabilities import EngineCapabilities
from genai_lab.engine.checking import check_plan
from genai_lab.engine.commit import StepCommit
from genai_lab.engine.conversations import Conversations
from genai_lab.engine.drafts import MOST_DRAFTS
from genai_lab.engine.driver import Driver
from genai_lab.engine.events import EngineEventBuffer
from genai_lab.engine.face import EngineFace, Patience
from genai_lab.engine.invariants import raise_if_step_broken
from genai_lab.engine.legacy import OldRequests
from genai_lab.engine.log import EngineLog
from genai_lab.engine.memory import Memory
from genai_lab.engine.options import RequestOptions
from genai_lab.engine.plan import Decision, Policy, QueueView, Status
from genai_lab.engine.policies import Fcfs
from genai_lab.engine.request import Request, RequestState
from genai_lab.engine.rows import RowTable
from genai_lab.engine.snapshot import StepRecord, take_snapshot
from genai_lab.engine.step import StepRunner
from genai_lab.engine.view import queue_view
from genai_lab.kvcache import PagedCache
from genai_lab.lifecycle import born, died
from genai_lab.models import Model
from genai_lab.models.attention_window import attention_window
from genai_lab.tracing import Tracer, current_tracer


class Engine(EngineFace):
    """Serves many conversations on one model (og class Engine).

    Args:
        model: a loaded model.
        policy: who runs when; a `Policy`, such as a subclass of `OrderedPolicy` written in a cell. None: first come,
            first served.
        max_batch_size: conversations that hold a row at a time.
        max_scheduled_tokens: tokens that one step may compute.
        max_session_tokens: tokens of a conversation, over all its turns.
        block_size, num_blocks: the block pool, in tokens and blocks. None: 16 tokens; with "vm" 32, or as many more as
            fill whole memory pages.
        chunk_size: largest piece of one prompt in one step.
        prefix_caching: share blocks of equal beginnings. None: wherever a model allows it.
        kv_backend: "slots", or "vm" on Linux: a prefix hit is mapped instead of copied. "pool" for a model whose graph
            reads block tables, and only for that. None: "slots" or "pool", as the model needs.
        exact: every answer has bit by bit the numbers of a `Generator`. Where the processor's kernels give a row other
            bits in a batch than alone (`batch_is_exact`), answers are then decoded one at a time, several times slower.
            False: batches, and every answer has the numbers of a batch, whoever else is in it, so that it does not
            depend on the company, on preemption or on the order of arrival; for that a lone row has an idle neighbour,
            which costs a fifth of its step. Where batches are exact, both settings are the same and nothing is paid.
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
        prefix_caching: bool | None = None,
        kv_backend: str | None = None,
        exact: bool = False,
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
        asked = True if prefix_caching is None else prefix_caching
        flags = {"prefix_caching": asked, "check_invariants": check_invariants, "exact": exact}
        check_engine(model, policy, tracer, flags)
        self.kv_backend = backend_of(model, kv_backend)
        self.model, self.limits = model, limits_of(model, self.kv_backend, given)
        self.policy: Policy = policy if policy is not None else Fcfs()
        limits, self.exact = self.limits, bool(exact)
        caching = prefix_caching_of(model, prefix_caching)
        self._runs = make_runs(self.kv_backend, model, limits, self.exact, caching)
        self._store = self._runs.store
        self._cache = PagedCache(
            limits.num_blocks,
            limits.block_size,
            prefix_caching=caching,
            writes_in_place=self._store.writes_in_place,
            window=attention_window(model),
            may_end=self._runs.may_end,
        )
        self._rows = RowTable(limits.max_batch_size)
        self._memory = Memory(self._cache, self._store, self._rows, limits.smallest_piece)
        self._runner = StepRunner(self._runs, self._memory)
        self._log, self._tracer = EngineLog(model, self._cache), tracer
        self._conversations = Conversations(model, limits, self._memory, self._log)
        self._commit = StepCommit(self._runner, self._conversations, self._log)
        self._states, self._lock = self._conversations.states, self._conversations.lock
        self._turns, self._outbox = self._conversations.turns, self._conversations.outbox
        self._old, self.check_invariants = OldRequests(), check_invariants
        self._driver, self._patience = Driver(self), Patience()
        born(self, "Engine", _row_bytes)

    @property
    def steps(self) -> int:
        """Steps that were committed."""
        return self._conversations.step

    # ---- og's methods

    def create_request(self, *, options: RequestOptions | None = None) -> Request:
        """A new, empty conversation. Dropping the last reference to it closes it."""
        return self._conversations.create(self, Request._blank(), options)

    def create_event_buffer(self, capacity: int) -> EngineEventBuffer:
        """A buffer for `run`."""
        return EngineEventBuffer(self, capacity)

    def run(self, buffer: EngineEventBuffer) -> EngineEventBuffer:
        """Hand over waiting events; when there are none, step until there are or nothing is left to do. The buffer is
        emptied first: after a KeyboardInterrupt, what it holds was handed over and nobody has seen it.

        Raises:
            StateError: another engine made the buffer, or the engine is closed.
        """
        check_buffer(buffer, self)
        with self._lock:
            self._check_open()
            buffer._hold([])
            while buffer.capacity and not self._outbox.events and self.has_pending_requests():
                self.step()
            buffer._hold(self._outbox.take(buffer.capacity, self._states, self._conversations.handles))
            return buffer

    def has_pending_requests(self) -> bool:
        """Whether a turn is under way, or an event waits to be taken."""
        with self._lock:
            return bool(self._outbox.events) or self._has_turns() or self._old.has_ready()

    def get_capabilities(self) -> EngineCapabilities:
        """Sizes, and what holds of the numbers on this processor; measures that if nobody has yet."""
        self._check_open()
        facts, limits = self._runs.facts(), self.limits
        equals = facts.is_exact or self.exact
        return EngineCapabilities(
            configured_max_batch_size=limits.max_batch_size,
            max_request_length=limits.max_session_tokens,
            max_scheduled_tokens=limits.max_scheduled_tokens,
            batch_is_exact=facts.is_exact,
            batch_is_invariant=equals or facts.is_invariant,
            equals_generator=equals,
            numerics=facts.in_words() + ("; rows run one at a time" if equals and not facts.is_exact else ""),
        )

    def max_draft_tokens_per_proposal(self) -> int:
        """Tokens that `Request.set_draft_tokens` may propose at once; 0 when proposals cannot be verified: the graph
        gives the last position's logits only, or `exact` forbids a run that reads several tokens of an answer."""
        self._check_open()
        possible = self._runs.executor.has_all_logits and not self.exact
        rings = self.model.paged is not None and self.model.paged.rings  # they hold one piece of a prompt
        most = self.limits.chunk_size if rings else self.limits.max_scheduled_tokens
        return min(MOST_DRAFTS, most - 1, self.limits.max_scheduled_tokens - 1) if possible else 0

    def get_speculative_stats(self) -> dict[str, Any]:
        """What became of proposed tokens so far, by onnxruntime-genai's names."""
        self._check_open()
        return self._commit.drafted.stats()

    # ---- the calls before onnxruntime-genai 0.17

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

    # ---- ours

    @property
    def batch_is_exact(self) -> bool:
        """Whether on this processor, for this model, a row decoded in a batch gets bit by bit what it gets alone.
        Measured by some decodes, once for each model."""
        self._check_open()
        return self._runs.facts().is_exact

    def view(self) -> QueueView:
        """What a policy would see now. Looking changes nothing."""
        return queue_view(self._states, self._memory, self.limits, self.steps)

    def step(self) -> Any:
        """One step; returns what the policy decided, a tuple of `Decision`.

        With requests of the earlier API (`add_request`): as many steps as it takes until one of them has something
        new; returns that request, or None when all are done.

        Raises:
            PolicyError: the policy's plan cannot be carried out; nothing was done.
            Exception: the model run failed; the step was undone and may be tried again.
        """
        with self._lock:
            self._check_open()
            return self._old.next_ready(self) if self._old.used else self._advance()

    def __repr__(self) -> str:
        if self._conversations.closed:
            return "<genai_lab.Engine: closed>"
        states = list(self._states.values())  # another thread may step meanwhile
        busy = {status: sum(state.status is status for state in states) for status in Status}
        numbers = "exact" if self.exact else "batched"
        return (
            f"<genai_lab.Engine: {busy[Status.RUNNING]} running, {busy[Status.WAITING]} waiting, "
            f"{self.limits.max_batch_size} rows, {self.kv_backend}, {numbers}{self._runs.known_words()}>"
        )

    # ---- a step

    def _advance(self) -> tuple[Decision, ...]:
        with self._lock:
            self._check_open()
            decisions = self._checked_step() if self.check_invariants else self._one_step()
            self._lock.let_interrupt_through()
            return decisions

    def _checked_step(self) -> tuple[Decision, ...]:
        before = take_snapshot(self)
        decisions: tuple[Decision, ...] = ()
        try:
            decisions = self._one_step()
            return decisions
        finally:
            raise_if_step_broken(StepRecord(before, decisions, take_snapshot(self)))

    def _one_step(self) -> tuple[Decision, ...]:
        start = perf_counter_ns()
        self._log.follow(self._tracer if self._tracer is not None else current_tracer())
        self._runs.recorded = self._log.enabled
        self._bring_together()
        with self._lock.guest:  # a person's policies, processors and samplers are asked
            view = self.view()
            plan = check_plan(self.policy.plan(view), view, self.policy)
            outcome = self._runner.reserve(plan, self._states, self.steps, self._evict_idle)
            try:
                self._runner.run(outcome, self._held_tokens())
                self._runner.choose(outcome, self._log.place)
            except BaseException:  # an interrupt is undone as any error is
                self._runner.undo(outcome)
                raise
        try:
            self._commit.commit(plan, outcome)
        except BaseException as error:
            self._conversations.broken = error
            raise
        if self._log.enabled:
            self._log.step(view, outcome, self._holders(), start, perf_counter_ns())
        return tuple(outcome.decisions)

    def _bring_together(self) -> None:
        try:
            self._runs.bring_together(self._holders(), self._rows)
        except BaseException as error:  # rows may stand half moved
            self._conversations.broken = error
            raise

    def _holders(self) -> list[RequestState]:
        return [state for state in self._states.values() if state.row is not None]

    def _evict_idle(self) -> bool:
        """Take the row of the conversation that has been silent longest; its full blocks stay in the prefix cache."""
        idle = [s for s in self._states.values() if s.status is Status.IDLE and s.row is not None]
        if idle:
            self._memory.evict(min(idle, key=lambda s: s.times.finished))
        return bool(idle)

    def _held_tokens(self) -> dict[int, int]:
        return {s.row: s.computed for s in self._states.values() if s.row is not None}

    # ---- for its neighbours

    def _has_turns(self) -> bool:
        with self._lock:
            return self._conversations.has_turns()

    def _check_open(self) -> None:
        self._conversations.check_open()

    def _give_back(self) -> None:
        """Close every request, then the memory."""
        with self._lock:
            if self._conversations.closed:
                return
            self._conversations.close_all()
            self._store.close()
            died(self)
            del self._commit, self._runner, self._runs  # their bindings hold the rows' memory


def _row_bytes(engine: Engine) -> int:
    return engine._store.nbytes
