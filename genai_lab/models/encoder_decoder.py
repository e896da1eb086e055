"""Models with an encoder: the prompt is the encoder's, the answer is the decoder's, which begins with a start token.
Where the encoder reads no text (Whisper's hears) a caller gives its inputs, and the prompt is the decoder's.

The encoder runs once. What it gives goes to the decoder in every step: hidden states, keys and values of its layers
(the cross cache), or outputs that the decoder takes under the same name. The decoder keeps a cache of its own that
grows (T5, BART), or a recurrent state (Marian's SSRU). The start token is in no sequence that a caller sees. What is
appended after the prompt goes to the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, StateError
from genai_lab.models.batch import Reading
from genai_lab.models.extras import RunExtras
from genai_lab.models.graph import past_names, past_shape, row_axis
from genai_lab.models.growing import cut
from genai_lab.models.handed import handed_on
from genai_lab.models.last_run import LastRun, in_numbers
from genai_lab.models.model import Model
from genai_lab.models.places import AnyPlace
from genai_lab.models.session import Arrays
from genai_lab.models.token_feeds import shaped, token_feeds


class EncoderDecoderState(AnyPlace, LastRun):
    """`rows` prompts in the encoder and the answers in the decoder.

    Args:
        model: a loaded model with an encoder.
        rows: sequences.
        capacity: tokens per row, prompt included.
    """

    def __init__(self, model: Model, rows: int, capacity: int) -> None:
        if model.encoder is None:
            raise AssertionError("a model with an encoder")
        self.model, self.encoder, self.graph = model, model.encoder, model.graph
        self.rows, self.capacity = rows, capacity
        names = model.config.model.decoder.inputs
        self.past_names = past_names(self.graph, model.config)
        self._states, self._mask_name = names.rnn_states_prev, names.encoder_attention_mask
        self.is_recurrent = self._states in self.graph.inputs
        self._ids = ((model.config.model.encoder or {}).get("inputs", {})).get("input_ids", "input_ids")
        self._encodes_text = self._ids in self.encoder.inputs
        self.handed = handed_on(self.encoder, self.graph, model.config)
        managed = (*self.handed, self._mask_name, self._states)
        self.extras = RunExtras(self.graph, model.config, managed, self.encoder.preset)
        self._prompts: list[NDArray[np.int32]]  # [rows] what the encoder reads
        self._encoded: bool  # whether it has
        self._pending: list[int]  # tokens of a single row that the decoder is to read
        self._from_encoder: Arrays
        self._cross_mask: NDArray[np.bool_]  # [rows, S] False: padding
        self._logits: NDArray[np.float32]  # [rows, V]
        self._past: Arrays  # of the decoder
        self._steps: int  # tokens that the decoder has read, the start token among them
        self._history: list[NDArray[Any]]  # [steps] the recurrent state after each, to go back to
        self.clear()

    # ---- one sequence -------------------------------------------------------------------------------------------

    def admit(self, tokens: NDArray[np.int32], length: int) -> NDArray[np.int32]:
        """Until the encoder has run, tokens are its prompt; later ones are the decoder's."""
        if self._encodes_text and not self._encoded:
            self._prompts = [np.concatenate([self._prompts[0][:length], tokens])]
        return tokens

    def prepare(self, tokens: NDArray[np.int32], cached: int, *, every: bool = False) -> None:
        """Take [S] new tokens of a single row after `cached` ones. The encoder waits for the whole of its prompt.
        `every` changes nothing."""
        prompt, end = self._prompts[0].size, cached + tokens.size
        if end > self.capacity:
            raise StateError(f"{tokens.size} tokens after {cached} do not fit into {self.capacity}")
        answer = tokens[max(prompt - cached, 0) :].tolist()
        if not self._encodes_text:
            self._back_to(cached)
            self._pending = answer
        elif self._encoded and cached >= prompt:
            self._back_to(cached - prompt + 1)
            self._pending = answer
        else:
            self._back_to(0)
            self._pending = [self._start_token, *answer] if end >= prompt else []

    def run(self) -> None:
        """Encode the prompt if that is to do, and run the decoder over what was taken, token by token."""
        if self._pending and not self._encoded:
            self._encode()
        for token in self._pending:
            self._decode(np.array([token], np.int32))

    def read_logits(self) -> NDArray[np.float32]:
        """[V] of the single row's last token."""
        row: NDArray[np.float32] = self._logits[0]
        return row

    def read_all_logits(self) -> NDArray[np.float32]:
        """[1, V] of the single row's last token."""
        return self._logits

    def take_prefix(self, source: EncoderDecoderState, length: int) -> None:
        """Hold the first `length` tokens that `source` holds."""
        self._prompts, self._encoded = source._prompts, source._encoded
        self._from_encoder, self._cross_mask = source._from_encoder, source._cross_mask
        self._past, self._history, self._steps = dict(source._past), list(source._history), source._steps
        self.rewind(length)

    def rewind(self, length: int) -> int:
        """The text was cut to `length` tokens; inside the prompt of an encoder it begins again."""
        if length == 0:
            self._encoded = False
        prompt = self._prompts[0].size if self.rows == 1 else 0
        if length < prompt:
            self._prompts, self._encoded = [self._prompts[0][:length]], False
            self._back_to(0)
            return 0
        return length

    # ---- several ------------------------------------------------------------------------------------------------

    def read_rows(self, prompts: Sequence[NDArray[np.int32]], _chunk_size: int | None) -> list[Reading]:
        """Encode every row's prompt in one run, and run the decoder over the start token; or over the prompts."""
        start = perf_counter_ns()
        self.clear()
        if self._encodes_text:
            self._prompts = list(prompts)
            firsts = [np.full(self.rows, self._start_token, np.int32)]
        else:
            _check_even(prompts)
            firsts = list(np.stack(prompts).T)
        self._encode()
        for tokens in firsts:
            self._decode(tokens)
        return [Reading(tuple(range(self.rows)), start, perf_counter_ns())]

    def last_logits(self) -> NDArray[np.float32]:
        """[rows, V] of every row's last token."""
        return self._logits

    def decode(self, tokens: NDArray[np.int32]) -> None:
        """Read one more token in every row, `tokens` [rows]."""
        self._decode(tokens)

    def reorder(self, parents: Sequence[int], _begin: Sequence[int]) -> None:
        """Row i becomes what row parents[i] was; rows of one prompt share what the encoder gave."""
        for name, value in self._past.items():
            self._past[name] = np.take(value, list(parents), axis=self._row_axis(name, value))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[rows] real tokens in each row."""
        prompts = np.array([prompt.size for prompt in self._prompts], np.int64)
        lengths: NDArray[np.int64] = prompts + max(self._steps - int(self._encodes_text), 0)
        return lengths

    # ---- both ---------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget every token."""
        self._prompts = [np.zeros(0, np.int32)] * self.rows
        self._encoded, self._pending = False, []
        self._cross_mask = np.zeros((self.rows, 0), bool)
        self._logits = np.zeros((self.rows, self.model.vocab_size), np.float32)
        self._from_encoder, self._feeds, self._outputs = {}, {}, {}
        self._begin()

    # ---- inside -------------------------------------------------------------------------------------------------

    @property
    def _start_token(self) -> int:
        model = self.model.config.model
        return model.bos_token_id if self.is_recurrent else model.decoder_start_token_id

    def _row_axis(self, name: str, value: NDArray[Any]) -> int:
        return 1 if name == self._states else row_axis(value.shape)

    def _begin(self) -> None:
        """The decoder before its first step."""
        inputs, config = self.graph.inputs, self.model.config
        shapes = {name: past_shape(config, inputs[name], self.rows, 0) for name in self.past_names}
        if self.is_recurrent:
            layers, _rows, size = inputs[self._states].shape
            hidden = (config.model.encoder or {}).get("hidden_size", 0)
            shapes[self._states] = (
                layers if isinstance(layers, int) else 3,
                self.rows,
                size if isinstance(size, int) else hidden,
            )
        self._past = {name: np.zeros(shape, inputs[name].dtype) for name, shape in shapes.items()}
        self._steps, self._history = 0, []

    def _back_to(self, steps: int) -> None:
        if steps == 0:
            self._begin()
        elif steps < self._steps:
            self._past = {name: self._past_at(name, steps) for name in self._past}
            self._steps = steps
            del self._history[steps:]

    def _past_at(self, name: str, steps: int) -> NDArray[Any]:
        return self._history[steps - 1] if name == self._states else cut(self._past[name], steps)

    def _encode(self) -> None:
        """Run the encoder over every prompt, padded at the end. A recurrent (Marian) model's prompts get the end token
        that its tokenizer leaves to the runtime."""
        model = self.model.config.model
        end = model.eos_token_ids[:1] if self.is_recurrent else ()
        texts = [np.concatenate([prompt, np.array(end, np.int32)]) for prompt in self._prompts]
        width = max(text.size for text in texts)
        ids = np.array([[*text, *[model.pad_token_id] * (width - text.size)] for text in texts], np.int32)
        self._cross_mask = np.array([[True] * text.size + [False] * (width - text.size) for text in texts])
        names = (model.encoder or {}).get("inputs", {})
        tokens = {
            self._ids: ids,
            names.get("attention_mask", "attention_mask"): self._cross_mask,
            names.get("position_ids", "position_ids"): np.arange(width)[None].repeat(self.rows, axis=0),
        }
        inputs = self.encoder.inputs
        feeds = {name: shaped(value, inputs[name]) for name, value in tokens.items() if name in inputs}
        feeds |= {name: self._for_rows(value) for name, value in self.extras.inputs.items() if name in inputs}
        missing = sorted(set(inputs) - set(feeds))
        if missing:
            raise StateError(
                f"Missing Input: {missing[0]}. {self.encoder.filename!r} wants it and nothing gave it; {missing[0]} "
                f"must be provided via SetInputs (generator.set_inputs(tensors)) or "
                f"generator.set_model_input({missing[0]!r}, array), before you append tokens"
            )
        outputs = self.encoder.run(feeds, self.extras.options, weights=self.extras.weights)
        wants = self.graph.inputs
        self._from_encoder = {name: wants[name].wanted(outputs[given]) for name, given in self.handed.items()}
        if self._mask_name in wants:
            self._from_encoder[self._mask_name] = shaped(self._cross_mask, wants[self._mask_name])
        self._encoded = True

    def _for_rows(self, value: NDArray[Any]) -> NDArray[Any]:
        """What a caller gave for every prompt, for every beam of it."""
        count = value.shape[0] if value.ndim else 0
        beams = self.rows // count if count and not self.rows % count else 1
        return value.repeat(beams, axis=0) if beams > 1 else value

    def _decode(self, tokens: NDArray[np.int32]) -> None:
        """One step of the decoder over `tokens` [rows]."""
        self.extras.check_complete()
        mask = np.ones((self.rows, self._steps + 1), bool)
        follows = token_feeds(self.graph, self.model.config, tokens[:, None], mask)
        self._feeds = self._past | follows | self._from_encoder | self.extras.used
        outputs = self.graph.run(self._feeds, self.extras.options, weights=self.extras.weights)
        names = dict(self.past_names)
        if self.is_recurrent:
            names[self._states] = self.model.config.model.decoder.outputs.rnn_states
        self._past = {past: outputs[present] for past, present in names.items()}
        self._steps, self._outputs = self._steps + 1, outputs
        if self.is_recurrent and self.rows == 1:
            self._history.append(self._past[self._states])
        name = self.model.config.model.decoder.outputs.logits
        logits = in_numbers(outputs[name], self.graph.outputs[name])
        self._logits = logits.reshape(self.rows, -1, self.model.vocab_size)[:, -1].astype(np.float32, copy=False)


def _check_even(prompts: Sequence[NDArray[np.int32]]) -> None:
    """Raises ArgumentError when prompts of a decoder without a mask differ in length."""
    sizes = {prompt.size for prompt in prompts}
    if len(sizes) > 1:
        raise ArgumentError(
            f"append_tokens: the prompts have {sorted(sizes)} tokens; this model's decoder has no mask, so prompts of "
            "one length are allowed. Make one generator per prompt"
        )
