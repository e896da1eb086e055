"""Beam search in a generator (og option num_beams): several texts are continued side by side, the best are kept.

Rows are laid out prompt by prompt, `num_beams` each. `sampling.beam` decides; this module runs the model, moves the
cache's rows to where their continuation is, and hands out the results.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.config import SearchOptions
from genai_lab.decoding import Chooser
from genai_lab.decoding.history import Ahead
from genai_lab.decoding.prompts import check_leaves_room, padded_rows, without_padding
from genai_lab.errors import StateError
from genai_lab.generation.searches import SeveralSequences
from genai_lab.models import Model, make_rows
from genai_lab.sampling.beam import BeamSearch, Candidate, Hypothesis
from genai_lab.tracing import Tracer
from genai_lab.types import FinishReason, Tensor


class Beams(SeveralSequences):
    """The search of a generator with num_beams > 1.

    Args:
        model, options: what runs, and how.
        chooser: its processors are applied to every beam's logits; beam search draws nothing.
    """

    def __init__(self, model: Model, options: SearchOptions, chooser: Chooser) -> None:
        self.model, self.options, self._chooser = model, options, chooser
        self._count, self._prompts = options.num_beams, options.batch_size
        self._state = make_rows(model, self._prompts * self._count, options.max_length)
        self._pad = model.config.model.pad_token_id
        self._next = np.zeros(self._prompts * self._count, np.int32)
        self._searches: list[BeamSearch] = []
        self._rows: list[NDArray[np.int32]] = []  # [prompts * num_beams] each beam's tokens, no padding, no end token
        self._shown: list[list[int]] = []  # [prompts] the prompts as they came, with their padding
        self._prompt_lengths: list[int] = []  # [prompts] without it
        self._logits: NDArray[np.float32] | None = None  # [prompts * num_beams, V]
        self._length = 0
        self._stopped: FinishReason | None = None

    @property
    def token_count(self) -> int:
        """Tokens of a beam as the caller sees it: the padded prompt, and one for every step."""
        return self._length

    @property
    def finish(self) -> FinishReason | None:
        """EOS when every prompt's search is over, MAX_SESSION_TOKENS at max_length, None before."""
        if self._searches and all(search.done for search in self._searches):
            return FinishReason.EOS
        return self._stopped

    def append(self, tokens: ArrayLike | Tensor, _tracer: Tracer) -> None:
        """The prompts, [prompts, n] or flat; once."""
        if self._length:
            raise StateError(
                "append_tokens: beam search reads its prompt once; make a new generator to go on from here"
            )
        given = padded_rows(tokens, self._prompts, self.model.vocab_size)
        check_leaves_room(given, self.options.max_length)
        prompts = without_padding(given, self._pad)
        rows = [own for own in prompts for _ in range(self._count)]
        try:
            self._state.read_rows(rows, self.options.chunk_size)
        except Exception:
            self._state.clear()
            raise
        eos, options = self.model.config.model.eos_token_ids, self.options
        self._searches = [
            BeamSearch(self._count, frozenset(eos), options.length_penalty, options.early_stopping) for _ in prompts
        ]
        self._rows, self._length = rows, given.shape[1]
        self._prompt_lengths = [own.size for own in prompts]
        self._shown = [list(row) for row in given.tolist()]
        self._next = np.repeat(given[:, -1], self._count)
        self._logits = self._state.last_logits()

    def generate(self, tracer: Tracer) -> None:
        """One step of every prompt's search that goes on."""
        logits = self.logits(tracer)
        found = {p: self._candidates(p, logits) for p, search in enumerate(self._searches) if not search.done}
        parents, tokens = np.arange(len(self._rows)), np.full(len(self._rows), self._pad, np.int32)
        for prompt, candidates in found.items():
            step = self._searches[prompt].advance(candidates, self._of(prompt))
            first = prompt * self._count
            for beam, candidate in enumerate(step.chosen):
                parents[first + beam], tokens[first + beam] = first + candidate.parent, candidate.token
        self._move(parents.tolist())
        live = [not self._searches[row // self._count].done for row in range(len(self._rows))]
        self._rows = [
            np.append(self._rows[parent], tokens[row]) if live[row] else self._rows[row]
            for row, parent in enumerate(parents)
        ]
        self._next, self._logits, self._length = tokens, None, self._length + 1
        if self._length >= self.options.max_length:
            self._stopped = FinishReason.MAX_SESSION_TOKENS

    def logits(self, _tracer: Tracer) -> NDArray[np.float32]:
        """[prompts * num_beams, V] logits that the next step looks at."""
        if self._logits is None:
            self._state.decode(self._next)
            self._logits = self._state.last_logits()
        return self._logits

    def set_logits(self, logits: NDArray[np.float32]) -> None:
        """Replace them, [prompts * num_beams, V]."""
        if self._logits is None:
            raise StateError("set_logits: no logits are computed yet; call append_tokens or get_logits first")
        self._logits = logits.reshape(self._logits.shape).copy()

    def sequence(self, index: int) -> NDArray[np.int32]:
        """[n] the index-th result: prompt by prompt, `num_return_sequences` each, best first. While the search goes on,
        the texts that lead."""
        prompt, place = divmod(index, self.options.num_return_sequences)
        if not self._searches:
            return np.zeros(0, np.int32)
        text = self.results(prompt)[place]
        generated = text.tokens[self._prompt_lengths[prompt] :]
        return np.concatenate([np.array(self._shown[prompt], np.int32), generated])

    def results(self, prompt: int) -> list[Hypothesis]:
        """The best texts of one prompt with their scores, best first."""
        return self._searches[prompt].results(self._of(prompt), self.options.num_return_sequences)

    def rewind(self, length: int, _tracer: Tracer) -> None:
        """Not possible: the beams that were given up are gone."""
        raise StateError(
            f"rewind_to({length}): beam search cannot go back, the texts that it gave up are gone; make a new generator"
        )

    def stop(self, _tracer: Tracer) -> None:
        """End the search here."""
        self._stopped = self._stopped or FinishReason.CANCELLED

    # ---- inside -------------------------------------------------------------------------------------------------

    def _of(self, prompt: int) -> list[NDArray[np.int32]]:
        return self._rows[prompt * self._count : (prompt + 1) * self._count]

    def _candidates(self, prompt: int, logits: NDArray[np.float32]) -> list[Candidate]:
        first = prompt * self._count
        scores = logits[first : first + self._count].copy()
        for beam, row in enumerate(self._of(prompt)):
            for processor in self._chooser.processors:
                processor(scores[beam], Ahead(row, self._prompt_lengths[prompt]))
        return self._searches[prompt].candidates(scores)

    def _move(self, parents: list[int]) -> None:
        """Rows of the cache follow their beams. Only what two rows do not share is copied."""
        begin = [_common(self._rows[row], self._rows[parent]) for row, parent in enumerate(parents)]
        held = self._state.lengths
        self._state.reorder(parents, [min(b, int(held[parent])) for b, parent in zip(begin, parents, strict=True)])


def _common(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    """How many tokens both begin with."""
    length = min(a.size, b.size)
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if different.size else length
