"""A request: a conversation that the engine keeps. Turns begin by `begin_turn`; what is asked and what is answered is
one sequence. `Request` is the caller's handle; `RequestState` is what the engine knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.decoding import Chooser, Sequence
from genai_lab.engine.events import EngineEvent, TurnUsage
from genai_lab.engine.legacy import OldRequestCalls, OldTurns, SearchParams
from genai_lab.engine.options import RequestOptions, TurnOptions, TurnSettings
from genai_lab.engine.plan import RequestView, Status
from genai_lab.errors import ArgumentTypeError, StateError
from genai_lab.kvcache.misses import Miss
from genai_lab.lifecycle import Closing
from genai_lab.sampling import RandomStream
from genai_lab.tokenizer import TokenizerStream
from genai_lab.types import FinishReason

if TYPE_CHECKING:
    from genai_lab.engine.engine import Engine


GENERATED_MARK = 1 << 30  # no vocabulary is that large
VERIFIED_MARK = 1 << 29  # it was proposed, and read together with others: other numbers than one by one
NO_TOKENS = np.zeros(0, np.int32)


@dataclass(slots=True)
class Turn:
    """One question and its answer."""

    turn_id: int
    settings: TurnSettings
    start: int  # length of the sequence when it began
    prompt_tokens: int
    chooser: Chooser
    generated: int = 0
    cached_prompt_tokens: int = 0
    text: str = ""  # of the answer, kept only as far as stop strings can match
    stream: TokenizerStream | None = None
    finish: FinishReason | None = None
    stop_reason: str | None = None  # what a person's stopping rule said, or a policy that rejected it
    before: RandomStream | None = None  # the stream that a seed of this turn took the place of

    @property
    def usage(self) -> TurnUsage:
        """Tokens so far."""
        return TurnUsage(self.prompt_tokens, self.generated, self.cached_prompt_tokens)


@dataclass(slots=True)
class Times:
    """When things happened to a request, perf_counter_ns; 0 while they have not."""

    arrived: int = 0
    scheduled: int = 0
    first_token: int = 0
    finished: int = 0


class Sink(Protocol):
    """Takes a request's events as they happen, in the thread that steps; it must not wait or raise."""

    def receive(self, event: EngineEvent, cause: BaseException | None) -> None: ...


