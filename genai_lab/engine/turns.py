"""Questions and answers: how a turn begins, what a chosen token means for it, and how it ends.

Receives requests' states and tokens, changes sequences and turns, and puts what happened into the outbox. It knows
neither rows nor blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Chooser, make_chooser, mode_of
from genai_lab.engine.events import EngineErrorCode, EngineEventFlags
from genai_lab.engine.options import TurnSettings
from genai_lab.engine.outbox import Outbox
from genai_lab.engine.plan import Status
from genai_lab.engine.request import NO_TOKENS, RequestState, Times, Turn
from genai_lab.engine.snapshot import TurnCounts
from genai_lab.models import Model
from genai_lab.sampling import Choice, RandomStream
from genai_lab.types import FinishReason


class Turns:
    """The turns of one engine.

    Args:
        model: gives end tokens and the tokenizer.
        outbox: takes the events.
    """

    def __init__(self, model: Model, outbox: Outbox) -> None:
        self._model, self._outbox = model, outbox
        self._eos = frozenset(model.config.model.eos_token_ids)
        self.counts = TurnCounts()

    def begin(self, state: RequestState, prompt: NDArray[np.int32], settings: TurnSettings, step: int) -> int:
        """Ask `prompt` [n]; the turn's id. The caller saw that it fits."""
        start = len(state.sequence)
        random = state.stream if settings.seed is None else RandomStream(settings.seed)
        chooser = self._chooser(random, settings, start + prompt.size)  # a wrong grammar is an error before anything
        state.read(prompt)
        before, state.stream = state.stream, random
        self.counts.begun += 1
        stream = self._model.tokenizer.create_stream() if settings.stop_strings else None
        state.turn = Turn(state.last_turn, settings, start, int(prompt.size), chooser, stream=stream, before=before)
        state.arrival_step, state.preemptions = step, 0
        state.times = Times(arrived=perf_counter_ns())
        state.status = Status.RUNNING if state.row is not None else Status.WAITING
        return state.turn.turn_id

    def continue_in(self, state: RequestState, turn: Turn) -> None:
        """A fork goes on with a copy of `turn`, of whose tokens its sequence is a copy."""
        settings = turn.settings
        chooser = self._chooser(state.stream, settings, turn.start + turn.prompt_tokens)
        stream = self._model.tokenizer.create_stream() if settings.stop_strings else None
        if stream is not None:
            for token in state.sequence.tokens[turn.start + turn.prompt_tokens :].tolist():
                stream.decode(token)
        twin = Turn(turn.turn_id, settings, turn.start, turn.prompt_tokens, chooser, turn.generated, stream=stream)
        twin.text, twin.finish, twin.cached_prompt_tokens = turn.text, turn.finish, turn.cached_prompt_tokens
        state.turn = twin
        if turn.finish is None:
            self.counts.begun += 1

    def take_token(self, state: RequestState, choice: Choice) -> None:
        """A token was chosen: part of the answer, or its end."""
        turn, token = state.turn, choice.token
        if turn is None:
            raise AssertionError("a request without a turn is not scheduled")
        if token in self._eos:
            self.end(state, FinishReason.EOS)
            return
        state.append(token)
        turn.generated += 1
        finish, stop = self._after(state, turn, token)
        if choice.stop is not None:
            finish, turn.stop_reason = FinishReason.STOPPING_CRITERION, choice.stop
        if finish is None:
            self._outbox.emit(state, EngineEventFlags.TOKEN, token=token)
        else:
            self.end(state, finish, token=token, stop=stop)

    def end(
        self,
        state: RequestState,
        finish: FinishReason,
        error: EngineErrorCode = EngineErrorCode.NONE,
        *,
        token: int | None = None,
        stop: int | None = None,
    ) -> None:
        """The turn is over, with its last token if it has one."""
        flags = EngineEventFlags.TURN_FINISHED
        flags |= EngineEventFlags.TOKEN if token is not None else EngineEventFlags.NONE
        flags |= EngineEventFlags.FAILED if finish is FinishReason.FAILED else EngineEventFlags.NONE
        state.status, state.times.finished, state.drafts = Status.IDLE, perf_counter_ns(), NO_TOKENS
        state.leader = None  # whatever is asked next is another prompt
        self.counts.ended[finish] += 1
        if state.turn is not None:
            state.turn.finish = finish
            if state.turn.generated == 0 and finish in (FinishReason.CANCELLED, FinishReason.FAILED):
                state.stream = state.turn.before or state.stream  # nothing was drawn: the turn's seed goes with it
        self._outbox.emit(state, flags, token=token, finish=finish, error=error, stop=stop)

    def _chooser(self, random: RandomStream, settings: TurnSettings, asked: int) -> Chooser:
        """`asked`: tokens up to the end of the question. min_length counts them, min_generated_tokens does not."""
        search, least = settings.search, settings.min_generated_tokens
        if least and asked + least > search.min_length:
            search = search.with_options(min_length=min(asked + least, search.context_length))
        mode = mode_of(search, settings.hooks).mode
        return make_chooser(self._model, search, settings.hooks, mode, random)

    def _after(self, state: RequestState, turn: Turn, token: int) -> tuple[FinishReason | None, int | None]:
        """Why the turn ends with this token, and by which stop string; None while it goes on."""
        settings = turn.settings
        if turn.stream is not None:
            turn.text += turn.stream.decode(token)
            found = first_stop(turn.text, settings.stop_strings)
            if found is not None:
                return FinishReason.STOP_STRING, found
            turn.text = turn.text[-max(len(text) for text in settings.stop_strings) :]
        if settings.max_generated_tokens and turn.generated >= settings.max_generated_tokens:
            return FinishReason.MAX_GENERATED_TOKENS, None
        if len(state.sequence) >= state.sequence.max_length:
            return FinishReason.MAX_SESSION_TOKENS, None
        return None, None


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Which of `stops` is complete first in `text`.

    >>> first_stop("stop", ["top", "st", "to"]), first_stop("go", ["stop"])
    (1, None)
    """
    ends = [(text.index(stop) + len(stop), index) for index, stop in enumerate(stops) if stop in text]
    return min(ends)[1] if ends else None
