"""Which proposed tokens are taken: the target's logits of each place in, decided tokens out.

It runs no model and changes no text. It moves the random stream as plain decoding of the decided tokens would; the
caller gives back what nobody gets to see.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.decoding import Chooser, Place, Sequence, choose, process
from genai_lab.decoding.history import Guess
from genai_lab.decoding.speculation import Proposal, accept_by_ratio
from genai_lab.decoding.speculation.acceptance import probability
from genai_lab.decoding.step import with_stop
from genai_lab.sampling import Choice, SamplingMode
from genai_lab.sampling.sampler import filter_candidates
from genai_lab.tracing import Change, Masking, Origin, ProposedFact
from genai_lab.tracing.speculation_facts import Verdict

Chosen = tuple[Choice, tuple[Change | Masking, ...]]


@dataclass(frozen=True, slots=True)
class Decided:
    """A token that a round decided and nobody has seen yet."""

    chosen: Chosen
    logits: NDArray[np.float32]  # [V] that it was chosen from
    origin: Origin
    stream_state: Any = None  # of the random stream behind it; None: nothing was drawn
    forced: bool = False  # the grammar allowed no other, and nobody chose
    proposed: ProposedFact | None = None  # what was proposed in its place; None: nothing, or nobody records


def decide(
    proposal: Proposal, rows: NDArray[np.float32], text: Sequence, chooser: Chooser, place: Place
) -> list[Decided]:
    """The proposed tokens that are taken, and one more; none more where forced tokens wait to be written next.

    Args:
        rows: [K + 1, V] the target's logits before each of the K proposed tokens, and behind the last.
        text: what was handed out so far.
        place: of the first token that is decided.
    """
    is_plain = not (chooser.processors or chooser.stopping or chooser.sampler)
    if is_plain and chooser.mode is SamplingMode.GREEDY:
        start = perf_counter_ns()
        decided = _by_argmax(proposal, rows, place.tracer.enabled)
        place.tracer.stage(place.run, place.index, "select", start, perf_counter_ns(), len(decided))
        return decided
    return _one_by_one(proposal, rows, text, chooser, place)


def _by_argmax(proposal: Proposal, rows: NDArray[np.float32], recorded: bool) -> list[Decided]:
    """Greedy decoding and nothing between the logits and the choice: all at once."""
    best: list[int] = rows.argmax(axis=1).tolist()
    decided = []
    for index, (token, row) in enumerate(zip(best, rows, strict=True)):
        is_last = index == len(proposal.tokens)
        accepted = not is_last and token == proposal.tokens[index]
        fact = None
        if recorded and not is_last:
            fact = _fact(proposal, index, row, accepted, float(accepted))
        decided.append(Decided((Choice(token, 1.0, (1, 1, 1)), ()), row, _origin(accepted, is_last), proposed=fact))
        if not accepted:
            break
    return decided


def _one_by_one(
    proposal: Proposal, rows: NDArray[np.float32], text: Sequence, chooser: Chooser, place: Place
) -> list[Decided]:
    """Each place as plain decoding would treat it."""
    decided = []
    guess = Guess(text, len(proposal.tokens))
    for index, row in enumerate(rows[:-1] if proposal.waiting else rows):
        here = Place(place.tracer, place.run, place.index + index)
        is_last = index == len(proposal.tokens)
        forced = index in proposal.forced
        chosen, accepted, fact = _judge(proposal, index, row, guess, chooser, here)
        state = chooser.stream.state if chooser.draws else None
        decided.append(Decided(chosen, row, _origin(accepted, is_last), state, forced, fact))
        if not accepted:
            break
        guess.add(proposal.tokens[index])
    return decided


def _judge(
    proposal: Proposal, index: int, row: NDArray[np.float32], guess: Guess, chooser: Chooser, place: Place
) -> tuple[Chosen, bool, ProposedFact | None]:
    """What is written at a place, and whether that is the token that was proposed for it."""
    if index in proposal.forced:
        fact = _fact(proposal, index, row, True, 1.0) if place.tracer.enabled else None
        return (Choice(proposal.tokens[index], 1.0, (1, 1, 1)), ()), True, fact
    if index == len(proposal.tokens):
        return choose(row, guess, chooser, place), False, None
    if proposal.drawn_from is not None:
        return _by_ratio(proposal, index, row, guess, chooser, place)
    chosen = choose(row, guess, chooser, place)
    fact = _by_choice(proposal, index, row, chosen[0], chooser) if place.tracer.enabled else None
    return chosen, chosen[0].token == proposal.tokens[index], fact


def _by_ratio(
    proposal: Proposal, index: int, row: NDArray[np.float32], guess: Guess, chooser: Chooser, place: Place
) -> tuple[Chosen, bool, ProposedFact | None]:
    """Speculative sampling of one proposed token."""
    draft = None if proposal.drawn_from is None else proposal.drawn_from[index]
    if draft is None:
        raise AssertionError("the draft drew this token")
    scores, changes = process(row, guess, chooser, place)
    target = filter_candidates(scores, chooser.settings)
    verdict = accept_by_ratio(proposal.tokens[index], target, draft, chooser.stream)
    share = verdict.target_probability if verdict.accepted else probability(target, verdict.token)
    choice = with_stop(Choice(verdict.token, share, target.kept), guess, chooser)
    fact = None
    if place.tracer.enabled:
        probabilities = verdict.target_probability, verdict.draft_probability
        fact = _fact(proposal, index, row, verdict.accepted, *probabilities, verdict.drawn)
    return (choice, changes), verdict.accepted, fact


def _by_choice(
    proposal: Proposal, index: int, row: NDArray[np.float32], choice: Choice, chooser: Chooser
) -> ProposedFact:
    """A token proposed for certain, and what plain decoding chose in its place."""
    token = proposal.tokens[index]
    accepted, drawn = choice.token == token, chooser.draws and chooser.sampler is None
    wanted = choice.probability if accepted else nan if chooser.sampler else 0.0
    if drawn and not accepted:
        scores = row if chooser.scratch is None or not chooser.processors else chooser.scratch  # as `choose` left them
        wanted = probability(filter_candidates(scores, chooser.settings), token)
    return _fact(proposal, index, row, accepted, wanted, 1.0, chooser.stream.last if drawn else None)


def _fact(
    proposal: Proposal,
    index: int,
    row: NDArray[np.float32],
    accepted: bool,
    p_target: float,
    p_draft: float = 1.0,
    drawn: float | None = None,
) -> ProposedFact:
    token = proposal.tokens[index]
    verdict = Verdict.ACCEPTED if accepted else Verdict.REJECTED
    number = nan if drawn is None else drawn
    return ProposedFact(token, p_draft, verdict, p_target, number, float(row[token]))


def unseen(proposal: Proposal, index: int) -> ProposedFact:
    """A proposed token that nobody looked at: one before it was rejected."""
    token = proposal.tokens[index]
    draft = None if proposal.drawn_from is None else proposal.drawn_from[index]
    return ProposedFact(token, 1.0 if draft is None else probability(draft, token))


def _origin(accepted: bool, is_last: bool) -> Origin:
    if accepted:
        return Origin.ACCEPTED
    return Origin.BONUS if is_last else Origin.CORRECTION
