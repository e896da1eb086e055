"""Prompts read window by window (model.decoder.sliding_window with slide_inputs), as graphs with fixed sizes need it.

A prompt is filled up with the padding token to whole windows, at its beginning, or at its end where alignment is
"left"; what it is filled up with stays in the sequence, as in onnxruntime-genai. Every run over a window has a mask
over the whole context, filled from its end. Then tokens are read one by one. Nothing can be taken back.

The cache grows, has room for max_length tokens from the start (past_present_share_buffer), or, where the graph keeps it
in 8 bits and slide_key_value_cache is on, slides: the past is always as long as the context less what is new.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.config import Config
from genai_lab.errors import StateError
from genai_lab.models.extras import RunExtras
from genai_lab.models.graph import past_names, past_shape, token_inputs
from genai_lab.models.growing import check_given, present_of
from genai_lab.models.last_run import LastRun, in_numbers
from genai_lab.models.model import Model
from genai_lab.models.places import Blind
from genai_lab.models.session import Arrays, TensorInfo
from genai_lab.models.token_feeds import shaped

ONE_ROW = (
    "Batch beam size must be 1 for sliding a window over input_ids; got {rows} rows (batch_size x num_beams). Make one "
    "generator per prompt, with num_beams=1"
)


def slides_inputs(config: Config) -> bool:
    """Whether prompts are read window by window; without a word about it they are."""
    window = config.model.decoder.sliding_window
    return window is not None and bool(window.get("slide_inputs", True))


class WindowedState(Blind, LastRun):
    """One sequence, read window by window.

    Args:
        model: a loaded model with a sliding_window section.
        capacity: tokens, prompt and padding included.

    Raises:
        StateError: the window does not go with the context.
    """

    def __init__(self, model: Model, capacity: int) -> None:
        self.model, self.capacity, self.graph = model, capacity, model.graph.begin()
        self.extras = RunExtras(self.graph, model.config)
        window = model.config.model.decoder.sliding_window or {}
        self.size, self._pad_value = int(window.get("window_size", 0)), int(window.get("pad_value", 0))
        self._fills_end = window.get("alignment", "right") == "left"
        self.past_names = past_names(self.graph, model.config)
        slides = bool(window.get("slide_key_value_cache", True))
        infos = [self.graph.inputs[name] for name in self.past_names]
        self._sliding = slides and bool(infos) and all(info.dtype == np.uint8 for info in infos)
        self._shares = not self._sliding and model.config.search_options().past_present_share_buffer
        self._pending: list[NDArray[np.int32]] = []  # windows, or one token
        self._waiting: NDArray[np.int32]  # of a prompt that comes in parts: what fills no window yet
        self._place: Place
        self._past: Arrays
        self._held: int  # tokens that were read
        self._check_sizes()
        self.clear()

    def admit(self, tokens: NDArray[np.int32], length: int) -> NDArray[np.int32]:
        """The prompt, filled up to whole windows. There can be one only."""
        if length:
            raise StateError(
                "append_tokens: this model reads its prompt window by window, once; make a new generator for the next "
                "one, with the text so far before it"
            )
        self.clear()
        room = -tokens.size % self.size
        filled = np.pad(tokens, (0, room) if self._fills_end else (room, 0), constant_values=self._pad)
        self._place = Place(filled, self.size, self._pad, self.model.config.model.context_length)
        return filled.astype(np.int32)

    def prepare(self, tokens: NDArray[np.int32], cached: int, *, every: bool = False) -> None:
        """Take [S] new tokens after `cached` ones: parts of the prompt, or one token. `every` changes nothing."""
        if cached + tokens.size > self.capacity:
            raise StateError(f"{tokens.size} tokens after {cached} do not fit into a cache of {self.capacity}")
        if cached >= self._place.prompt_length:
            self._pending = [tokens[n : n + 1] for n in range(tokens.size)]
            return
        tokens = np.concatenate([self._waiting, tokens])
        whole = tokens.size - tokens.size % self.size
        self._pending = [tokens[start : start + self.size] for start in range(0, whole, self.size)]
        self._waiting = tokens[whole:]

    def run(self) -> None:
        """Run over every window, or over the token."""
        self.extras.check_complete()
        for tokens in self._pending:
            self._run(tokens)

    def read_logits(self) -> NDArray[np.float32]:
        """[V] of the last token that is no padding."""
        rows = self.read_all_logits()
        row: NDArray[np.float32] = rows[min(self._place.last_row, rows.shape[0] - 1)]
        return row

    def read_all_logits(self) -> NDArray[np.float32]:
        """[S, V] float32 logits of every position of the last run, or [1, V] of the last."""
        if not self._outputs:
            return np.zeros((1, self.model.vocab_size), np.float32)
        name = self.model.config.model.decoder.outputs.logits
        logits = in_numbers(self._outputs[name], self.graph.outputs[name])
        rows: NDArray[np.float32] = logits[0].astype(np.float32, copy=False)
        return rows

    def take_prefix(self, source: WindowedState, length: int) -> None:
        """Hold what `source` holds; a part of it cannot be held."""
        if length and length != source._held:
            raise StateError(
                f"fork: a prompt read window by window holds {source._held} tokens and cannot be cut to {length}; fork "
                "where the generator is now"
            )
        if length:
            self._place, self._held = source._place.copy(), source._held
            self._past, self._outputs, self._waiting = dict(source._past), source._outputs, source._waiting

    def rewind(self, length: int) -> int:
        """The text was cut to `length` tokens; only nothing can be gone back to."""
        if length == 0:
            self.clear()
        elif length < self._held:
            raise StateError(
                f"WindowedPositionInputs does not support RewindTo({length}): windows that were read cannot be taken "
                "back; rewind_to(0) and append, or make a new generator"
            )
        return length

    def snapshot(self) -> None:
        """Nothing to remember: only the beginning can be gone back to."""

    def clear(self) -> None:
        """Forget every token."""
        inputs, config = self.graph.inputs, self.model.config
        self._past = {name: self._empty(inputs[name], name) for name in self.past_names}
        self._place = Place(np.zeros(0, np.int32), self.size, self._pad, config.model.context_length)
        self._waiting, self._held = np.zeros(0, np.int32), 0
        self._feeds, self._outputs = {}, {}

    # ---- inside -------------------------------------------------------------------------------------------------

    @property
    def _pad(self) -> int:
        return self.model.config.model.pad_token_id

    def _check_sizes(self) -> None:
        context = self.model.config.model.context_length
        if self.size < 1 or (self._sliding and self.size < 2):
            least = 2 if self._sliding else 1
            raise StateError(
                f"sliding_window.window_size is {self.size}, allowed is {least} or more (genai_config.json)"
            )
        if self._sliding and context < 2 * self.size:
            raise StateError(
                f"Invalid sliding window configuration: context_length ({context}) must be greater than or equal to "
                f"2 * sliding_window.window_size (2 * {self.size})"
            )

    def _run(self, tokens: NDArray[np.int32]) -> None:
        is_prompt = self._held < self._place.prompt_length
        if self._sliding and self._held and not is_prompt and self._held == self._place.prompt_length:
            self._past = {name: self._slid(name, value, 1) for name, value in self._past.items()}
        elif self._sliding and self._held:
            self._past = {name: self._slid(name, value, tokens.size) for name, value in self._past.items()}
        self._place.advance(tokens)
        self._feeds = self._past | self._token_feeds(tokens) | self.extras.used
        is_last = self._held + tokens.size >= self._place.prompt_length
        extras = self.extras
        outputs = self.graph.run(
            self._feeds, extras.options, is_prompt=is_prompt, needs_logits=is_last, weights=extras.weights
        )
        if is_last:
            logits = self.model.config.model.decoder.outputs.logits
            check_given(outputs, self.past_names, logits, is_prompt)
        if not self._sliding:
            self._past = {past: present_of(past, present, outputs) for past, present in self.past_names.items()}
        if self._shares:
            self._feeds |= self._past  # to a caller past and present are the same memory
        self._outputs, self._held = outputs, self._held + tokens.size

    def _token_feeds(self, tokens: NDArray[np.int32]) -> Arrays:
        place, names, known = self._place, token_inputs(self.model.config), self.graph.inputs
        values: dict[str, Any] = {
            "input_ids": tokens[None],
            "attention_mask": place.mask[None],
            "position_ids": place.positions[None],
            "past_sequence_length": place.past,
            "total_sequence_length": self.capacity,
        }
        return {
            names[kind]: shaped(value, known[names[kind]]) for kind, value in values.items() if names[kind] in known
        }

    def _empty(self, info: TensorInfo, name: str) -> NDArray[Any]:
        """The past before the first window."""
        config = self.model.config
        if not self._sliding:
            room = self.capacity if self._shares else 0
            return np.zeros(past_shape(config, info, 1, room), info.dtype)
        decoder, before = config.model.decoder, config.model.context_length - self.size
        heads = decoder.num_key_value_heads or decoder.num_attention_heads
        shape = [heads, 1, before, decoder.head_size]
        if self._token_axis(name) == 3:
            shape = [heads, 1, decoder.head_size, before]
        return np.full(shape, self._pad_value, info.dtype)

    def _token_axis(self, name: str) -> int:
        """Keys [heads, 1, head_size, tokens], values [heads, 1, tokens, head_size]."""
        pattern = self.model.config.model.decoder.inputs.past_key_names
        return 3 if any(name == pattern % layer for layer in range(len(self.past_names))) else 2

    def _slid(self, name: str, past: NDArray[Any], new: int) -> NDArray[Any]:
        """The past and what came behind it, as long as the context less `new` tokens."""
        axis = self._token_axis(name)
        both = np.concatenate([past, self._outputs[self.past_names[name]]], axis=axis)
        length = self.model.config.model.context_length - new
        return np.ascontiguousarray(both.take(range(both.shape[axis] - length, both.shape[axis]), axis=axis))


class Place:
    """What the inputs beside the ids say about where a run is.

    Args:
        prompt: [n] a whole number of windows, padding included.
        size: tokens of a window.
        pad: the padding token.
        context: numbers in the mask.
    """

    def __init__(self, prompt: NDArray[np.int32], size: int, pad: int, context: int) -> None:
        self.prompt_length, self._size, self._pad, self._context = prompt.size, size, pad, context
        paddings = np.flatnonzero(prompt == pad)
        self._unpadded = int(paddings[0]) if paddings.size else prompt.size
        self.mask = np.zeros(context, np.int64)  # [context]
        self.positions = np.zeros(size, np.int64)  # [S] of the last run
        self.past = -1
        self.last_row = 0  # of the logits of the last run: that of the last token that is no padding
        self._front = context - 1  # index of the mask's last 0
        self._read = 0

    def copy(self) -> Place:
        """Another one here."""
        twin = Place(np.zeros(0, np.int32), self._size, self._pad, self._context)
        twin.__dict__.update(self.__dict__)
        twin.mask = self.mask.copy()
        return twin

    def advance(self, tokens: NDArray[np.int32]) -> None:
        """Tokens [S] are read: a window of the prompt, or one that was generated."""
        real = tokens != self._pad
        if self._read == 0:
            self.mask[self._context - tokens.size :] = real
            self.positions = np.where(real, np.cumsum(real) - 1, 0)
            first = int(np.flatnonzero(real)[0]) if real.any() else tokens.size
            self._front = self._context - tokens.size + first - 1
        else:
            self.mask[max(self._front - tokens.size + 1, 0) : self._front + 1] = 1
            self._front = max(self._front - tokens.size, 0)
            self.positions = self.positions[-1] + 1 + np.arange(tokens.size)
        if self._read < self.prompt_length:
            self.past += tokens.size
            self.last_row = int(np.flatnonzero(real)[-1]) if real.any() else tokens.size - 1
        else:
            self.past = self._unpadded if self._read == self.prompt_length else self.past + 1
            self.last_row = 0
        self._read += tokens.size