@dataclass(slots=True)
class RequestState:
    """What the engine knows of a request."""

    request: int
    options: RequestOptions
    sequence: Sequence
    stream: RandomStream
    arrival_step: int
    status: Status = Status.IDLE
    computed: int = 0  # tokens whose keys and values are in its row
    row: int | None = None
    turn: Turn | None = None
    starts: dict[int, int] = field(default_factory=dict)  # by turn id, where it began; rewound turns are not among them
    last_turn: int = 0  # the highest id given
    prompts: list[tuple[int, int]] = field(default_factory=list)  # [start, stop) that were read as prompts
    preemptions: int = 0
    recomputed: int = 0  # tokens computed a second time, after a preemption
    high_water: int = 0  # most tokens that were ever computed
    undrained: int = 0  # events of it that the caller has not taken
    run: int | None = None  # in the trace
    times: Times = field(default_factory=Times)
    failure: BaseException | None = None  # why its turn failed
    drafts: NDArray[np.int32] = field(default_factory=lambda: NO_TOKENS)  # proposed for its next decode
    leader: tuple[int, int] | None = None  # request and turn whose reading of the same prompt it waits for
    miss: Miss | None = None  # why the prefix cache did not have more of it when it was admitted
    sink: Sink | None = None  # takes its events; None: they wait for `Engine.run`
    is_marked: bool = True  # generated tokens carry a mark: see `marked_tokens`
    _marked: NDArray[np.int32] = field(init=False, repr=False)  # [max_length], see `marked_tokens`

    def __post_init__(self) -> None:
        self._marked = np.zeros(self.sequence.max_length, np.int32)

    def read(self, prompt: NDArray[np.int32]) -> None:
        """Append a prompt [n]; all of it, or none when it does not fit."""
        start = len(self.sequence)
        self.sequence.extend(prompt)
        stop = start + prompt.size
        self._marked[start:stop] = prompt
        self.prompts.append((start, stop))
        self.last_turn += 1
        self.starts[self.last_turn] = start

    def append(self, token: int) -> None:
        """Append a generated token."""
        self._marked[len(self.sequence)] = token | (GENERATED_MARK if self.is_marked else 0)
        self.sequence.append(token)

    def mark_verified(self, start: int, stop: int) -> None:
        """The tokens [start, stop) were read together with proposed ones."""
        if self.is_marked:
            self._marked[start : min(stop, len(self.sequence))] |= VERIFIED_MARK

    def rewind(self, turn_id: int) -> None:
        """Forget that turn and all after it. Their ids are not given again."""
        length = self.starts[turn_id]
        self.sequence.rewind(length)
        self.starts = {turn: start for turn, start in self.starts.items() if turn < turn_id}
        self.prompts = [(a, b) for a, b in self.prompts if a < length]
        self.high_water = min(self.high_water, length)

    def follow(self, other: RequestState) -> None:
        """Take over the tokens of another conversation."""
        tokens, position = other.sequence.tokens, 0
        for start, stop in other.prompts:
            for token in tokens[position:start].tolist():
                self.append(token)
            self.sequence.extend(tokens[start:stop])
            position = stop
        for token in tokens[position:].tolist():
            self.append(token)
        self._marked[: len(self.sequence)] = other.marked_tokens()
        self.starts, self.last_turn, self.prompts = dict(other.starts), other.last_turn, list(other.prompts)

    def next_run(self, computed: int) -> tuple[bool, int]:
        """With `computed` tokens in its row: whether its next run is a decode, and how many tokens it may read. What
        was read as a prompt is read as a prompt again after a preemption, what was generated token by token again: the
        same numbers come out. Without marks there is no such difference, and all that is not read yet is one run."""
        if not self.is_marked:
            unread = len(self.sequence) - computed
            fresh = self.turn is None or self.turn.generated == 0
            return (False, unread) if fresh or unread > 1 else (True, 1 + self.drafts.size)
        for start, stop in reversed(self.prompts):
            if computed >= stop:
                break
            if start <= computed:
                return False, stop - computed
        return True, 1 + self.drafts.size

    def view(
        self,
        held_blocks: int,
        cached: int,
        follows: int | None = None,
        past_blocks: int = 0,
        beginning: int | None = None,
    ) -> RequestView:
        """What a policy may know. `cached`: tokens it would take over, while it waits."""
        computed = cached if self.status is Status.WAITING else self.computed
        is_decode, tokens = self.next_run(computed)
        return RequestView(  # in the order of its fields: names would cost as much as the rest
            self.request,
            self.status,
            self.arrival_step,
            self.options.priority,
            len(self.sequence),
            computed,
            tokens,
            is_decode,
            held_blocks,
            self.preemptions,
            follows,
            past_blocks,
            beginning,
            self.high_water - computed if self.high_water > computed else 0,
        )

    def marked_tokens(self) -> NDArray[np.int32]:
        """[n] view. The sequence as the prefix cache compares it: generated tokens carry a mark, because their keys and
        values came another numeric way than a prompt's would. So a warm start equals a cold one bit by bit."""
        return self._marked[: len(self.sequence)]


