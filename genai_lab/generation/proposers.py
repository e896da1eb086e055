"""Who proposes tokens for a target model to check: the text so far (n-grams), or a smaller model (the draft)."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter_ns
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Chooser, Place, process
from genai_lab.decoding.history import Ahead
from genai_lab.decoding.speculation import NgramLookup, Proposal, SpeculativeOptions, SpeculativeStats
from genai_lab.models import Model, make_one
from genai_lab.models.chunks import chunk_stops
from genai_lab.sampling import SamplingMode
from genai_lab.sampling.sampler import Candidates, filter_candidates
from genai_lab.tracing import NULL


class Proposer(Protocol):
    """Guesses what comes next."""

    def propose(self, text: NDArray[np.int32], answer_start: int, count: int) -> Proposal: ...
    def read(self, text: NDArray[np.int32]) -> None: ...  # a prompt was appended; text is everything so far
    def round_ended(self, text: NDArray[np.int32]) -> None: ...  # what was decided from a proposal is handed out
    def rewind(self, length: int) -> None: ...  # the text was cut to `length`


class NgramProposer:
    """Proposes what followed the last tokens when they occurred before (og option ngram_size)."""

    def __init__(self, options: SpeculativeOptions, stats: SpeculativeStats) -> None:
        self._options, self._stats = options, stats
        self._lookup = NgramLookup(options.ngram_size)

    def propose(self, text: NDArray[np.int32], _answer_start: int, count: int) -> Proposal:
        """At most `count` tokens; none when the last ones never occurred before."""
        stats, chained = self._stats, self._options.ngram_chained_lookup
        self._sync(text)
        start = perf_counter_ns()
        tokens = self._lookup.propose(count, chained=chained)
        stats.ngram_lookup_hits += bool(tokens)
        stats.ngram_lookup_misses += not tokens
        stats.ngram_lookup_tokens_proposed += len(tokens)
        by_chain = max(0, len(tokens) - 1) if chained else 0
        stats.ngram_chained_tokens_proposed += by_chain
        stats.total_ngram_lookup_ms += (perf_counter_ns() - start) / 1e6
        return Proposal(tuple(tokens), chained=by_chain)

    def read(self, text: NDArray[np.int32]) -> None:
        """Nothing to do: the text is looked at when something is proposed."""

    def round_ended(self, text: NDArray[np.int32]) -> None:
        """Know the new tokens."""
        self._sync(text)

    def rewind(self, _length: int) -> None:
        """What was cut is forgotten."""
        self._lookup.clear()

    def _sync(self, text: NDArray[np.int32]) -> None:
        start = perf_counter_ns()
        synced = self._lookup.sync(text.tolist())
        self._stats.ngram_history_syncs += synced > 0
        self._stats.ngram_history_tokens_synced += synced
        self._stats.total_ngram_history_sync_ms += (perf_counter_ns() - start) / 1e6


class DraftProposer:
    """Lets a smaller model write on, as the target would be asked to: the same processors, settings and random stream.

    Args:
        draft: a model with the target's vocabulary.
        capacity: tokens that its cache holds.
        chooser: the target's.
    """

    def __init__(self, draft: Model, capacity: int, chooser: Chooser, stats: SpeculativeStats) -> None:
        self._state, self._stats = make_one(draft, capacity), stats
        self._chooser = replace(chooser, scratch=None)
        self._draws = chooser.mode is SamplingMode.SAMPLE and chooser.sampler is None
        self._known = np.zeros(0, np.int32)  # the tokens in its cache

    def propose(self, text: NDArray[np.int32], answer_start: int, count: int) -> Proposal:
        """`count` tokens."""
        tokens: list[int] = []
        drawn: list[Candidates] = []
        for _ in range(count):
            ahead = Ahead(np.append(text, np.array(tokens, np.int32)), answer_start)
            logits = self._read(ahead.tokens)
            scores, _ = process(logits, ahead, self._chooser, _NOWHERE)
            if not self._draws:
                tokens.append(int(scores.argmax()))
                continue
            candidates = filter_candidates(scores, self._chooser.settings)
            drawn.append(candidates)
            tokens.append(int(candidates.ids[self._chooser.stream.draw(candidates.weights)]))
        return Proposal(tuple(tokens), tuple(drawn) if self._draws else None)

    def read(self, text: NDArray[np.int32]) -> None:
        """Read a prompt."""
        self._read(text)

    def round_ended(self, text: NDArray[np.int32]) -> None:
        """Nothing to do: the cache is brought up to the text when something is proposed."""

    def rewind(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self._known = self._known[:length]

    def _read(self, text: NDArray[np.int32]) -> NDArray[np.float32]:
        """Bring the cache up to `text`; logits [V] of its last token."""
        same = min(text.size - 1, self._known.size)
        different = np.flatnonzero(text[:same] != self._known[:same])
        cached = int(different[0]) if different.size else same
        for stop in chunk_stops(cached, text.size):
            self._state.prepare(text[cached:stop], cached)
            self._state.run()
            cached = stop
            self._stats.draft_forward_passes += 1
        self._known = text.copy()
        return self._state.read_logits()


_NOWHERE = Place(NULL, 0, 0)
