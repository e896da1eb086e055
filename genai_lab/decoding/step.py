"""The step: `forward` (prepare inputs, run the model, read logits), `choose` (each processor, then select), `commit`.

The caller says which tokens are new; the step publishes what it measured to the tracer it is given. The same statements
run whether somebody records or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import TokenMask, largest
from genai_lab.decoding.sequence import Sequence
from genai_lab.decoding.stopping import StopRule
from genai_lab.errors import StateError
from genai_lab.grammar import Guide
from genai_lab.models import OneRow
from genai_lab.sampling import (
    Choice,
    LogitsProcessor,
    OwnProcessor,
    OwnSampler,
    OwnStopping,
    RandomStream,
    SamplingMode,
    choose_greedy,
    choose_sample,
)
from genai_lab.sampling.mode import SelectionSettings
from genai_lab.sampling.processors import History
from genai_lab.tracing import Change, Masking, Origin, TokenFact, Tracer
from genai_lab.types import FinishReason

MANY = 1024  # changes of more tokens than this are recorded for the most likely ones only
NOTHING_LEFT = np.float32(-1e37)  # a highest logit below this: everything is forbidden


class Text(History, Protocol):
    """Tokens so far, committed or not."""

    def __len__(self) -> int: ...


@dataclass(slots=True)
class Chooser:
    """Everything that turns logits into a token: processors in order, the mode and its settings, the random stream."""

    processors: tuple[LogitsProcessor, ...]
    mode: SamplingMode
    settings: SelectionSettings
    stream: RandomStream
    guide: Guide | None = None  # the grammar that `processors` holds, for tokens that it forces
    ff_tokens: bool = False  # append those without asking the model
    end_ids: frozenset[int] = frozenset()
    sampler: OwnSampler | None = None  # a person's, in place of `mode` and `settings`
    stopping: tuple[OwnStopping, ...] = ()
    scratch: NDArray[np.float32] | None = None  # [V], where processors work; fresh memory every time would cost more
    draws: bool = field(init=False)  # whether choosing moves the random stream
    selector: str = field(init=False)  # the name of the stage that selects

    def __post_init__(self) -> None:
        self.draws = self.mode is SamplingMode.SAMPLE or self.sampler is not None
        self.selector = "select" if self.sampler is None else self.sampler.name

    @property
    def may_forbid_all(self) -> bool:
        """Whether the processors could leave nothing: ours alone never do."""
        return self.guide is not None or any(isinstance(p, OwnProcessor) for p in self.processors)

    def copy_of(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """`logits` [V] in the scratch memory."""
        if self.scratch is None or self.scratch.shape != logits.shape:
            self.scratch = np.empty_like(logits)
        np.multiply(logits, np.float32(1.0), out=self.scratch)
        return self.scratch


@dataclass(slots=True)
class Place:
    """Where in a trace this step belongs. Nobody changes it; frozen, it would take longer to make."""

    tracer: Tracer
    run: int
    index: int  # of the token that this step makes, 0-based inside the answer


def forward(state: OneRow, tokens: NDArray[np.int32], cached: int, place: Place) -> NDArray[np.float32]:
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


def forward_all(state: OneRow, tokens: NDArray[np.int32], cached: int, place: Place) -> NDArray[np.float32]:
    """Run the model over `tokens` [S] after `cached` ones to look at them; returns the logits of every position [S, V],
    or of the last alone [1, V] where the graph gives no others; overwritten by the next run."""
    start = perf_counter_ns()
    state.prepare(tokens, cached, every=True)
    prepared = perf_counter_ns()
    state.run()
    ran = perf_counter_ns()
    place.tracer.stage(place.run, place.index, "prepare_inputs", start, prepared, tokens.size)
    place.tracer.stage(place.run, place.index, "run_decode", prepared, ran, tokens.size)
    return state.read_all_logits()


def choose(
    logits: NDArray[np.float32], sequence: Text, chooser: Chooser, place: Place
) -> tuple[Choice, tuple[Change | Masking, ...]]:
    """Apply each processor to a copy of `logits` [V], then select. `logits` and `sequence` stay as they are; the random
    stream is where it was when anything raises.

    Raises:
        CallableError: a person's own processor, sampler or stopping rule failed.
        StateError: the processors together forbid every token.
    """
    before = chooser.stream.state if chooser.draws else None
    try:
        scores, changes = process(logits, sequence, chooser, place)
        start = perf_counter_ns()
        choice = select(scores, chooser)
        place.tracer.stage(place.run, place.index, chooser.selector, start, perf_counter_ns())
        return with_stop(choice, sequence, chooser), changes
    except BaseException:
        if before is not None:
            chooser.stream.restore(before)
        raise


def process(
    logits: NDArray[np.float32], sequence: Text, chooser: Chooser, place: Place
) -> tuple[NDArray[np.float32], tuple[Change | Masking, ...]]:
    """What the processors make of `logits` [V], in the chooser's scratch memory; what each changed, when recorded."""
    tracer = place.tracer
    if not chooser.processors:
        return logits, ()
    scores = chooser.copy_of(logits)
    changes: list[Change | Masking] = []
    for processor in chooser.processors:
        start = perf_counter_ns()
        if isinstance(processor, OwnProcessor) and not tracer.enabled:
            processor.run(scores, sequence)  # what it changed is found by comparing, for a recording only
            continue
        effect = processor(scores, sequence)
        tracer.stage(place.run, place.index, processor.name, start, perf_counter_ns(), effect.size)
        if tracer.enabled:
            changes.append(_record_of(processor.name, effect, logits, scores))
    if chooser.may_forbid_all and scores.max() < NOTHING_LEFT:
        names = ", ".join(processor.name for processor in chooser.processors)
        raise StateError(
            f"no token is left at position {len(sequence)}: together {names} forbid every one. Leave one of them out "
            "(no_repeat_ngram_size=0, min_length=0, another grammar), or rewind and go on from there"
        )
    return scores, tuple(changes)


