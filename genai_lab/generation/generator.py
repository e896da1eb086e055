"""The Generator: the caller holds the loop. Tokens in by `append_tokens`, one token out by each `generate_next_token`.

It keeps the sequence, the decoder's state and how much of the sequence the cache holds; the step itself is
`decoding`'s. Logits of a new token are computed when they are first needed, as in onnxruntime-genai.
"""

from __future__ import annotations

from time import perf_counter_ns
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.decoding import Chooser, Place, Sequence, StopRule, forward, run_step
from genai_lab.decoding.token_input import token_array
from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError
from genai_lab.generation.params import GeneratorParams
from genai_lab.generation.run_log import RunLog
from genai_lab.models import DecoderState, Model
from genai_lab.sampling import RandomStream, build_processors
from genai_lab.tracing import Tracer, current_tracer
from genai_lab.types import FinishReason, Tensor

PREFILL_CHUNK = 256  # tokens of a prompt read in one run, unless the option chunk_size says otherwise


class Generator:
    """Generates one sequence (og class Generator).

    Args:
        model: a loaded `Model`.
        params: its options; later changes of `params` do not reach this generator.

    Raises:
        CapacityError: the KV cache of `max_length` tokens can never fit; the message names both numbers.

    >>> import genai_lab as og                                        # doctest: +SKIP
    >>> generator = og.Generator(model, params)                       # doctest: +SKIP
    >>> generator.append_tokens(tokenizer.encode("Once upon a time")) # doctest: +SKIP
    >>> while not generator.is_done():                                # doctest: +SKIP
    ...     generator.generate_next_token()
    """

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        _check_arguments(model, params)
        options = params.options
        self.model, self.params, self.options = model, params, options
        self.effective_mode = params.effective_mode
        self._state: DecoderState | None = DecoderState(model, options.max_length)
        self._sequence = Sequence(options.max_length)
        self._cached = 0  # tokens of the sequence whose keys and values are in the cache
        self._in_company = bytearray()  # [tokens] 1: of a prompt, read in one run with others; 0: read alone
        self._in_prompt = False  # whether a token appended now would go on with a prompt
        self._logits: NDArray[np.float32] | None = None  # [V], of the sequence's last token
        self._started_ns = 0  # when the work for those logits began
        self._next_token = 0
        self._finish: FinishReason | None = None
        eos = model.config.model.eos_token_ids
        self._rule = StopRule(frozenset(eos), options.max_length)
        self._chooser = Chooser(
            processors=build_processors(options, eos),
            mode=self.effective_mode.mode,
            settings=options,
            stream=RandomStream(None if options.random_seed == -1 else options.random_seed),
        )
        self._log = RunLog(self)

    # ---- og's methods -------------------------------------------------------------------------------------------

    def append_tokens(self, tokens: ArrayLike | Tensor) -> None:
        """Add tokens (a prompt, a next turn) and read them at once.

        Args:
            tokens: [n] or [1, n] integers in the vocabulary, n >= 1.

        Raises:
            ArgumentError, ArgumentTypeError: not token ids of this model.
            CapacityError: they do not fit into max_length. Nothing is changed then.
        """
        state, tracer = self._live(), current_tracer()
        ids = token_array(tokens, self.model.vocab_size)
        self._sequence.check_room(ids.size)
        length = len(self._sequence)
        self._sequence.extend(ids)
        self._started_ns = perf_counter_ns()
        if self._in_prompt and 0 < self._cached == len(self._sequence) - 1:
            self._cached -= 1  # a prompt's token is not read alone, see `chunk_stops`: the one before it once more
        in_company = len(self._sequence) - self._cached > 1
        place = self._log.append(tracer, ids, self._cached)
        try:
            self._logits = self._read_all(state, place)
        except Exception:
            self._sequence.rewind(length)
            self._cached = min(self._cached, length)
            self._log.fail(tracer, "the model run failed while reading appended tokens")
            raise
        self._in_company += bytes([in_company]) * ids.size
        self._in_prompt, self._finish = True, None

    def generate_next_token(self) -> None:
        """Choose one more token and append it (an end token is returned by `get_next_tokens` but not appended).

        Raises:
            StateError: nothing was appended yet, or the sequence is done.
        """
        state, tracer = self._live(), current_tracer()
        self._check_can_generate()
        logits = self._logits if self._logits is not None else self._compute_logits(state, tracer)
        place = self._log.place(tracer)
        choice, finish = run_step(logits, self._sequence, self._chooser, self._rule, place, self._started_ns)
        self._logits, self._in_prompt = None, False
        self._in_company += bytes(len(self._sequence) - len(self._in_company))
        self._next_token, self._finish = choice.token, finish
        self._log.generated(tracer, finish)

    def is_done(self) -> bool:
        """Whether the sequence ended: an end token was chosen, or max_length is reached."""
        return self._finish is not None

    def get_next_tokens(self) -> NDArray[np.int32]:
        """The token of the last `generate_next_token`, [1] int32; 0 before the first."""
        return np.array([self._next_token], np.int32)

    def get_sequence(self, index: int) -> NDArray[np.int32]:
        """A copy of every token so far, prompt included, [n] int32. `index` is 0: there is one sequence."""
        if index != 0:
            raise IndexError(f"get_sequence({index}): this generator has one sequence, index 0")
        return self._sequence.tokens.copy()

    def token_count(self) -> int:
        """Tokens so far, prompt included."""
        return len(self._sequence)

    def get_logits(self) -> NDArray[np.float32]:
        """A copy of the logits that the next token will be chosen from, [1, 1, V] float32; runs the model if need
        be."""
        state, tracer = self._live(), current_tracer()
        self._check_not_empty("get_logits")
        logits = self._logits if self._logits is not None else self._compute_logits(state, tracer)
        return logits.reshape(1, 1, -1).copy()

    def set_logits(self, logits: ArrayLike) -> None:
        """Replace the logits that the next token will be chosen from: V numbers in any shape.

        Raises:
            StateError: there are none to replace; call get_logits or append_tokens first.
        """
        self._live()
        values = np.asarray(logits, np.float32).reshape(-1)
        if self._logits is None:
            raise StateError("set_logits: no logits are computed yet; call append_tokens or get_logits first")
        if values.size != self.model.vocab_size:
            raise ArgumentError(
                f"set_logits: got {values.size} numbers, allowed is the vocabulary's {self.model.vocab_size}"
            )
        self._logits = values.copy()

    def rewind_to(self, length: int) -> None:
        """Keep the first `length` tokens. The cache keeps theirs too, so going on from there reads nothing again but
        the last token, whose logits are needed (the last two inside a prompt)."""
        self._live()
        if isinstance(length, bool) or not isinstance(length, int | np.integer):
            raise ArgumentTypeError(f"rewind_to: length is {type(length).__name__}, an int is allowed")
        if not 0 <= length <= len(self._sequence):
            raise ArgumentError(
                f"rewind_to: length is {length}, allowed is 0 to {len(self._sequence)}, the tokens there are now"
            )
        self._log.rewound(int(length), current_tracer())
        self._in_prompt = self._is_in_prompt(int(length))
        self._sequence.rewind(int(length))
        self._cached = min(self._cached, int(length))
        del self._in_company[int(length) :]
        self._logits, self._finish = None, None

    def get_output(self, name: str) -> NDArray[Any]:
        """A copy of one output of the last model run by its graph name: the logits, or a layer's present keys or values
        [1, kv_heads, tokens, head_dim]."""
        return self._live().output(name, self._cached)

    # ---- ours ---------------------------------------------------------------------------------------------------

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes that the keys and values of `max_length` tokens take (memory is used as tokens arrive)."""
        return self.model.kv_layout.bytes_per_token * self.options.max_length

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the sequence is done; None while it goes on."""
        return self._finish

    def stop(self) -> None:
        """End the answer here. `append_tokens` or `rewind_to` go on from it."""
        if self._finish is None:
            self._finish = FinishReason.CANCELLED
            self._log.generated(current_tracer(), self._finish)

    def fork(self, length: int | None = None, params: GeneratorParams | None = None) -> Generator:
        """A second generator that begins with the first `length` tokens of this one. Their keys and values are copied,
        not computed; this generator is not changed."""
        state = self._live()
        count = len(self._sequence) if length is None else length
        if not 0 <= count <= len(self._sequence):
            raise ArgumentError(
                f"fork: length is {count}, allowed is 0 to {len(self._sequence)}, the tokens there are now"
            )
        twin = Generator(self.model, params or self.params)
        twin._sequence.extend(self._sequence.tokens[:count])
        twin._cached = min(self._cached, count)
        twin._in_company, twin._in_prompt = self._in_company[:count], self._is_in_prompt(count)
        twin._live().cache.copy_prefix(state.cache, twin._cached)
        twin._log.forked(self._log, count)
        return twin

    def close(self) -> None:
        """Free the cache. Any later call is an error; closing twice is allowed."""
        self._state, self._logits = None, None

    def __enter__(self) -> Generator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._state is None else "done" if self.is_done() else "going on"
        return f"<genai_lab.Generator: {len(self._sequence)} tokens, {self.effective_mode.mode.value}, {state}>"

    # ---- inside -------------------------------------------------------------------------------------------------

    def _read_all(self, state: DecoderState, place: Place) -> NDArray[np.float32]:
        """Read every token that the cache does not hold, in chunks; logits of the last. Chunks give the same numbers
        as the whole, bit by bit, and keep the memory for intermediate results small."""
        tokens = self._sequence.tokens
        logits = self._logits
        for stop in chunk_stops(self._cached, tokens.size, self.options.chunk_size or PREFILL_CHUNK):
            logits = forward(state, tokens[self._cached : stop], self._cached, place)
            self._cached = stop
        if logits is None:
            raise AssertionError("there is a token to read")
        return logits

    def _compute_logits(self, state: DecoderState, tracer: Tracer) -> NDArray[np.float32]:
        """Read what the cache does not hold yet; after a rewind, the last token once more, in the way it was read
        first: a prompt's in company of the one before it, any other alone."""
        if self._cached == len(self._sequence):
            self._cached -= 2 if self._cached > 1 and self._in_company[-1] else 1
        tokens = self._sequence.tokens[self._cached :]
        self._started_ns = perf_counter_ns()
        place = self._log.place(tracer)
        try:
            self._logits = forward(state, tokens, self._cached, place)
        except Exception:
            self._log.fail(tracer, "the model run failed")
            raise
        self._cached = len(self._sequence)
        return self._logits

    def _is_in_prompt(self, length: int) -> bool:
        """Whether what followed the first `length` tokens belongs to a prompt."""
        return bool(self._in_company[length]) if length < len(self._in_company) else self._in_prompt

    def _live(self) -> DecoderState:
        if self._state is None:
            raise StateError("this Generator is closed; make a new one from the model and its params")
        _ = self.model.session  # says so when the model is closed
        return self._state

    def _check_not_empty(self, call: str) -> None:
        if len(self._sequence) == 0:
            raise StateError(f"{call}: nothing was appended yet; call append_tokens(tokenizer.encode(prompt)) first")

    def _check_can_generate(self) -> None:
        self._check_not_empty("generate_next_token")
        if len(self._sequence) >= self.options.max_length:
            raise StateError(
                f"generate_next_token: the sequence already has max_length = {self.options.max_length} tokens; "
                "set a larger max_length before you begin, or rewind"
            )
        if self._finish is not None:
            raise StateError(
                f"generate_next_token: the sequence is done ({self._finish.name}); append tokens or rewind to go on"
            )


def chunk_stops(start: int, stop: int, size: int) -> list[int]:
    """Ends of the chunks of at most about `size` tokens from `start` to `stop`. No chunk of one token is left over: one
    alone takes another numeric path in ONNX Runtime's kernels than inside a chunk.

    >>> chunk_stops(0, 10, 4), chunk_stops(0, 9, 4)
    ([4, 8, 10], [4, 9])
    """
    size = max(2, size)
    stops = list(range(start + size, stop, size))
    if stops and stop - stops[-1] == 1:
        stops.pop()
    return [*stops, stop]


def _check_arguments(model: Model, params: GeneratorParams) -> None:
    if not isinstance(model, Model) or not isinstance(params, GeneratorParams):
        raise ArgumentTypeError(
            f"Generator() takes a Model and GeneratorParams, got {type(model).__name__} and {type(params).__name__}"
        )
    options = params.options
    options.check_together()
    if options.num_beams != 1 or options.batch_size != 1:
        raise ArgumentError(
            f"num_beams={options.num_beams} and batch_size={options.batch_size}: this version generates one "
            f"sequence at a time; "
            "set both to 1"
        )
