"""One sequence of a generator: the tokens, how many of them the cache holds, and the logits that come next.

The step itself is `decoding`'s. Logits of a new token are computed when they are first needed, as in
onnxruntime-genai.
"""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.config import SearchOptions
from genai_lab.decoding import Chooser, Hooks, Place, Sequence, StopRule, forward, put, run_step
from genai_lab.decoding.token_input import NEGATIVE, token_array
from genai_lab.errors import ArgumentError, StateError
from genai_lab.generation.run_log import RunLog
from genai_lab.generation.searches import OneSequence
from genai_lab.models import Model, make_one
from genai_lab.models.chunks import chunk_stops
from genai_lab.sampling import EffectiveMode
from genai_lab.tracing import Tracer
from genai_lab.types import FinishReason, Tensor


class One(OneSequence):
    """The search of a generator with one sequence.

    Args:
        model, options, mode: what runs, and how.
        chooser: turns logits into a token.
        source: the generator that the trace may ask to continue an answer.
        hooks: what a person put into the step, for the trace; the chooser has it already.
    """

    def __init__(
        self,
        model: Model,
        options: SearchOptions,
        mode: EffectiveMode,
        chooser: Chooser,
        source: object,
        hooks: Hooks,
    ) -> None:
        self.model, self.options, self._chooser = model, options, chooser
        self._state = make_one(model, options.max_length, sees=True)
        self._least = NEGATIVE if model.encoders else 0  # token id
        self._tokens = Sequence(options.max_length)
        self._cached = 0  # tokens of the sequence whose keys and values are in the cache
        self._in_company = bytearray()  # [tokens] 1: of a prompt, read in one run with others; 0: read alone
        self._in_prompt = False  # whether a token appended now would go on with a prompt
        self._logits: NDArray[np.float32] | None = None  # [V], of the sequence's last token
        self._started_ns = 0  # when the work for those logits began
        self._next = 0
        self.finish: FinishReason | None = None
        self.stop_reason: str | None = None  # what a person's stopping rule said
        self._rewound = False  # whether the last call cut the sequence
        self._rule = StopRule(frozenset(model.config.model.eos_token_ids), options.max_length)
        self._log = RunLog(model, options, mode, self._tokens, source, hooks)

    def append(self, tokens: ArrayLike | Tensor, tracer: Tracer) -> None:
        """Add tokens [n] or [1, n] and read them at once."""
        ids = self._state.admit(token_array(tokens, self.model.vocab_size, self._least), len(self._tokens))
        self._tokens.check_room(ids.size)
        is_prompt = self._begins_a_prompt(ids)
        length = len(self._tokens)
        self._tokens.extend(ids, is_prompt=is_prompt)
        self._started_ns = perf_counter_ns()
        if self._in_prompt and 0 < self._cached == len(self._tokens) - 1:
            self._cached -= 1  # a prompt's token is not read alone, see `chunk_stops`: the one before it once more
        in_company = len(self._tokens) - self._cached > 1
        place = self._log.append(tracer, ids, self._cached)
        try:
            for what in self._state.encode(ids, length):
                tracer.stage(place.run, place.index, what.stage, what.start_ns, what.end_ns, what.n)
            self._logits = self._read_all(place)
        except Exception:
            self._state.forget(length)
            self._tokens.rewind(length)
            self._cached = min(self._cached, length)
            self._log.fail(tracer, "the model run failed while reading appended tokens")
            raise
        self._in_company += bytes([in_company]) * ids.size
        self._next, self._in_prompt, self._rewound = int(ids[-1]), True, False
        self.finish = self.stop_reason = None

    def generate(self, tracer: Tracer) -> None:
        """Choose one more token; appended unless it ends the sequence."""
        logits = self._next_logits(tracer)
        if self.finish is not None:
            return  # what the grammar forces filled the sequence
        place = self._log.place(tracer, self._cached)
        choice, finish = run_step(logits, self._tokens, self._chooser, self._rule, place, self._started_ns)
        self._logits, self._in_prompt = None, False
        self._in_company += bytes(len(self._tokens) - len(self._in_company))
        self._next, self.finish, self.stop_reason = choice.token, finish, choice.stop
        self._rewound = False
        self._log.generated(tracer, finish)

    def logits(self, tracer: Tracer) -> NDArray[np.float32]:
        """[1, V] logits that the next token is chosen from."""
        return self._next_logits(tracer).reshape(1, -1)

    def set_logits(self, logits: NDArray[np.float32]) -> None:
        """Replace them, [V] or [1, V]."""
        if self._logits is None:
            raise StateError("set_logits: no logits are computed yet; call append_tokens or get_logits first")
        self._logits = logits.reshape(-1).copy()

    def rewind(self, length: int, tracer: Tracer) -> None:
        """Keep the first `length` tokens, in the cache too. Nothing changes when that is all of a text that goes on."""
        if length == len(self._tokens) and self.finish is None:
            self._rewound = True
            return
        held = self._state.rewind(length)
        self._log.rewound(length, tracer)
        self._in_prompt = self._is_in_prompt(length)
        self._tokens.rewind(length)
        self._next = int(self._tokens.tokens[-1]) if length else 0
        self._cached = min(self._cached, held)
        del self._in_company[length:]
        self._logits, self._rewound = None, True
        self.finish = self.stop_reason = None

    def snapshot(self) -> None:
        """Remember this place for a later rewind."""
        self._state.snapshot()

    def stop(self, tracer: Tracer) -> None:
        """End the answer here."""
        if self.finish is None:
            self.finish = FinishReason.CANCELLED
            self._log.generated(tracer, self.finish)

    def answer_from(self, start: int) -> None:
        """What follows the first `start` tokens is one answer: for a grammar, when an answer was put together again."""
        self._tokens.answer_from(start)

    def take_beginning(self, other: One, length: int) -> None:
        """Begin as a copy of `other`'s first `length` tokens, keys and values included."""
        self._tokens.extend_from(other._tokens, length)
        self._cached = min(other._cached, length)
        self._in_company, self._in_prompt = other._in_company[:length], other._is_in_prompt(length)
        self._state.take_prefix(other._state, self._cached)
        self._log.forked(other._log, length)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _begins_a_prompt(self, ids: NDArray[np.int32]) -> bool:
        """Whether appended tokens are a prompt. Under guidance, in the middle of an answer, they go on with the answer,
        as in onnxruntime-genai; after a rewind they do so where the grammar allows it."""
        guide, answer = self._chooser.guide, self._tokens.tokens[self._tokens.answer_start :]
        if guide is None or not answer.size or self.finish is not None:
            return True
        if guide.accepts(answer, ids):
            return False
        if self._rewound:
            return True
        raise ArgumentError(
            f"append_tokens: the guidance does not allow {ids[:8].tolist()} after the {answer.size} tokens of the "
            "answer that is being written. Generate it to its end, or stop() it, before the next prompt"
        )

    def _next_logits(self, tracer: Tracer) -> NDArray[np.float32]:
        """[V] what the next token is chosen from, behind what the grammar forces."""
        self._append_forced(tracer)
        return self._logits if self._logits is not None else self._compute_logits(tracer)

    def _append_forced(self, tracer: Tracer) -> None:
        """Append what can only come next, unasked; it will be read in one run."""
        guide, answer = self._chooser.guide, self._tokens.tokens[self._tokens.answer_start :]
        if guide is None or not self._chooser.ff_tokens or not answer.size or self.finish is not None:
            return
        room = self._tokens.max_length - len(self._tokens)
        forced = guide.forced(answer)[:room]
        if forced and self._cached < len(self._tokens):
            self._compute_logits(tracer)  # what was chosen is read alone, as without forced tokens and as in og
        for token in forced:
            place = self._log.place(tracer, self._cached)
            put(token, self._tokens, place)
            self._next, self._logits = token, None
            self._log.generated(tracer, None)
        self._in_company += bytes(len(forced))
        if forced and len(self._tokens) == self._tokens.max_length:
            self.finish = FinishReason.MAX_SESSION_TOKENS
            self._log.finished(self.finish)

    def _read_all(self, place: Place) -> NDArray[np.float32]:
        """Read every token that the cache does not hold, in chunks; logits of the last."""
        tokens, logits = self._tokens.tokens, self._logits
        for stop in chunk_stops(self._cached, tokens.size, self.options.chunk_size):
            logits = forward(self._state, tokens[self._cached : stop], self._cached, place)
            self._cached = stop
        if logits is None:
            raise AssertionError("there is a token to read")
        return logits

    def _compute_logits(self, tracer: Tracer) -> NDArray[np.float32]:
        """Read what the cache does not hold yet; after a rewind, the last token once more, in the way it was read
        first: a prompt's in company of the one before it, any other alone."""
        if self._cached == len(self._tokens):
            self._cached -= 2 if self._cached > 1 and self._in_company[-1] else 1
        tokens = self._tokens.tokens[self._cached :]
        if tokens.size > 1:
            self._in_company[self._cached :] = b"\1" * tokens.size
        self._started_ns = perf_counter_ns()
        place = self._log.place(tracer, self._cached)
        try:
            self._logits = forward(self._state, tokens, self._cached, place)
        except Exception:
            self._log.fail(tracer, "the model run failed")
            raise
        self._cached = len(self._tokens)
        return self._logits

    def _is_in_prompt(self, length: int) -> bool:
        """Whether what followed the first `length` tokens belongs to a prompt."""
        return bool(self._in_company[length]) if length < len(self._in_company) else self._in_prompt
