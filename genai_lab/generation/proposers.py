"""Who proposes tokens for a target model to check: the text so far (n-grams), or a smaller model (the draft).

The third, a head on the target's hidden states, is in `mtp_proposer`.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter_ns
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Chooser, Place, Sequence, process
from genai_lab.decoding.history import Guess
from genai_lab.decoding.speculation import NgramLookup, Proposal, SpeculativeOptions, SpeculativeStats
from genai_lab.generation.guided import Grammar, Proposing
from genai_lab.models import Model, OneRow, make_one
from genai_lab.models.chunks import chunk_stops
from genai_lab.sampling import SamplingMode
from genai_lab.sampling.sampler import Candidates, filter_candidates
from genai_lab.tracing import NULL
from genai_lab.tracing.speculation_facts import Proposer as By


class Proposer(Protocol):
    """Guesses what comes next."""

    by: By
    anchors_narrow_rounds: bool  # whether a round of one token reads its last token at once, alone, as og does
    draft: OneRow | None  # a model that takes the inputs and options that a caller gives to the target, too; None: none

    def propose(self, text: Sequence, count: int) -> Proposal: ...
    def read(self, text: Sequence) -> None: ...  # a prompt was appended; text is everything so far
    def target_ran(self, target: OneRow, first: int, count: int) -> None: ...  # over tokens [first, first + count)
    def round_ended(self, text: Sequence) -> None: ...  # what was decided from a proposal is handed out
    def rewind(self, length: int) -> None: ...  # the text was cut to `length`


class NgramProposer:
    """Proposes what followed the last tokens when they occurred before (og option ngram_size), as far as the grammar
    allows it."""

    by = By.NGRAM
    anchors_narrow_rounds = True
    draft: OneRow | None = None

    def __init__(self, options: SpeculativeOptions, stats: SpeculativeStats, grammar: Grammar) -> None:
        self._options, self._stats, self._grammar = options, stats, grammar
        self._lookup = NgramLookup(options.ngram_size)

    def propose(self, text: Sequence, count: int) -> Proposal:
        """At most `count` tokens; none when the last ones never occurred before."""
        stats, chained = self._stats, self._options.ngram_chained_lookup
        self._sync(text)
        made = Proposing(text, count, self._grammar)
        if made.tokens:
            return made.proposal()  # what the grammar forces needs no looking up
        start = perf_counter_ns()
        found = self._lookup.propose(count, chained=chained)
        stats.total_ngram_lookup_ms += (perf_counter_ns() - start) / 1e6
        kept = self._keep(found, made)
        stats.ngram_lookup_hits += bool(found)
        stats.ngram_lookup_misses += not found
        stats.ngram_lookup_tokens_proposed += kept
        by_chain = max(0, kept - 1) if chained else 0
        stats.ngram_chained_tokens_proposed += by_chain
        return made.proposal(chained=by_chain, source=self._lookup.found)

    def _keep(self, found: list[int], made: Proposing) -> int:
        """Propose of `found` what the grammar allows, up to where it forces tokens; returns how many."""
        for kept, token in enumerate(found):
            if not self._grammar.allows(made.guess, token):
                self._stats.ngram_grammar_candidate_rejections += 1
                return kept
            if self._grammar.ends(token):
                return kept
            made.add(token)
            if made.has_forced:
                return kept + 1
        return len(found)

    def read(self, text: Sequence) -> None:
        """Nothing to do: the text is looked at when something is proposed."""

    def target_ran(self, target: OneRow, first: int, count: int) -> None:
        """Nothing to learn from it."""

    def round_ended(self, text: Sequence) -> None:
        """Know the new tokens."""
        self._sync(text)

    def rewind(self, _length: int) -> None:
        """What was cut is forgotten."""
        self._lookup.clear()

    def _sync(self, text: Sequence) -> None:
        start = perf_counter_ns()
        synced = self._lookup.sync(text.tokens.tolist())
        self._stats.ngram_history_syncs += synced > 0
        self._stats.ngram_history_tokens_synced += synced
        self._stats.total_ngram_history_sync_ms += (perf_counter_ns() - start) / 1e6


class Drafting:
    """How a model of its own chooses the tokens that it proposes: as the target would be asked to, with the same
    processors, settings and random stream."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = replace(chooser, scratch=None)
        self.draws = chooser.mode is SamplingMode.SAMPLE and chooser.sampler is None
        self._is_plain = not chooser.processors

    def choose(self, logits: NDArray[np.float32], guess: Guess) -> tuple[int, Candidates | None]:
        """A token from logits [V] after `guess`, and what it was drawn from; None: nothing was drawn."""
        if self._is_plain and not self.draws:
            return int(logits.argmax()), None
        scores, _ = process(logits, guess, self._chooser, _NOWHERE)
        if not self.draws:
            return int(scores.argmax()), None
        candidates = filter_candidates(scores, self._chooser.settings)
        return int(candidates.ids[self._chooser.stream.draw(candidates.weights)]), candidates


class DraftProposer:
    """Lets a smaller model write on.

    Args:
        draft: a model with the target's vocabulary.
        capacity: tokens that its cache holds.
        chooser: the target's.
        stats: where its runs are counted.
        grammar: that its tokens follow.
    """

    by = By.DRAFT
    anchors_narrow_rounds = True

    def __init__(
        self, draft: Model, capacity: int, chooser: Chooser, stats: SpeculativeStats, grammar: Grammar
    ) -> None:
        self._state, self._stats, self._grammar = make_one(draft, capacity), stats, grammar
        self.draft: OneRow | None = self._state
        self._drafting = Drafting(chooser)
        self._known = np.zeros(capacity, np.int32)  # the tokens in its cache ...
        self._held = 0  # ... so many of them

    def propose(self, text: Sequence, count: int) -> Proposal:
        """`count` tokens; fewer where a grammar's answer ends."""
        made = Proposing(text, count, self._grammar)
        self._forget_other(text.tokens)
        while not made.is_full:
            token, candidates = self._drafting.choose(self._read(made.guess.tokens), made.guess)
            if self._grammar.ends(token):
                break
            made.add(token, candidates)
        return made.proposal(draws=self._drafting.draws)

    def read(self, text: Sequence) -> None:
        """Read a prompt."""
        self._forget_other(text.tokens)
        self._read(text.tokens)

    def target_ran(self, target: OneRow, first: int, count: int) -> None:
        """Nothing to learn from it."""

    def round_ended(self, text: Sequence) -> None:
        """Nothing to do: the cache is brought up to the text when something is proposed."""

    def rewind(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self._held = min(self._held, length)

    def _forget_other(self, text: NDArray[np.int32]) -> None:
        """Keep what the cache has in common with `text`, but for its last token, whose logits are wanted."""
        same = min(text.size - 1, self._held)
        different = text[:same] != self._known[:same]
        self._held = int(different.argmax()) if different.any() else same

    def _read(self, text: NDArray[np.int32]) -> NDArray[np.float32]:
        """Read what the cache, a beginning of `text`, does not hold yet; logits [V] of the last token."""
        for stop in chunk_stops(self._held, text.size):
            self._state.prepare(text[self._held : stop], self._held)
            self._state.run()
            self._known[self._held : stop] = text[self._held : stop]
            self._held = stop
            self._stats.draft_forward_passes += 1
        return self._state.read_logits()


_NOWHERE = Place(NULL, 0, 0)
