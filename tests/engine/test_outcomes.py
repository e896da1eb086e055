"""How turns end, as a table: what the model says is forced, token by token, and the events are told.

The rows are the rules that onnxruntime-genai's engine keeps (stop strings, limits, end tokens, proposals, guidance);
`tests/parity` holds both engines together where a free answer shows the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Engine, EngineEvent, Request, RequestOptions, TurnOptions
from genai_lab.errors import GenaiLabError
from tests.engine.asking import drain
from tests.graphs import VOCABULARY
from tests.graphs_paged import add_tokenizer, paged_decoder

EOS = 1
A, B, C, ST, OP, STOP, XYZ, SPACE, HALF_1, HALF_2 = 2, 3, 4, 29, 30, 31, 32, 33, 35, 36
PROMPT = [A, B, C]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> genai_lab.Model:
    folder = paged_decoder(tmp_path_factory.mktemp("paged") / "model", logits="tokens")
    add_tokenizer(folder)
    return genai_lab.Model(folder)


def saying(options: TurnOptions, prompt_tokens: int, tokens: Sequence[int]) -> TurnOptions:
    """`options` of a turn that says `tokens`, whatever the model thinks; what comes after them is free."""

    def force(history: Any, logits: Any) -> Any:
        place = len(history) - prompt_tokens
        if place < len(tokens):
            logits[:] = 0.0
            logits[tokens[place]] = 1.0
        return logits

    options.add_logits_processor(force, "script")
    return options


def turn(most: int = 0, stops: Sequence[str] = (), least: int = 0) -> TurnOptions:
    options = TurnOptions()
    options.set_max_generated_tokens(most)
    options.set_min_generated_tokens(least)
    options.set_stop_strings(list(stops))
    return options


def told(events: Sequence[EngineEvent]) -> tuple[list[int], str, int | None]:
    """Its tokens, why it ended, and by which stop string. Only the last event ends it."""
    ends = [bool(event.flags & genai_lab.EngineEventFlags.TURN_FINISHED) for event in events]
    assert ends == [False] * (len(events) - 1) + [True]
    last = events[-1]
    assert last.usage.generated_tokens == sum(event.token is not None for event in events)
    return [e.token for e in events if e.token is not None], last.finish_reason.name, last.matched_stop_string_index


@dataclass(frozen=True)
class Row:
    """What is said, with which options, and how it ends."""

    says: list[int]
    tokens: list[int]
    finish: str
    stop: int | None = None
    stops: tuple[str, ...] = ()
    most: int = 0
    least: int = 0
    session: int = 0
    prompt: tuple[int, ...] = tuple(PROMPT)


ROWS = {
    "the most tokens": Row([A, B, C], [A, B], "MAX_GENERATED_TOKENS", most=2),
    "a full session": Row([A, B, C], [A, B], "MAX_SESSION_TOKENS", session=5),
    "both at once": Row([A, B, C], [A, B], "MAX_GENERATED_TOKENS", most=2, session=5),
    "an end token is not a token": Row([A, EOS, B], [A], "EOS"),
    "an end token at once": Row([EOS], [], "EOS"),
    "an end token before the fewest": Row([A, EOS, B, EOS], [A], "EOS", least=1),
    "a stop over two tokens": Row([ST, OP, A], [ST, OP], "STOP_STRING", 0, ("stop",)),
    "a stop over three tokens": Row([A, ST, OP, A], [A, ST, OP], "STOP_STRING", 0, ("astop",)),
    "the second of three": Row([ST, OP, A], [ST, OP], "STOP_STRING", 1, ("one", "stop", "two")),
    "the first that is complete": Row([STOP], [STOP], "STOP_STRING", 2, ("stop", "op", "st")),
    "two complete at once": Row([STOP], [STOP], "STOP_STRING", 0, ("op", "stop")),
    "inside of a token": Row([XYZ, A], [XYZ], "STOP_STRING", 0, ("y",)),
    "a token of more than the stop": Row([A, XYZ, A], [A, XYZ], "STOP_STRING", 0, ("ax",)),
    "with a space": Row([A, SPACE, B], [A, SPACE, B], "STOP_STRING", 0, ("a b",)),
    "a letter of two tokens": Row([HALF_1, HALF_2, A], [HALF_1, HALF_2], "STOP_STRING", 0, ("é",)),
    "a repeated beginning": Row([ST, ST, OP], [ST, ST, OP], "STOP_STRING", 0, ("stop",)),
    "a beginning that leads nowhere": Row([ST, A, OP, EOS], [ST, A, OP], "EOS", None, ("stop",)),
    "a stop before the most tokens": Row([STOP, A], [STOP], "STOP_STRING", 0, ("stop",), most=1),
    "a stop before the session's end": Row([A, STOP], [A, STOP], "STOP_STRING", 0, ("stop",), session=5),
    "a stop half matched at the end": Row([ST, EOS], [ST], "EOS", None, ("stop",)),
    "the most tokens, half matched": Row([A, ST, OP], [A, ST], "MAX_GENERATED_TOKENS", None, ("stop",), most=2),
    "the prompt's text does not count": Row([A, EOS], [A], "EOS", None, ("stop",), prompt=(ST, OP)),
    "nor does its end": Row([OP, EOS], [OP], "EOS", None, ("stop",), prompt=(A, ST)),
}


def begin(engine: Engine, row: Row, request: Request | None = None) -> Request:
    limits = RequestOptions()
    if row.session:
        limits.set_max_session_tokens(row.session)
    asked = request or engine.create_request(options=limits)
    before = 0 if request is None else asked.tokens().size
    asked.begin_turn(
        np.array(row.prompt, np.int32),
        saying(turn(row.most, row.stops, row.least), before + len(row.prompt), row.says),
    )
    return asked


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_how_a_turn_ends(model: genai_lab.Model, row: Row) -> None:
    engine = Engine(model, check_invariants=True)
    request = begin(engine, row)
    assert told(drain(engine)) == (row.tokens, row.finish, row.stop)
    assert request.tokens().tolist() == [*row.prompt, *row.tokens]


def test_all_at_once(model: genai_lab.Model) -> None:
    """Nobody's text is another's."""
    engine = Engine(model, max_batch_size=4)
    requests = [begin(engine, row) for row in ROWS.values()]
    events: dict[int, list[EngineEvent]] = {request.number: [] for request in requests}
    buffer = engine.create_event_buffer(64)
    while engine.has_pending_requests():
        engine.run(buffer)
        for event in list(buffer[i] for i in range(len(buffer))):
            if event.request is not None:
                events[event.request.number].append(event)
                if event.finish_reason.name != "NONE":
                    event.request.close()
    assert [told(events[request.number]) for request in requests] == [
        (row.tokens, row.finish, row.stop) for row in ROWS.values()
    ]


@pytest.mark.parametrize("second", [(ST,), (B,)], ids=["with the same text again", "with another text"])
def test_a_turn_begins_with_no_text(model: genai_lab.Model, second: tuple[int, ...]) -> None:
    """Neither what the last turn left half matched, nor what is asked now, is a part of what is said now."""
    engine = Engine(model)
    request = begin(engine, Row([ST], [], "", stops=("stop",), most=1))
    assert told(drain(engine)) == ([ST], "MAX_GENERATED_TOKENS", None)
    begin(engine, Row([OP, EOS], [], "", stops=("stop",), prompt=second), request)
    assert told(drain(engine)) == ([OP], "EOS", None)
    begin(engine, Row([ST, OP], [], "", stops=("stop",), prompt=second), request)
    assert told(drain(engine)) == ([ST, OP], "STOP_STRING", 0)


# ---- proposals: what the model says, what was proposed, and what comes of it in one step

PROPOSALS = {
    "the first proposed token completes it": ([A, STOP, B, C], [STOP, B, C], [A, STOP]),
    "one in the middle": ([A, B, STOP, C], [B, STOP, C], [A, B, STOP]),
    "the last": ([A, B, C, STOP], [B, C, STOP], [A, B, C, STOP]),
    "the token after all were right": ([A, B, C, A, STOP], [B, C, A], [A, B, C, A, STOP]),
    "the token in place of a wrong one": ([A, STOP], [B, STOP], [A, STOP]),
    "begun before, ended in a proposal": ([ST, OP, A], [OP, A], [ST, OP]),
    "a wrong one has no text": ([A, ST, B, OP, EOS], [ST, OP, A], [A, ST, B, OP]),
}


@pytest.mark.parametrize(("says", "proposed", "tokens"), PROPOSALS.values(), ids=PROPOSALS.keys())
def test_a_stop_in_what_was_proposed(
    model: genai_lab.Model, says: list[int], proposed: list[int], tokens: list[int]
) -> None:
    engine = Engine(model, check_invariants=True)
    request = begin(engine, Row(says, [], "", stops=("stop",)))
    buffer, events = engine.create_event_buffer(8), []
    engine.run(buffer)
    events.append(buffer[0])
    request.set_draft_tokens(proposed)
    events += drain(engine)
    stopped = tokens[-1] in (STOP, OP) and "EOS" not in str(told(events)[1])
    assert told(events) == (tokens, "STOP_STRING" if stopped else "EOS", 0 if stopped else None)
    assert request.tokens().tolist() == [*PROMPT, *tokens]
    assert engine._states[request.number].computed <= len(PROMPT) + len(tokens)


# ---- refused, and nothing is changed by it


def test_a_refused_turn_changes_nothing(model: genai_lab.Model) -> None:
    engine = Engine(model, max_session_tokens=10)
    request = engine.create_request()
    one = TurnOptions()
    one.set_min_generated_tokens(9)  # more than there is room for
    greedy = TurnOptions()
    greedy.set_do_sample(False)
    greedy.set_temperature(0.7)
    long = np.full(10, A, np.int32)
    refused: list[tuple[Any, TurnOptions | None]] = [([], None), (long, None), (PROMPT, greedy), ([VOCABULARY], None)]
    for tokens, options in refused:
        with pytest.raises(GenaiLabError):
            request.begin_turn(tokens, options)
        assert not engine.has_pending_requests() and request.tokens().size == 0
    assert request.begin_turn(PROMPT, turn(1)) == 1
    with pytest.raises(GenaiLabError):
        request.begin_turn(PROMPT)  # the last is not over
    assert len(drain(engine)) == 1
    with pytest.raises(GenaiLabError):
        request.begin_turn(np.full(6, A, np.int32))  # 4 are there already
    assert request.begin_turn([A], turn(1)) == 2


def test_a_beginning_that_cannot_leave_room_for_the_fewest(model: genai_lab.Model) -> None:
    """As many tokens as a turn must have at least have to fit."""
    limits = RequestOptions()
    limits.set_max_session_tokens(len(PROMPT) + 2)
    engine = Engine(model)
    request = engine.create_request(options=limits)
    with pytest.raises(GenaiLabError, match="min_generated_tokens"):
        request.begin_turn(PROMPT, turn(least=3))
    assert request.begin_turn(PROMPT, turn(least=2)) == 1
    assert told(drain(engine))[1] == "MAX_SESSION_TOKENS"
