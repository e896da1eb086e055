"""The step: `forward` (prepare inputs, run the model, read logits), `choose` (each processor, then select), `commit`.

The caller says which tokens are new; the step publishes what it measured to the tracer it is given. The same statements
run whether somebody records or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding.sequence import Sequence
from genai_lab.decoding.stopping import StopRule
from genai_lab.models.decoder import DecoderState
from genai_lab.sampling import (
    Choice,
    LogitsProcessor,
    RandomStream,
    SamplingMode,
    choose_greedy,
    choose_sample,
)
from genai_lab.sampling.mode import SelectionSettings
from genai_lab.tracing import Change, TokenFact, Tracer
from genai_lab.types import FinishReason


@dataclass(slots=True)
class Chooser:
    """Everything that turns logits into a token: processors in order, the mode and its settings, the random stream."""

    processors: tuple[LogitsProcessor, ...]
    mode: SamplingMode
    settings: SelectionSettings
    stream: RandomStream
    scratch: NDArray[np.float32] | None = None  # [V], where processors work; fresh memory every time would cost more

    def copy_of(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """`logits` [V] in the scratch memory."""
        if self.scratch is None or self.scratch.shape != logits.shape:
            self.scratch = np.empty_like(logits)
        np.multiply(logits, np.float32(1.0), out=self.scratch)
        return self.scratch


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a trace this step belongs."""

    tracer: Tracer
    run: int
    index: int  # of the token that this step makes, 0-based inside the answer


def forward(state: DecoderState, tokens: NDArray[np.int32], cached: int, place: Place) -> NDArray[np.float32]:
    """Run the model over `tokens` [S] after `cached` ones; returns the last position's logits [V], overwritten by the
    next run."""
    tracer, run, index = place.tracer, place.run, place.index
    start = perf_counter_ns()
    state.prepare(tokens, cached)
    prepared = perf_counter_ns()
    state.run()
    ran = perf_counter_ns()
    logits = state.read_logits()
    read = perf_counter_ns()
    tracer.stage(run, index, "prepare_inputs", start, prepared, tokens.size)
    tracer.stage(run, index, "run_decode" if tokens.size == 1 else "run_prefill", prepared, ran, tokens.size)
    tracer.stage(
        run, index, "kv_append", ran, ran, tokens.size
    )  # a mark: the attention kernel wrote them during the run
    tracer.stage(run, index, "read_logits", ran, read)
    return logits


def choose(
    logits: NDArray[np.float32], sequence: Sequence, chooser: Chooser, place: Place
) -> tuple[Choice, tuple[Change, ...]]:
    """Apply each processor to a copy of `logits` [V], then select. `logits` stays as the model gave it."""
    tracer, run, index = place.tracer, place.run, place.index
    scores = logits if not chooser.processors else chooser.copy_of(logits)
    changes: list[Change] = []
    for processor in chooser.processors:
        start = perf_counter_ns()
        ids = processor(scores, sequence)
        tracer.stage(run, index, processor.name, start, perf_counter_ns(), ids.size)
        if tracer.enabled:
            changes.append(Change(processor.name, ids, scores[ids]))
    start = perf_counter_ns()
    if chooser.mode is SamplingMode.GREEDY:
        choice = choose_greedy(scores)
    else:
        choice = choose_sample(scores, chooser.settings, chooser.stream)
    tracer.stage(run, index, "select", start, perf_counter_ns())
    return choice, tuple(changes)


def commit(sequence: Sequence, choice: Choice, rule: StopRule, place: Place) -> FinishReason | None:
    """Append the token, unless it ends the sequence (an end token is not part of the text). Returns why it is
    finished."""
    start = perf_counter_ns()
    finish = rule.after(choice.token, len(sequence) + 1)
    if finish is not FinishReason.EOS:
        sequence.append(choice.token)
    place.tracer.stage(place.run, place.index, "commit", start, perf_counter_ns())
    return finish


def settle(
    chosen: tuple[Choice, tuple[Change, ...]],
    logits: NDArray[np.float32],
    sequence: Sequence,
    rule: StopRule,
    place: Place,
    started_ns: int,
) -> FinishReason | None:
    """Commit what `choose` returned for `logits`, and publish the token. `started_ns`: when the work for it began."""
    choice, changes = chosen
    position, distinct = len(sequence), sequence.distinct
    finish = commit(sequence, choice, rule, place)
    if place.tracer.enabled:
        fact = TokenFact(
            run=place.run,
            index=place.index,
            position=position,
            token=choice.token,
            start_ns=started_ns,
            end_ns=perf_counter_ns(),
            final_prob=choice.probability,
            kept=choice.kept,
            changes=changes,
            seen=distinct,
        )
        place.tracer.token(fact, logits)
    return finish


def run_step(
    logits: NDArray[np.float32], sequence: Sequence, chooser: Chooser, rule: StopRule, place: Place, started_ns: int
) -> tuple[Choice, FinishReason | None]:
    """Choose from `logits` and commit; publishes the token."""
    chosen = choose(logits, sequence, chooser, place)
    return chosen[0], settle(chosen, logits, sequence, rule, place, started_ns)
