"""Speculation in a generator: somebody proposes several tokens, the model looks at all of them in one run, and takes
those that it would have written itself, and one more.

A round decides several tokens; the caller gets one per call. Whatever is decided and not handed out yet can be thrown
away: the text is the truth, the cache and the random stream follow it.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.config import SearchOptions
from genai_lab.decoding import Chooser, Hooks, Place, Sequence, StopRule, choose, forward, forward_all, settle
from genai_lab.decoding.history import Guess
from genai_lab.decoding.speculation import AdaptiveWidth, Cooldown, Proposal, SpeculativeOptions, SpeculativeStats
from genai_lab.decoding.token_input import token_array
from genai_lab.errors import StateError
from genai_lab.generation.guided import Grammar
from genai_lab.generation.proposers import Proposer
from genai_lab.generation.run_log import RunLog
from genai_lab.generation.searches import OneSequence
from genai_lab.generation.speculative_round import Round, Times
from genai_lab.generation.verifying import Chosen, Decided, decide
from genai_lab.models import Model, make_one
from genai_lab.models.chunks import chunk_stops
from genai_lab.sampling import EffectiveMode
from genai_lab.tracing import Origin, Tracer
from genai_lab.tracing.speculation_facts import Why
from genai_lab.types import FinishReason, Tensor


class Speculative(OneSequence):
    """The search of a generator with a draft model or an n-gram lookup.

    Args:
        model, options, mode: what runs, and how.
        chooser: turns the target's logits into a token.
        hooks: what a person put into the step.
        speculative: how to speculate.
        stats, proposer: who counts, who proposes.
        grammar: what the proposer knows of the grammar of the answer.
    """

    def __init__(
        self,
        model: Model,
        options: SearchOptions,
        mode: EffectiveMode,
        chooser: Chooser,
        hooks: Hooks,
        speculative: SpeculativeOptions,
        stats: SpeculativeStats,
        proposer: Proposer,
        grammar: Grammar,
    ) -> None:
        self.model, self.options, self._chooser = model, options, chooser
        self._state = make_one(model, options.max_length)
        self._state.extras.beside = None if proposer.draft is None else proposer.draft.extras
        self._tokens = Sequence(options.max_length)
        self._cached = 0  # tokens of the text whose keys and values are in the cache
        self._row: NDArray[np.float32] | None = None  # [V] logits of the text's last token; None: not computed
        self._queue: deque[Decided] = deque()
        self._round: Round | None = None
        self._joins_next = False  # a round's last token is not in the cache, but joins the next round's run
        self._next = 0
        self.finish: FinishReason | None = None
        self.stop_reason: str | None = None
        self._started_ns = 0
        self._rule = StopRule(frozenset(model.config.model.eos_token_ids), options.max_length)
        self._log = RunLog(model, options, mode, self._tokens, None, hooks)
        self._stats, self._proposer, self._grammar = stats, proposer, grammar
        stats.guided = chooser.guide is not None
        self._width = AdaptiveWidth(speculative.min_adaptive_k, speculative.max_draft_tokens)
        self._cooldown = Cooldown(speculative.cooldown)

    # ---- what a generator asks ----------------------------------------------------------------------------------

    @property
    def stats(self) -> dict[str, Any]:
        """og's get_speculative_stats."""
        width, cooldown = self._width, self._cooldown
        return self._stats.as_og_dict(
            active_rounds=int(bool(self._queue)),
            tokens_buffered=len(self._queue),
            effective_k=width.width,
            adaptive_k_increases=width.increases,
            adaptive_k_decreases=width.decreases,
            adaptive_k_observations=width.observations,
            adaptive_k_probes=width.probes,
            adaptive_k_throughput=width.throughput,
            cooldown_entries=cooldown.entries,
            cooldown_steps=cooldown.steps,
            cooldown_remaining=cooldown.remaining,
        )

    def append(self, tokens: ArrayLike | Tensor, tracer: Tracer) -> None:
        """Add tokens [n] or [1, n] and read them at once; what was decided and not handed out is thrown away."""
        ids = token_array(tokens, self.model.vocab_size)
        self._tokens.check_room(ids.size)
        self._state.extras.check_wanted()
        self._discard(Why.APPEND)
        length = len(self._tokens)
        self._tokens.extend(ids)
        self._started_ns = perf_counter_ns()
        place = self._log.append(tracer, ids, self._cached)
        try:
            self._row = self._read_all(place)
            self._proposer.read(self._tokens)
        except Exception:
            self._tokens.rewind(length)
            self._cached, self._row = min(self._cached, length), None
            self._log.fail(tracer, "the model run failed while reading appended tokens")
            raise
        self._next, self.finish, self.stop_reason = int(ids[-1]), None, None

    def generate(self, tracer: Tracer) -> None:
        """Hand out one token: one that is decided already, or the first of a new round."""
        if not self._queue and not self._start_round(tracer):
            self._step_alone(tracer)
            return
        self._hand_out(tracer)

    def logits(self, tracer: Tracer) -> NDArray[np.float32]:
        """[1, V] logits that the next token is, or was, chosen from."""
        if self._queue:
            return self._queue[0].logits.reshape(1, -1)
        self._joins_next = False  # whoever looks at logits between two rounds is not counted among the runs of either
        return self._present_row(tracer).reshape(1, -1)

    def set_logits(self, logits: NDArray[np.float32]) -> None:
        """Replace them, [V] or [1, V]; what was decided from others is thrown away."""
        if self._row is None and not self._queue:
            raise StateError("set_logits: no logits are computed yet; call append_tokens or get_logits first")
        self._discard(Why.LOGITS)
        self._row = logits.reshape(-1).copy()

    def rewind(self, length: int, tracer: Tracer) -> None:
        """Keep the first `length` tokens."""
        self._discard(Why.REWIND)
        self._log.rewound(length, tracer)
        self._tokens.rewind(length)
        self._next = int(self._tokens.tokens[-1]) if length else 0
        self._cached, self._row, self.finish = min(self._cached, length), None, None
        self._proposer.rewind(length)
        self._width.reset()
        self._cooldown.reset()

    def stop(self, tracer: Tracer) -> None:
        """End the answer here."""
        self._discard(Why.STOP)
        if self.finish is None:
            self.finish = FinishReason.CANCELLED
            self._log.generated(tracer, self.finish)

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last run of the target; of the draft, where it alone has it."""
        rows, draft = self._proposer.draft, self.model.draft
        if (
            rows is not None
            and draft is not None
            and name not in self.model.graph.inputs
            and name in draft.graph.inputs
        ):
            return rows.input(name)
        return self._state.input(name)

    # ---- a round ------------------------------------------------------------------------------------------------

    def _start_round(self, tracer: Tracer) -> bool:
        """Propose, check, decide; False when there is nothing to propose."""
        if self._cooldown.remaining and not self._grammar.waiting:
            self._cooldown.take_step()
            return False
        self._started_ns = start = perf_counter_ns()
        length, stream = len(self._tokens), self._chooser.stream
        before = stream.state if self._chooser.draws else None
        width = min(self._width.width, self.options.max_length - length)
        try:
            proposal = self._proposer.propose(self._tokens, width)
            proposed = perf_counter_ns()
            self._stats.total_draft_ms += (proposed - start) / 1e6
            if not proposal.tokens:
                return False
            rows = self._check(np.array(proposal.tokens, np.int32), tracer)
            checked = perf_counter_ns()
            place = self._log.place(tracer, self._cached)
            decided = decide(proposal, rows, self._tokens, self._chooser, place)
        except Exception:
            self._cached = min(self._cached, length)
            raise
        finally:
            if before is not None:
                stream.restore(before)
        self._begin_round(proposal, decided, rows, start)
        if tracer.enabled:
            times = Times(start, proposed - start, checked - proposed)
            number = self._stats.rounds
            self._live_round().record(self._proposer.by, number, proposal, decided, width, times, length, place)
        return True

    def _begin_round(
        self, proposal: Proposal, decided: list[Decided], rows: NDArray[np.float32], started_ns: int
    ) -> None:
        """Queue what was decided, and count."""
        self._queue.extend(decided)
        proposed, last = len(proposal.tokens), decided[-1].origin
        taken = [one for one in decided if one.origin is Origin.ACCEPTED]  # and in the cache
        accepted = sum(not one.forced for one in taken)
        evaluated = accepted + (last is Origin.CORRECTION)
        self._cached = len(self._tokens) + len(taken)
        self._row, self._joins_next = None, False
        self._grammar.waiting = proposal.waiting if last is Origin.ACCEPTED else self._forced_after(decided)
        row = rows[-1].copy() if last is Origin.ACCEPTED else None
        self._round = Round(proposed, evaluated, accepted, perf_counter_ns() - started_ns, row)
        self._stats.count_round(proposed, evaluated, accepted, len(decided))

    def _forced_after(self, decided: list[Decided]) -> tuple[int, ...]:
        guess = Guess(self._tokens, len(decided))
        for one in decided:
            guess.add(one.chosen[0].token)
        return self._grammar.forced_after(guess)

    def _live_round(self) -> Round:
        if self._round is None:
            raise AssertionError("a round is under way")
        return self._round

    def _check(self, proposed: NDArray[np.int32], tracer: Tracer) -> NDArray[np.float32]:
        """[K + 1, V] the target's logits before each proposed token and behind the last."""
        start = perf_counter_ns()
        known = self._row
        text = self._tokens.tokens
        first = len(text) if known is not None else len(text) - 1  # the last token joins the run if it is not read yet
        fed = np.concatenate([text[first:], proposed])
        rows = self._run(fed, first, tracer)
        self._stats.total_target_verify_ms += (perf_counter_ns() - start) / 1e6
        return rows if known is None else np.concatenate([known[None, :], rows])

    def _run(self, fed: NDArray[np.int32], cached: int, tracer: Tracer) -> NDArray[np.float32]:
        """[S, V] logits of every fed token, in one run where the graph gives them all; valid until the next run."""
        place = self._log.place(tracer, cached)
        rows = forward_all(self._state, fed, cached, place)
        self._stats.target_verify_forward_passes += 1
        if len(rows) == fed.size:
            self._proposer.target_ran(self._state, cached, fed.size)
            return rows
        single = []
        for index in range(fed.size):  # a graph that gives the last position's logits only
            single.append(forward_all(self._state, fed[index : index + 1], cached + index, place)[-1].copy())
            self._proposer.target_ran(self._state, cached + index, 1)
            self._stats.target_verify_forward_passes += 1
        return np.stack(single)

    def _hand_out(self, tracer: Tracer) -> None:
        """Commit the next decided token."""
        decided, ended = self._queue.popleft(), self._live_round()
        if decided.stream_state is not None:
            self._chooser.stream.restore(decided.stream_state)
        length = len(self._tokens)
        self._commit(decided.chosen, decided.logits, tracer, decided.origin, decided.forced)
        shown = len(self._tokens) > length
        ended.emitted += shown
        self._stats.tokens_emitted += shown
        if not shown or (self.finish is not None and self._queue):
            self._stats.tokens_discarded += 1 - shown
            self._discard(Why.END, 1 - shown, interrupted=True)
        elif not self._queue:
            self._end_round(ended, tracer)

    def _end_round(self, ended: Round, tracer: Tracer) -> None:
        """Everything was handed out. The last token, if it is not in the cache yet, joins the next run."""
        start = perf_counter_ns()
        ended.tell()
        self._round = None
        self._row, self._joins_next = ended.row, ended.row is None
        self._stats.complete_round(ended.evaluated, ended.accepted)
        if self.finish is None:
            self._proposer.round_ended(self._tokens)
            if ended.proposed == 1 and self._proposer.anchors_narrow_rounds:
                self._present_row(tracer)
        if ended.evaluated:
            self._cooldown.observe(ended.proposed, ended.accepted, smallest=self._width.smallest)
        if ended.proposed == self._width.width:
            took = (ended.worked_ns + perf_counter_ns() - start) / 1e6
            self._width.observe(ended.emitted, ended.accepted, ended.evaluated, took)

    def _step_alone(self, tracer: Tracer) -> None:
        """A plain step, when nothing was proposed."""
        row = self._present_row(tracer)
        self._stats.standard_fallback_steps += 1
        chosen = choose(row, self._tokens, self._chooser, self._log.place(tracer, self._cached))
        self._row = None
        self._commit(chosen, row, tracer)
        if self.finish is None:
            self._grammar.waiting = self._grammar.forced_after(self._tokens)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _commit(
        self,
        chosen: Chosen,
        logits: NDArray[np.float32],
        tracer: Tracer,
        origin: Origin = Origin.ALONE,
        forced: bool = False,
    ) -> None:
        place = self._log.place(tracer, self._cached)
        self.finish = settle(chosen, logits, self._tokens, self._rule, place, self._started_ns, origin, forced)
        self._next, self.stop_reason = chosen[0].token, chosen[0].stop
        self._log.generated(tracer, self.finish)

    def _discard(self, why: Why, thrown: int = 0, *, interrupted: bool = False) -> None:
        """Throw away what is decided and not handed out. `thrown`: tokens of the round that were thrown away before."""
        interrupted = interrupted or bool(self._queue)
        if self._round is not None:
            self._round.tell(thrown + len(self._queue), why)
        self._stats.tokens_discarded += len(self._queue)
        self._stats.interrupted_rounds += interrupted
        self._queue.clear()
        self._grammar.waiting = ()
        self._round = None
        self._cached = min(self._cached, len(self._tokens))

    def _present_row(self, tracer: Tracer) -> NDArray[np.float32]:
        """[V] logits of the text's last token."""
        if self._row is None:
            start = perf_counter_ns()
            self._row = self._read_last(tracer)
            if self._joins_next:
                self._joins_next = False
                self._stats.target_reanchor_forward_passes += 1
                self._stats.total_target_reanchor_ms += (perf_counter_ns() - start) / 1e6
        return self._row

    def _read_last(self, tracer: Tracer) -> NDArray[np.float32]:
        tokens = self._tokens.tokens
        self._cached = min(self._cached, tokens.size - 1)
        place = self._log.place(tracer, self._cached)
        row = forward(self._state, tokens[self._cached :], self._cached, place).copy()
        self._proposer.target_ran(self._state, self._cached, tokens.size - self._cached)
        self._cached = tokens.size
        return row

    def _read_all(self, place: Place) -> NDArray[np.float32]:
        tokens = self._tokens.tokens
        row = self._row
        for stop in chunk_stops(self._cached, tokens.size, self.options.chunk_size):
            row = forward(self._state, tokens[self._cached : stop], self._cached, place).copy()
            self._proposer.target_ran(self._state, self._cached, stop - self._cached)
            self._cached = stop
        if row is None:
            raise AssertionError("there is a token to read")
        return row