def _record_of(
    name: str, effect: NDArray[np.int32] | TokenMask, logits: NDArray[np.float32], scores: NDArray[np.float32]
) -> Change | Masking:
    """What a processor did, in little memory."""
    if isinstance(effect, TokenMask):
        return Masking(name, effect)
    if effect.size > MANY:
        shown = np.union1d(largest(logits, MANY), largest(scores, MANY)).astype(np.int32)
        effect = effect[np.isin(effect, shown)]
    return Change(name, effect, scores[effect])


def select(scores: NDArray[np.float32], chooser: Chooser) -> Choice:
    """One token from processed logits [V]."""
    if chooser.sampler is not None:
        return chooser.sampler.choose(scores, chooser.stream)
    if chooser.mode is SamplingMode.GREEDY:
        return choose_greedy(scores)
    return choose_sample(scores, chooser.settings, chooser.stream)


def with_stop(choice: Choice, sequence: Text, chooser: Chooser) -> Choice:
    """`choice`, with the reason of the first stopping rule that ends the sequence after it."""
    if not chooser.stopping or choice.token in chooser.end_ids:
        return choice
    tokens = np.append(sequence.tokens, np.int32(choice.token))
    reasons = (rule.reason(tokens) for rule in chooser.stopping)
    reason = next((words for words in reasons if words is not None), None)
    return choice if reason is None else choice._replace(stop=reason)


def commit(sequence: Sequence, choice: Choice, rule: StopRule, place: Place) -> FinishReason | None:
    """Append the token, unless it ends the sequence (an end token is not part of the text). Returns why it is
    finished."""
    start = perf_counter_ns()
    finish = rule.after(choice.token, len(sequence) + 1)
    if choice.stop is not None and finish is not FinishReason.EOS:
        finish = FinishReason.STOPPING_CRITERION
    if finish is not FinishReason.EOS:
        sequence.append(choice.token)
    place.tracer.stage(place.run, place.index, "commit", start, perf_counter_ns())
    return finish


def put(token: int, sequence: Sequence, place: Place) -> None:
    """Append a token that nobody chose: the grammar allows no other."""
    start, position, distinct = perf_counter_ns(), len(sequence), sequence.distinct
    sequence.append(token)
    if place.tracer.enabled:
        fact = TokenFact(
            run=place.run,
            index=place.index,
            position=position,
            token=token,
            start_ns=start,
            end_ns=perf_counter_ns(),
            final_prob=1.0,
            kept=(1, 1, 1),
            changes=(),
            seen=distinct,
            forced=True,
        )
        place.tracer.token(fact, None)


def settle(
    chosen: tuple[Choice, tuple[Change | Masking, ...]],
    logits: NDArray[np.float32],
    sequence: Sequence,
    rule: StopRule,
    place: Place,
    started_ns: int,
    origin: Origin = Origin.ALONE,
    forced: bool = False,
) -> FinishReason | None:
    """Commit what `choose` returned for `logits`, and publish the token.

    Args:
        started_ns: when the work for it began.
        forced: a grammar allowed no other token, and nobody chose.
    """
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
            forced=forced,
            origin=origin,
        )
        place.tracer.token(fact, logits)
    return finish


def run_step(
    logits: NDArray[np.float32], sequence: Sequence, chooser: Chooser, rule: StopRule, place: Place, started_ns: int
) -> tuple[Choice, FinishReason | None]:
    """Choose from `logits` and commit; publishes the token."""
    chosen = choose(logits, sequence, chooser, place)
    return chosen[0], settle(chosen, logits, sequence, rule, place, started_ns)
