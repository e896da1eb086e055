"""The Generator: the caller holds the loop. Tokens in by `append_tokens`, one token a row out by `generate_next_token`.

The public calls, their checks and words. What happens behind them is a search's: `One` sequence, a `Batch` of them,
`Beams`, or `Speculative`.
"""

from __future__ import annotations

import warnings
import weakref
from copy import copy
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.config import SearchOptions
from genai_lab.decoding import Chooser, make_chooser
from genai_lab.decoding.speculation import NOTHING_YET, SpeculativeStats
from genai_lab.errors import ArgumentError, ArgumentTypeError, CountError, PlaceError, StateError, wrong_kind
from genai_lab.generation.batch import Batch
from genai_lab.generation.beams import Beams
from genai_lab.generation.checks import check_arguments, check_for_beams, check_goes_on, check_not_empty, running
from genai_lab.generation.compat import in_og_compat
from genai_lab.generation.log import LOG, log_appended, log_generated
from genai_lab.generation.one import One
from genai_lab.generation.params import GeneratorParams
from genai_lab.generation.run_log import RunLog
from genai_lab.generation.speculating import make_speculative, speculates
from genai_lab.generation.speculative import Speculative
from genai_lab.lifecycle import Closing, born, died
from genai_lab.models import Adapters, Model, RunExtras
from genai_lab.sampling import RandomStream
from genai_lab.tracing import Tracer, current_tracer
from genai_lab.types import FinishReason, NamedTensors, Tensor


class Search(Protocol):
    """What a generator does with its rows: one, or prompts x beams of them."""

    model: Model
    options: SearchOptions

    @property
    def token_count(self) -> int: ...
    @property
    def next_tokens(self) -> NDArray[np.int32]: ...  # [rows]
    @property
    def finish(self) -> FinishReason | None: ...
    @property
    def extras(self) -> RunExtras: ...
    def append(self, tokens: ArrayLike | Tensor, tracer: Tracer, /) -> None: ...
    def generate(self, tracer: Tracer, /) -> None: ...
    def logits(self, tracer: Tracer, /) -> NDArray[np.float32]: ...  # [rows, V]
    def set_logits(self, logits: NDArray[np.float32], /) -> None: ...
    def sequence(self, index: int, /) -> NDArray[np.int32]: ...
    def rewind(self, length: int, tracer: Tracer, /) -> None: ...
    def stop(self, tracer: Tracer, /) -> None: ...
    def input(self, name: str, /) -> NDArray[Any]: ...
    def output(self, name: str, /) -> NDArray[Any]: ...


