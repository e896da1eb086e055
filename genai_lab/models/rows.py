"""Many sequences in one model: each has a row of the KV slab. Tokens and lengths in, logits out.

Two kinds of run, as measured best on ONNX Runtime's CPU kernels: one decode run [B, 1] over neighbouring rows of any
lengths, and chunk runs [1, S] of one row. Past and present are the same memory. Bindings are made once per range of
rows: a new one costs milliseconds, a kept one microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError
from genai_lab.models.binding import bind_input, bind_output
from genai_lab.models.extras import RunExtras
from genai_lab.models.graph import other_outputs
from genai_lab.models.model import Model

MASK_STEP = 32  # columns by which a decode run's mask grows: until then its binding stays as it is


@dataclass(slots=True)
class _Decode:
    """What decode runs of one range of B rows reuse."""

    binding: Any
    ids: NDArray[Any]  # [B, 1]
    positions: NDArray[Any] | None  # [B, 1]
    logits: NDArray[Any]  # [B, 1, V], of its own
    bound: NDArray[Any]  # [B, 1, V], where the last run's logits are: there, or where the caller wanted them
    rows: NDArray[Any]  # [B, V], the same
    mask: NDArray[Any] | None = None  # [B, T rounded up]
    lengths: list[int] = field(default_factory=list)  # [B] tokens that each row of the mask shows, but for the new one


class RowsExecutor:
    """Runs a model over rows of a slab that somebody else owns.

    Args:
        model: a loaded decoder-only model.
        slab: [layers, 2, rows, kv_heads, capacity, head_dim], C-contiguous, in the model's cache dtype.
        keeps_others: whether `others` gives what the graph gives beside logits, keys and values.
    """

    def __init__(self, model: Model, slab: NDArray[Any], *, keeps_others: bool = False) -> None:
        layout = model.kv_layout
        self.rows, self.capacity = int(slab.shape[2]), int(slab.shape[4])
        expected = (layout.num_layers, 2, *layout.row_shape(self.rows, self.capacity))
        if slab.shape != expected or slab.dtype != layout.numpy_dtype or not slab.flags.c_contiguous:
            raise ArgumentError(
                f"slab is {slab.dtype}{list(slab.shape)}; allowed is contiguous {layout.dtype}{list(expected)}"
            )
        self.model, self.slab = model, slab
        names, session = model.config.model.decoder, model.session
        self._ids, self._mask, self._positions = (
            names.inputs.input_ids,
            names.inputs.attention_mask,
            names.inputs.position_ids,
        )
        self._logits = names.outputs.logits
        self._ids_dtype = session.inputs[self._ids].dtype
        self._mask_dtype = session.inputs[self._mask].dtype if self._mask in session.inputs else np.dtype(np.int64)
        self._logits_dtype = session.outputs[self._logits].dtype
        self._bindings: dict[tuple[int, int, str], Any] = {}
        self._mask_memory = np.ones(self.capacity, self._mask_dtype)
        self._has_mask = self._mask in session.inputs
        self._bound_extras: dict[int, int] = {}  # {binding: version of the extra inputs in it}
        self._kept: list[NDArray[Any]] = []  # what the last chunk's binding points to
        self._decodes: dict[tuple[int, int], _Decode] = {}
        self.extras = RunExtras(session, model.config)
        self._other_outputs = other_outputs(session, model.config) if keeps_others else ()
        self._last: Any = None  # the binding of the last run

    def decode(
        self,
        first_row: int,
        tokens: Sequence[int] | NDArray[np.int32],
        cached: Sequence[int] | NDArray[np.int64],
        into: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """One token for each of the rows [first_row, first_row + B).

        Args:
            tokens: [B] the rows' new tokens.
            cached: [B] tokens already in each row.
            into: [B, 1, V] memory for the logits, which stay the caller's; a graph of other numbers does not use it.

        Returns:
            [B, V] float32 logits; without `into` the next decode run of the same rows overwrites them.
        """
        kept, lengths = self._decode(first_row, len(tokens)), [int(length) for length in cached]
        self._put_logits(kept, kept.logits if into is None or self._logits_dtype != into.dtype else into)
        # one by one: after a run numpy's code for whole arrays is cold, and takes ten times as long as a few numbers
        for place, token in enumerate(tokens):
            kept.ids[place, 0] = token
        if kept.positions is not None:
            for place, length in enumerate(lengths):
                kept.positions[place, 0] = length
        if self._has_mask:
            self._mask_decode(kept, lengths)
        self._bind_extras(kept.binding)
        self._bind_others(kept.binding)
        options = self.extras.options if self.extras.has_options else None
        self.model.session.inference.run_with_iobinding(kept.binding, options)
        return kept.rows if kept.rows.dtype == np.float32 else kept.rows.astype(np.float32)

    def _put_logits(self, kept: _Decode, target: NDArray[Any]) -> None:
        if target is not kept.bound:
            bind_output(kept.binding, self._logits, target)
            kept.bound, kept.rows = target, target[:, -1]

    def others(self) -> dict[str, NDArray[Any]]:
        """Copies of what the last run gave beside logits, keys and values, such as hidden states [B, S, H]."""
        if self._last is None or not self._other_outputs:
            return {}
        given = self._last.get_outputs()  # these are bound first
        return {name: np.array(given[place].numpy()) for place, name in enumerate(self._other_outputs)}

    @property
    def has_all_logits(self) -> bool:
        """Whether the graph gives the logits of every position, as `every` needs."""
        shape = self.model.session.outputs[self._logits].shape
        return len(shape) == 3 and shape[1] != 1

    def chunk(self, row: int, tokens: NDArray[np.int32], cached: int) -> NDArray[np.float32]:
        """Several tokens [S] of one row after `cached` ones; logits of the last, [V] float32."""
        last: NDArray[np.float32] = self._chunk(row, tokens, cached, every=False)[-1].astype(np.float32, copy=False)
        return last

    def every(self, row: int, tokens: NDArray[np.int32], cached: int) -> NDArray[np.float32]:
        """The same, but the logits of each, [S, V] float32."""
        return self._chunk(row, tokens, cached, every=True).astype(np.float32, copy=False)

    def _chunk(self, row: int, tokens: NDArray[np.int32], cached: int, *, every: bool) -> NDArray[Any]:
        """[S, V], or fewer of the last ones, as the graph gives them."""
        ids = tokens.astype(self._ids_dtype).reshape(1, -1)
        total = cached + tokens.size
        mask = self._mask_memory[:total].reshape(1, total)
        positions = np.arange(cached, total).reshape(1, -1)
        binding = self._binding(row, 1)
        self._bind(binding, ids, mask, positions)
        self._bind_extras(binding)
        self._bind_others(binding)
        self.model.session.bind_wanted(binding, every=every)
        binding.bind_output(self._logits, "cpu")
        self.model.session.inference.run_with_iobinding(binding, self.extras.options)
        logits: NDArray[Any] = binding.get_outputs()[-1].numpy()[0]  # bound last; [1, S or fewer, V]
        return logits

    def _bind_extras(self, binding: Any) -> None:
        """Inputs that the caller gave, once per binding."""
        if self._bound_extras.get(id(binding)) != self.extras.version:
            self.extras.bind(binding)
            self._bound_extras[id(binding)] = self.extras.version

    def _bind_others(self, binding: Any) -> None:
        """Let onnxruntime make room for them anew: their sizes follow from the tokens."""
        self._last = binding
        for name in self._other_outputs:
            binding.bind_output(name, "cpu")

    def _bind(self, binding: Any, ids: NDArray[Any], mask: NDArray[Any], positions: NDArray[np.int64]) -> None:
        session = self.model.session
        self._kept = [ids, mask]
        bind_input(binding, self._ids, ids)
        if self._has_mask:
            bind_input(binding, self._mask, mask)
        if self._positions in session.inputs:
            places = positions.astype(session.inputs[self._positions].dtype)
            self._kept.append(places)
            bind_input(binding, self._positions, places)

    def _decode(self, first_row: int, count: int) -> _Decode:
        """The kept binding of a range of rows with its ids, positions and logits."""
        kept = self._decodes.get((first_row, count))
        if kept is not None:
            return kept
        session, binding = self.model.session, self._binding(first_row, count, "decode")
        ids = np.zeros((count, 1), self._ids_dtype)
        positions = None
        bind_input(binding, self._ids, ids)
        if self._positions in session.inputs:
            positions = np.zeros((count, 1), session.inputs[self._positions].dtype)
            bind_input(binding, self._positions, positions)
        logits = np.empty((count, 1, self.model.vocab_size), self._logits_dtype)
        bind_output(binding, self._logits, logits)
        kept = self._decodes[(first_row, count)] = _Decode(binding, ids, positions, logits, logits, logits[:, -1])
        return kept

    def _mask_decode(self, kept: _Decode, lengths: list[int]) -> None:
        """Ones for what each row holds and its new token, zeros up to the mask's width, which grows in steps: the
        attention kernel takes each row's length from its ones."""
        width = min(-(-(max(lengths) + 1) // MASK_STEP) * MASK_STEP, self.capacity)
        if kept.mask is None or kept.mask.shape[1] != width:
            kept.mask = np.zeros((len(lengths), width), self._mask_dtype)
            kept.lengths = [-1] * len(lengths)
            bind_input(kept.binding, self._mask, kept.mask)
        for place, (length, shown) in enumerate(zip(lengths, kept.lengths, strict=True)):
            if length == shown + 1:
                kept.mask[place, length] = 1
            elif length != shown:
                kept.mask[place, : length + 1] = 1
                kept.mask[place, length + 1 :] = 0
        kept.lengths = lengths

    def _binding(self, first_row: int, count: int, kind: str = "chunk") -> Any:
        """The binding of a range of rows, with the slab as past and as present."""
        found = self._bindings.get((first_row, count, kind))
        if found is not None:
            return found
        self.model.check_appends_in_place()
        names = self.model.config.model.decoder
        binding = self.model.session.inference.io_binding()
        for name in self._other_outputs:  # first, as the logits are last
            binding.bind_output(name, "cpu")
        for layer in range(self.slab.shape[0]):
            parts = (
                (
                    self.slab[layer, 0, first_row : first_row + count],
                    names.inputs.past_key_names,
                    names.outputs.present_key_names,
                ),
                (
                    self.slab[layer, 1, first_row : first_row + count],
                    names.inputs.past_value_names,
                    names.outputs.present_value_names,
                ),
            )
            for part, past, present in parts:
                bind_input(binding, past % layer, part)
                bind_output(binding, present % layer, part)
        binding.bind_output(self._logits, "cpu")
        self._bindings[(first_row, count, kind)] = binding
        return binding
