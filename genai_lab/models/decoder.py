"""A running decoder: the KV cache and the bound inputs of one generator. Tokens and a cached length in, logits out.

Shapes: B rows, S new tokens, T = cached + S. One binding serves all runs: decode steps (S = 1) keep their buffers and
only the mask's length changes; a prefill binds buffers of its own size. Past and present are the same memory (see
`kvcache.ContiguousCache`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, StateError
from genai_lab.kvcache import ContiguousCache
from genai_lab.models.binding import bind_input, bind_output
from genai_lab.models.extras import RunExtras, unknown_input, unknown_output
from genai_lab.models.graph import other_outputs
from genai_lab.models.last_run import Stoppable
from genai_lab.models.model import Model
from genai_lab.models.places import AnyPlace

SHORT = 32  # tokens: a run of so few is not stopped midway


class DecoderState(AnyPlace, Stoppable):
    """One generator's place in the model.

    Args:
        model: a loaded decoder-only model.
        capacity: tokens per row, prompt included.
    """

    def __init__(self, model: Model, capacity: int, rows: int = 1, extras: RunExtras | None = None) -> None:
        self.model = model
        self.extras = extras or RunExtras(model.session, model.config)
        self.rows, self.capacity = rows, capacity
        self.cache = ContiguousCache(model.kv_layout, rows, capacity)
        names = model.config.model.decoder
        self._ids, self._mask, self._positions = (
            names.inputs.input_ids,
            names.inputs.attention_mask,
            names.inputs.position_ids,
        )
        self._logits = names.outputs.logits
        session = model.session
        self._ones = (
            np.ones((rows, capacity), session.inputs[self._mask].dtype) if self._mask in session.inputs else None
        )
        self._bound_extras = -1  # version of the extra inputs that are bound
        self._other_outputs = other_outputs(session, model.config)
        self._bound: dict[str, NDArray[Any]] = {}  # the inputs of the last run but for the cache
        self._binding = self._bind_cache()
        self._ran = False
        self._is_bound_for_decode = False
        self._is_short = False  # whether the run is over in milliseconds, so that nobody needs to stop it
        self._decode_ids = np.zeros((rows, 1), session.inputs[self._ids].dtype)
        self._decode_logits = np.empty((rows, 1, model.vocab_size), session.outputs[self._logits].dtype)
        self._decode_positions = self._positions_buffer(1)
        self._total = 0  # tokens in the row after the last run
        self._gives_all = True  # whether the last run gave all logits that the graph has
        self._kept: list[NDArray[Any]] = []  # arrays of a prefill: the binding holds addresses only

    def prepare(self, tokens: NDArray[np.int32], cached: int, *, every: bool = False) -> None:
        """Bind [S] new tokens after `cached` ones; without `every` nobody looks at logits but the last token's."""
        if cached + tokens.size > self.capacity:
            raise StateError(f"{tokens.size} tokens after {cached} do not fit into a cache of {self.capacity}")
        if tokens.size == 1:
            self._bind_decode(int(tokens[0]), cached)
        else:
            self._bind_prefill(tokens, cached)
            self._gives_all = self.model.session.bind_wanted(self._binding, every=every)
        if self._ones is not None:
            shape = [self.rows, cached + tokens.size]
            self._binding.bind_input(self._mask, "cpu", 0, self._ones.dtype.type, shape, self._ones.ctypes.data)
        self._total = cached + tokens.size
        self._is_short = tokens.size <= SHORT
        if self._bound_extras != self.extras.version:
            self._bind_extras()
        for name in self._other_outputs:
            self._binding.bind_output(name, "cpu")

    def run(self) -> None:
        """Run the model over what is bound; keys and values land in the cache."""
        self._ran = True
        plain = self._is_short and not self.extras.has_options
        if plain and not self._is_bound_for_decode:
            plain = not self.terminated
        options = None if plain else self.extras.options
        self.model.session.inference.run_with_iobinding(self._binding, options)

    def read_logits(self) -> NDArray[np.float32]:
        """Logits of the last position, [V] float32: a view that the next run overwrites."""
        logits = self._last_logits()[0, -1]
        row: NDArray[np.float32] = logits if logits.dtype == np.float32 else logits.astype(np.float32)
        return row

    def read_all_logits(self) -> NDArray[np.float32]:
        """[S, V] float32 logits of every position, or fewer of the last ones; the next run overwrites them."""
        rows: NDArray[np.float32] = self._last_logits()[0].astype(np.float32, copy=False)
        return rows

    def output(self, name: str, length: int) -> NDArray[Any]:
        """A copy of one output of the last run: logits [1, S or 1, V], or keys or values of `length` tokens."""
        names = self.model.config.model.decoder.outputs
        if not self._ran:
            raise StateError(unknown_output(name, ()))
        if name == self._logits:
            self._complete_logits()
            return np.array(self._last_logits())
        if name in self._other_outputs:
            return np.array(self._binding.get_outputs()[self._other_outputs.index(name)].numpy())
        for layer in range(self.cache.layout.num_layers):
            if name == names.present_key_names % layer:
                return self.cache.keys(layer)[:, :, :length].copy()
            if name == names.present_value_names % layer:
                return self.cache.values(layer)[:, :, :length].copy()
        known = [self._logits, names.present_key_names % 0, names.present_value_names % 0]
        raise ArgumentError(unknown_output(name, known))

    def take_prefix(self, source: DecoderState, length: int) -> None:
        """Hold the first `length` tokens that `source` holds."""
        self.cache.copy_prefix(source.cache, length)
        self._gives_all = True  # its last run cannot be run again: it read after another beginning

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last run: [1, S] tokens, their places or the mask, an extra one, or the cache as
        it is after the run, [1, kv_heads, tokens, head_dim]."""
        inputs = self.model.config.model.decoder.inputs
        known = dict(self._bound) if self._ran else {}
        if self._ran and self._ones is not None:
            known[self._mask] = self._ones[:, : self._total]
        for layer in range(self.cache.layout.num_layers if self._ran else 0):
            known[inputs.past_key_names % layer] = self.cache.keys(layer)[:, :, : self._total]
            known[inputs.past_value_names % layer] = self.cache.values(layer)[:, :, : self._total]
        if name not in known:
            raise ArgumentError(unknown_input(name, known))
        return np.array(known[name])

    def _complete_logits(self) -> None:
        """Run once more over what is bound if logits were left out; the cache gets the numbers that it has."""
        if not self._gives_all:
            gives_all = self.model.session.bind_wanted(self._binding, every=True)
            self._binding.bind_output(self._logits, "cpu")
            self.run()
            self._gives_all = gives_all

    def _last_logits(self) -> NDArray[Any]:
        """[B, S or 1, V]; the logits are bound last."""
        if self._is_bound_for_decode:
            return self._decode_logits
        logits: NDArray[Any] = self._binding.get_outputs()[-1].numpy()
        return logits

    def _bind_decode(self, token: int, cached: int) -> None:
        """One new token: the same buffers every time."""
        self._decode_ids[0, 0] = token
        if self._decode_positions is not None:
            self._decode_positions[0, 0] = cached
        if self._is_bound_for_decode:
            return
        bind_input(self._binding, self._ids, self._decode_ids)
        if self._decode_positions is not None:
            bind_input(self._binding, self._positions, self._decode_positions)
        bind_output(self._binding, self._logits, self._decode_logits)
        self._remember(self._decode_ids, self._decode_positions)
        self._is_bound_for_decode = self._gives_all = True

    def _bind_prefill(self, tokens: NDArray[np.int32], cached: int) -> None:
        """Several new tokens: buffers of their own size, logits where onnxruntime puts them."""
        ids = tokens.astype(self.model.session.inputs[self._ids].dtype).reshape(1, -1)
        positions = self._positions_buffer(tokens.size)
        self._kept = [ids] if positions is None else [ids, positions]
        bind_input(self._binding, self._ids, ids)
        if positions is not None:
            positions[0] = np.arange(cached, cached + tokens.size)
            bind_input(self._binding, self._positions, positions)
        self._binding.bind_output(self._logits, "cpu")
        self._remember(ids, positions)
        self._is_bound_for_decode = False

    def _bind_extras(self) -> None:
        """Inputs that the caller gave."""
        self.extras.bind(self._binding)
        self._bound_extras = self.extras.version

    def _remember(self, ids: NDArray[Any], positions: NDArray[Any] | None) -> None:
        self._bound = {self._ids: ids} | self.extras.used
        if positions is not None:
            self._bound[self._positions] = positions

    def _bind_cache(self) -> Any:
        """A binding with the cache as past and as present; making one costs milliseconds, so there is one."""
        binding = self.model.session.inference.io_binding()
        names = self.model.config.model.decoder
        for name in self._other_outputs:
            binding.bind_output(name, "cpu")
        for layer in range(self.cache.layout.num_layers):
            keys, values = self.cache.keys(layer), self.cache.values(layer)
            bind_input(binding, names.inputs.past_key_names % layer, keys)
            bind_input(binding, names.inputs.past_value_names % layer, values)
            bind_output(binding, names.outputs.present_key_names % layer, keys)
            bind_output(binding, names.outputs.present_value_names % layer, values)
        return binding

    def _positions_buffer(self, new_tokens: int) -> NDArray[Any] | None:
        info = self.model.session.inputs.get(self._positions)
        return None if info is None else np.zeros((self.rows, new_tokens), info.dtype)