class Generator(Closing):
    """Generates one sequence, a batch of them, or the best by beam search (og class Generator).

    Args:
        model: a loaded `Model`.
        params: its options; later changes of `params` do not reach this generator. batch_size prompts are read side by
            side; num_beams above 1 searches for the num_return_sequences most likely answers of each.

    Raises:
        CapacityError: the KV cache of `max_length` tokens a row can never fit; the message names both numbers.

    >>> import genai_lab as og                                        # doctest: +SKIP
    >>> generator = og.Generator(model, params)                       # doctest: +SKIP
    >>> generator.append_tokens(tokenizer.encode("Once upon a time")) # doctest: +SKIP
    >>> while not generator.is_done():                                # doctest: +SKIP
    ...     generator.generate_next_token()
    """

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        check_arguments(model, params)
        self.model, self.params, self.options = model, copy(params), params.options
        self.effective_mode = params.effective_mode
        self._search: Search | None = self._make_search()
        self._puts_back = in_og_compat()
        self._cut: int | None = None  # what the last rewind cut off first, if that comes back before anything else
        size = self.kv_cache_bytes
        born(self, "Generator", lambda _: size)

    # ---- og's methods -------------------------------------------------------------------------------------------

    def append_tokens(self, tokens: ArrayLike | Tensor) -> None:
        """Add tokens (a prompt, a next turn) and read them at once.

        Args:
            tokens: [n] or [1, n] integers in the vocabulary, n >= 1; with batch_size > 1 [batch_size, n], or as many
                numbers in a row, shorter prompts padded with the padding token at either end. One id alone will do.

        Raises:
            ArgumentError, ArgumentTypeError: not token ids of this model.
            CapacityError: they do not fit into max_length. Nothing is changed then.
            StateError: a batch or a beam search has its prompts already.
        """
        search = self._live()
        before = search.token_count
        with running(search):
            search.append(_with_axis(tokens), current_tracer())
        self._cut = None
        if LOG.flags["enabled"]:
            log_appended(search, before)

    def generate_next_token(self) -> None:
        """Choose one more token a row and append it (one sequence alone: an end token is returned by
        `get_next_tokens` but not appended).

        Raises:
            StateError: nothing was appended yet, or the generation is done.
        """
        search = self._live()
        check_not_empty(search, "generate_next_token")
        self._put_cut_back()
        check_goes_on(search)
        before = search.token_count
        with running(search):
            search.generate(current_tracer())
        if LOG.flags["enabled"]:
            log_generated(search, self.options, before)

    def is_done(self) -> bool:
        """Whether every sequence ended: an end token was chosen, or max_length is reached."""
        return self._live().finish is not None

    def get_next_tokens(self) -> NDArray[np.int32]:
        """The tokens of the last `generate_next_token`, [batch_size * num_beams] int32; after `append_tokens` the last
        ones appended; 0 before anything was."""
        tokens = self._live().next_tokens
        return tokens if self._cut is None else np.array([self._cut], np.int32)

    def get_sequence(self, index: int) -> NDArray[np.int32]:
        """A copy of every token so far, prompt included, [n] int32.

        Args:
            index: 0 to batch_size * num_return_sequences - 1. With beam search the results of a prompt, best first.
        """
        search, count = self._live(), self.options.batch_size * self.options.num_return_sequences
        if isinstance(index, bool) or not isinstance(index, int | np.integer):
            raise wrong_kind("get_sequence: index", index, "an int")
        if not 0 <= index < count:
            allowed = "one sequence, index 0" if count == 1 else f"{count} sequences, index 0 to {count - 1}"
            raise PlaceError(f"get_sequence({index}): this generator has {allowed}")
        return search.sequence(index)

    def token_count(self) -> int:
        """Tokens of a row so far, prompt included."""
        return self._live().token_count

    def get_logits(self) -> NDArray[np.float32]:
        """A copy of the logits that the next tokens will be chosen from, [batch_size * num_beams, 1, V] float32; runs
        the model if need be."""
        search = self._live()
        check_not_empty(search, "get_logits")
        self._put_cut_back()
        with running(search):
            return search.logits(current_tracer())[:, None, :].copy()

    def set_logits(self, logits: ArrayLike) -> None:
        """Replace the logits that the next tokens will be chosen from: batch_size * num_beams * V numbers, any shape.

        Raises:
            StateError: there are none to replace; call get_logits or append_tokens first.
        """
        search = self._live()
        try:
            values = np.asarray(logits, np.float32)
        except (TypeError, ValueError) as error:
            raise wrong_kind("set_logits: logits", logits, "an array of numbers") from error
        rows, vocabulary = self.options.batch_size * self.options.num_beams, self.model.vocab_size
        if values.size != rows * vocabulary:
            of_rows = "" if rows == 1 else f"{rows} rows of "
            raise ArgumentError(
                f"set_logits: got {values.size} numbers, allowed is {of_rows}the vocabulary's {vocabulary}"
            )
        self._put_cut_back()
        search.set_logits(values)

    def rewind_to(self, length: int) -> None:
        """Keep the first `length` tokens. The cache keeps theirs too, so going on from there reads nothing again but
        the last token, whose logits are needed (the last two inside a prompt). A rewind to where
        a text that goes on is changes nothing. A batch can be rewound to 0 or where it is, a beam search not at all."""
        search = self._live()
        if isinstance(length, bool) or not isinstance(length, int | np.integer):
            raise ArgumentTypeError(f"rewind_to: length is {type(length).__name__}, an int is allowed")
        if not 0 <= length <= search.token_count:
            far = "" if length < 0 else "Cannot rewind to a length greater than the current sequence length: "
            raise (CountError if length < 0 else ArgumentError)(
                f"rewind_to: {far}length is {length}, allowed is 0 to {search.token_count}, the tokens there are now"
            )
        cut = self._cut if length == search.token_count else None
        if self._puts_back and 0 < length < search.token_count and isinstance(search, One | Speculative):
            cut = int(search.sequence(0)[length])
        search.rewind(int(length), current_tracer())
        self._cut = cut

    def get_output(self, name: str) -> NDArray[Any]:
        """A copy of one output of the last model run by its graph name: the logits, or a layer's present keys or values
        [rows, kv_heads, tokens, head_dim]."""
        return self._live().output(name)

    def get_input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last model run by its graph name (with batch_size > 1 the extra inputs only: its
        rows are read one after another)."""
        if not isinstance(name, str):
            raise wrong_kind("get_input: name", name, "a text, the name of an input of the graph")
        return self._live().input(name)

    def set_model_input(self, name: str, value: NDArray[Any]) -> None:
        """Give an input of the graph that follows from no token, for every run from now on. A name that the graph does
        not have is ignored, and so, with a warning, is one that follows from tokens that are there already."""
        search = self._live()
        if search.token_count and search.extras.follows(name):
            warnings.warn(
                f"set_model_input({name!r}, ...) changes nothing: this input follows from the tokens, which are there "
                "already; call append_tokens(...) for more",
                stacklevel=2,
            )
            return
        search.extras.set_input(name, value)

    def set_hidden_states(self, hidden_states: NDArray[Any]) -> None:
        """Give the graph's input of hidden states (model.decoder.inputs.hidden_states) for every run from now on, one
        [1, S, H] for the S tokens of the next run: another model's last layer, from which a head that predicts several
        tokens goes on. A graph without it ignores them. `MtpGenerator` does all of this."""
        self.set_model_input(self.model.config.model.decoder.inputs.hidden_states or "hidden_states", hidden_states)

    def set_inputs(self, inputs: NamedTensors) -> None:
        """Give several inputs at once, as a processor of images or sounds makes them; "input_ids" among them are
        appended like a prompt. Tensors of images and sounds are for one prompt: the next one that is appended.

        Raises:
            ArgumentError, ArgumentTypeError, StateError: they are not what the graphs want; nothing is changed then.
        """
        search = self._live()
        if not isinstance(inputs, NamedTensors):
            raise ArgumentTypeError(f"set_inputs: got {type(inputs).__name__}, NamedTensors are allowed")
        ids = self.model.config.model.decoder.inputs.input_ids
        with search.extras.all_or_none():
            for name in inputs:
                if name != ids:
                    search.extras.set_input(name, inputs[name].as_numpy())
            if ids in inputs:
                self.append_tokens(inputs[ids])

    def set_active_adapter(self, adapters: Adapters, name: str) -> None:
        """Run with an adapter from now on; several may be active. Set it before tokens are appended: what is in the
        cache was computed without it."""
        if not isinstance(adapters, Adapters):
            raise ArgumentTypeError(f"set_active_adapter: got {type(adapters).__name__}, Adapters are allowed")
        search = self._live()
        search.extras.add_adapter(adapters.get(name))
        adapters._use(name)
        weakref.finalize(search, adapters._give_back, name).atexit = False

    def set_runtime_option(self, key: str, value: str) -> None:
        """Set an option of the runs: "terminate_session" "1" ends a run in progress with an error and refuses others
        until it is set to "0"; other keys are onnxruntime's run options."""
        self._live().extras.set_option(key, value)

    def get_speculative_stats(self) -> dict[str, Any]:
        """What was proposed, accepted and handed out so far, under onnxruntime-genai's names; all zeros for a generator
        that does not speculate."""
        search = self._live()
        return search.stats if isinstance(search, Speculative) else SpeculativeStats().as_og_dict(**NOTHING_YET)

    def snapshot_state(self) -> None:
        """Remember this place for a later `rewind_to`. Only a model with layers of convolution or recurrence needs it:
        with keys and values of every token in the cache, any place can be rewound to."""
        search = self._live()
        if isinstance(search, One):
            search.snapshot()

    # ---- ours ---------------------------------------------------------------------------------------------------

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes that the keys and values of `max_length` tokens take in every row (memory is used as tokens
        arrive)."""
        return self.params.kv_cache_bytes

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the generation is done; None while it goes on."""
        return self._live().finish

    @property
    def stop_reason(self) -> str | None:
        """What a stopping criterion of your own said; None unless one ended the answer (one sequence)."""
        search = self._live()
        return search.stop_reason if isinstance(search, One | Speculative) else None

    def stop(self) -> None:
        """End the answer here. `append_tokens` or `rewind_to` go on from it (one sequence)."""
        self._live().stop(current_tracer())

    def fork(self, length: int | None = None, params: GeneratorParams | None = None) -> Generator:
        """A second generator that begins with the first `length` tokens of this one. Their keys and values are copied,
        not computed; this generator is not changed. One sequence only."""
        search = self._live()
        count = search.token_count if length is None else length
        if isinstance(count, bool) or not isinstance(count, int | np.integer):
            raise wrong_kind("fork: length", length, "an int, or None for all")
        if not 0 <= count <= search.token_count:
            raise ArgumentError(
                f"fork: length is {count}, allowed is 0 to {search.token_count}, the tokens there are now"
            )
        twin = Generator(self.model, params or self.params)
        if not isinstance(search, One) or not isinstance(twin._search, One):
            raise StateError("fork: a batch or a beam search cannot be forked; set batch_size=1 and num_beams=1")
        twin._search.take_beginning(search, count)
        return twin

    def _put_cut_back(self) -> None:
        """Inside og_compat(): what a rewind cut off first comes back before the next token, or logits."""
        if self._cut is not None:
            self.append_tokens(self._cut)

    def close(self) -> None:
        """Free the cache. Any later call is an error; closing twice is allowed."""
        self._search = None
        died(self)

    def __repr__(self) -> str:
        if self._search is None:
            return f"<genai_lab.Generator: {self.effective_mode.mode.value}, closed>"
        state = "done" if self._search.finish is not None else "going on"
        return f"<genai_lab.Generator: {self._search.token_count} tokens, {self.effective_mode.mode.value}, {state}>"

    # ---- inside -------------------------------------------------------------------------------------------------

    def _make_search(self) -> Search:
        model, options, mode = self.model, self.options, self.effective_mode
        stream = RandomStream(None if options.random_seed == -1 else options.random_seed)

        hooks = self.params.hooks

        def chooser() -> Chooser:
            return make_chooser(model, options, hooks, mode.mode, stream)

        speculative = self.params.speculative
        if speculates(model, speculative):
            return make_speculative(model, options, mode, chooser(), hooks, speculative)
        if options.num_beams > 1:
            check_for_beams(hooks)
            return Beams(model, options, chooser())
        if options.batch_size > 1:
            return Batch(model, options, chooser, lambda tokens: RunLog(model, options, mode, tokens, hooks=hooks))
        return One(model, options, mode, chooser(), self, hooks)

    def _live(self) -> Search:
        if self._search is None:
            raise StateError("this Generator is closed; make a new one from the model and its params")
        _ = self.model.graph  # says so when the model is closed
        return self._search


def _with_axis(tokens: ArrayLike | Tensor) -> ArrayLike | Tensor:
    """One token id, as a loop hands it on, as [1]; anything else as it is."""
    alone = isinstance(tokens, int | np.integer) and not isinstance(tokens, bool)
    return np.array([tokens]) if alone else tokens