class Request(OldRequestCalls, Closing):
    """The caller's handle of a conversation (og class Request). `Engine.create_request` makes it; scripts written
    before onnxruntime-genai 0.17 make it themselves.

    Args:
        params: a `GeneratorParams`, for the earlier API (`genai_lab.engine.legacy`).
    """

    def __init__(self, params: SearchParams) -> None:
        if not hasattr(params, "options") or not hasattr(params, "model"):
            raise ArgumentTypeError(
                f"Request: params is {type(params).__name__}; a GeneratorParams is allowed, or engine.create_request()"
            )
        self._engine: Engine | None = None
        self.number = -1  # until it is added
        self._old: OldTurns | None = OldTurns(params)

    @classmethod
    def _blank(cls) -> Request:
        """One that an engine fills in."""
        request = cls.__new__(cls)
        request._old = None
        return request

    def begin_turn(self, tokens: ArrayLike, turn_options: TurnOptions | None = None) -> int:
        """Ask something; returns the turn's id, one more than the last one's. The engine answers by events.

        Args:
            tokens: [n] token ids, n >= 1.
            turn_options: copied; None takes the model folder's defaults.

        Raises:
            StateError: the last turn is not over, or an event of it was not taken yet.
        """
        return self._live()._conversations.begin_turn(self.number, tokens, turn_options)

    def cancel_turn(self, turn_id: int) -> bool:
        """End a turn now; False when it was over already."""
        return self._live()._conversations.cancel_turn(self.number, turn_id)

    def set_draft_tokens(self, tokens: ArrayLike) -> None:
        """Propose how the answer goes on, [k] token ids (none: nothing any more): the next step reads them in one run
        and keeps those that it would have chosen, and one token more. The answer stays what it is; only fewer runs make
        it. (As the run is another one, logits may differ in their last bits.)

        Raises:
            StateError: the request is not about to be decoded, or the engine cannot verify proposals.
            ArgumentError: more than `engine.max_draft_tokens_per_proposal()`.
        """
        engine = self._live()
        engine._conversations.set_drafts(self.number, tokens, engine.max_draft_tokens_per_proposal())

    def rewind_to_start_of_turn(self, turn_id: int) -> None:
        """Forget a finished turn and all after it."""
        self._live()._conversations.rewind(self.number, turn_id)

    def fork(self, *, seed: int | None = None) -> Request:
        """A second conversation at the same point, which goes its own way from here (ours). What was read is shared in
        memory, and copied only where one of them writes.

        A fork of a request whose prompt is not read yet waits for that and then chooses its own first token, so several
        forks of a fresh turn are several samples of one prompt. A fork in the middle of an answer goes on from the
        tokens there are; of an idle conversation, it is idle too.

        Args:
            seed: of its random stream; None takes a fresh one.

        >>> twins = [request.fork(seed=n) for n in (1, 2, 3)]         # doctest: +SKIP
        """
        engine = self._live()
        return engine._conversations.fork(engine, self.number, seed)

    def tokens(self) -> NDArray[np.int32]:
        """A copy of everything so far, [n] int32 (ours)."""
        return self._live()._conversations.state(self.number).sequence.tokens.copy()

    @property
    def closed(self) -> bool:
        """Whether it was closed, by itself or with its engine (ours)."""
        return self._engine is None and (self._old is None or self._old.book is not None)

    def held_bytes(self) -> int:
        """Bytes that its tokens take in the engine's rows (ours)."""
        engine = self._engine
        state = None if engine is None else engine._states.get(self.number)
        return 0 if engine is None or state is None else state.computed * engine.model.kv_bytes_per_token

    def close(self) -> None:
        """Free its place and memory; closing twice is allowed."""
        if self._engine is not None:
            self._engine._conversations.close(self.number)
            self._engine = None

    def _live(self) -> Engine:
        if self._engine is None and self._old is not None and self._old.book is None:
            raise StateError("the request is in no engine; engine.add_request(request) first")
        if self._engine is None:
            raise StateError(f"request {self.number} is a closed request; make a new one: engine.create_request()")
        return self._engine

    def __repr__(self) -> str:
        if self._old is not None and self._old.book is None:
            return "<genai_lab.Request: not in an engine yet>"
        state = None if self._engine is None else self._engine._states.get(self.number)
        if state is None:
            return f"<genai_lab.Request {self.number}: closed>"
        return f"<genai_lab.Request {self.number}: {state.status.value}, {len(state.sequence)} tokens>"
