"""Several prompts in one generator (og option batch_size): each row is chosen and ended as if it were alone.

Prompts come padded to one length. Padding never reaches the model; it only stays where the caller sees it, in
`get_sequence`. As in onnxruntime-genai a row that ended is filled up with the padding token until all have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.config import SearchOptions
from genai_lab.decoding import Chooser, Place, Sequence, StopRule, choose, settle
from genai_lab.decoding.prompts import check_leaves_room, padded_rows, without_padding
from genai_lab.decoding.token_input import NEGATIVE
from genai_lab.errors import StateError
from genai_lab.generation.run_log import RunLog
from genai_lab.generation.searches import SeveralSequences
from genai_lab.models import Model, make_rows
from genai_lab.sampling import Choice, SamplingMode
from genai_lab.tracing import Change, Masking, Tracer
from genai_lab.types import FinishReason, Tensor

Chosen = tuple[Choice, tuple[Change | Masking, ...]]


@dataclass(slots=True)
class Row:
    """One sequence of a batch."""

    sequence: Sequence  # its own tokens: no padding, no end token
    chooser: Chooser
    log: RunLog
    shown: list[int] = field(default_factory=list)  # what the caller sees: padding and end token too
    finish: FinishReason | None = None


class Batch(SeveralSequences):
    """The search of a generator with batch_size > 1.

    Args:
        model, options: what runs, and how.
        choosers: makes the chooser of one row.
        log_of: makes the place in the trace of one row.
    """

    def __init__(
        self,
        model: Model,
        options: SearchOptions,
        choosers: Callable[[], Chooser],
        log_of: Callable[[Sequence], RunLog],
    ) -> None:
        self.model, self.options = model, options
        self._state = make_rows(model, options.batch_size, options.max_length, sees=True)
        self._least = NEGATIVE if model.encoders else 0  # token id
        self._rule = StopRule(frozenset(model.config.model.eos_token_ids), options.max_length)
        self._pad = model.config.model.pad_token_id
        self._rows: list[Row] = []
        for _ in range(options.batch_size):
            sequence = Sequence(options.max_length)
            self._rows.append(Row(sequence, choosers(), log_of(sequence)))
        self._logits: NDArray[np.float32] | None = None  # [rows, V], of each row's last token
        self._started_ns = 0
        self._next = np.zeros(options.batch_size, np.int32)

    @property
    def token_count(self) -> int:
        """Tokens of a row as the caller sees it; all rows are as long."""
        return len(self._rows[0].shown)

    @property
    def finish(self) -> FinishReason | None:
        """Why the whole batch is over: the last row's reason; None while a row goes on."""
        reasons = [row.finish for row in self._rows]
        if any(reason is None for reason in reasons):
            return None
        return next((r for r in reasons if r is not FinishReason.EOS), FinishReason.EOS)

    def append(self, tokens: ArrayLike | Tensor, tracer: Tracer) -> None:
        """The prompts, [rows, n] or flat; once, and again after `rewind(0)`."""
        if self.token_count:
            raise StateError(
                "append_tokens: this generator has several sequences, and their prompts are read already; call "
                "rewind_to(0) and append new ones, or make one generator per conversation to continue it"
            )
        given = padded_rows(tokens, len(self._rows), self.model.vocab_size, self._least)
        check_leaves_room(given, self.options.max_length)
        prompts = without_padding(given, self._pad)
        self._started_ns = perf_counter_ns()
        try:
            places = [self._begin(row, own, tracer) for row, own in zip(self._rows, prompts, strict=True)]
            for what in self._state.encode(np.concatenate(prompts), 0):  # of all rows at once: told with the first
                tracer.stage(places[0].run, places[0].index, what.stage, what.start_ns, what.end_ns, what.n)
            readings = self._state.read_rows(prompts, self.options.chunk_size)
        except Exception:
            for row in self._rows:
                row.log.fail(tracer, "the model run failed while reading appended tokens")
            self._state.forget(0)
            self._clear()
            raise
        for reading in readings:
            for index in reading.rows:
                place, size = places[index], prompts[index].size
                tracer.stage(place.run, place.index, "run_prefill", reading.start_ns, reading.end_ns, size)
        for row, shown in zip(self._rows, given.tolist(), strict=True):
            row.shown = shown
        self._next = given[:, -1].copy()
        self._logits = self._state.last_logits()

    def generate(self, tracer: Tracer) -> None:
        """One token for every row that goes on: all rows choose before any row is changed."""
        logits = self.logits(tracer)
        chosen = self._choose_all(logits, tracer)
        self._next[:] = self._pad
        for index, what in chosen.items():
            row, self._next[index] = self._rows[index], what[0].token
            place = self._place(index, tracer)
            row.finish = settle(what, logits[index], row.sequence, self._rule, place, self._started_ns)
            row.log.generated(tracer, row.finish)
        self._logits = None
        if all(row.finish is FinishReason.EOS for row in self._rows):
            return  # the end token that ends the whole batch is not shown, as that of one sequence is not
        for row, token in zip(self._rows, self._next.tolist(), strict=True):
            row.shown.append(token)
        if self.token_count >= self.options.max_length:
            for row in self._rows:
                row.finish = row.finish or FinishReason.MAX_SESSION_TOKENS

    def logits(self, tracer: Tracer) -> NDArray[np.float32]:
        """[rows, V] logits that the next tokens are chosen from."""
        if self._logits is None:
            self._logits = self._decode(tracer)
        return self._logits

    def set_logits(self, logits: NDArray[np.float32]) -> None:
        """Replace them, [rows, V]."""
        if self._logits is None:
            raise StateError("set_logits: no logits are computed yet; call append_tokens or get_logits first")
        self._logits = logits.reshape(self._logits.shape).copy()

    def sequence(self, index: int) -> NDArray[np.int32]:
        """[n] one row as the caller sees it."""
        return np.array(self._rows[index].shown, np.int32)

    def rewind(self, length: int, tracer: Tracer) -> None:
        """Forget everything, or nothing; a batch cannot be cut to another length."""
        if length == self.token_count > 0:
            return
        if length != 0:
            raise StateError(
                f"rewind_to({length}): this generator has {len(self._rows)} sequences, which end at different places; "
                "only rewind_to(0) is allowed. One generator per conversation can be cut anywhere"
            )
        for row in self._rows:
            row.log.rewound(0, tracer)
        self._clear()

    def stop(self, tracer: Tracer) -> None:
        """End every row here."""
        for row in self._rows:
            if row.finish is None:
                row.finish = FinishReason.CANCELLED
                row.log.generated(tracer, row.finish)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _begin(self, row: Row, own: NDArray[np.int32], tracer: Tracer) -> Place:
        row.sequence.extend(own)
        return row.log.append(tracer, own, 0)

    def _choose_all(self, logits: NDArray[np.float32], tracer: Tracer) -> dict[int, Chosen]:
        """What each row that goes on wants next. All rows draw from one random stream, in their order."""
        stream = self._rows[0].chooser.stream
        before = stream.state if self._rows[0].chooser.mode is SamplingMode.SAMPLE else None
        chosen: dict[int, Chosen] = {}
        try:
            for index, row in enumerate(self._rows):
                if row.finish is None:
                    chosen[index] = choose(logits[index], row.sequence, row.chooser, self._place(index, tracer))
        except Exception:  # a person's processor may raise anything
            if before is not None:
                stream.restore(before)
            raise
        return chosen

    def _decode(self, tracer: Tracer) -> NDArray[np.float32]:
        """Read every row's last token in one run; rows that ended are carried along."""
        self._started_ns = start = perf_counter_ns()
        tokens = np.array([row.shown[-1] for row in self._rows], np.int32)
        self._state.decode(tokens)
        ran = perf_counter_ns()
        for index, row in enumerate(self._rows):
            if row.finish is None:
                place = self._place(index, tracer)
                tracer.stage(place.run, place.index, "run_decode", start, ran)
        return self._state.last_logits()

    def _place(self, index: int, tracer: Tracer) -> Place:
        return self._rows[index].log.place(tracer, int(self._state.lengths[index]))

    def _clear(self) -> None:
        self._state.clear()
        self._logits = None
        self._next[:] = 0
        for row in self._rows:
            row.sequence.rewind(0)
            row.shown, row.finish = [], None
