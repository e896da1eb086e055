"""Small calls of the Engine, its requests, options, events and enums: what the rows of the table claim, tried."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.compat_stage import PROMPT, Calls, Stage, each, plain, refused

ENUMS = {
    "EngineErrorCode": "NONE CAPACITY_DEFERRED EXECUTION_CAPACITY_EXCEEDED RETRYABLE_EXECUTION REQUEST_UNSERVICEABLE "
    "ENGINE_CONTRACT_FAILURE ENGINE_EXECUTION_FAILURE",
    "EngineEventFlags": "NONE TOKEN TURN_FINISHED CAPACITY_BLOCKED FAILED RETRYABLE",
    "FinishReason": "NONE EOS STOP_STRING MAX_GENERATED_TOKENS MAX_SESSION_TOKENS CANCELLED FAILED",
}
ORDER = ("__lt__", "__le__", "__gt__", "__ge__")  # of flags only


def _ran(engine: Any) -> list[object]:
    """A buffer of no room, and one of an idle engine."""
    empty, buffer = engine.create_event_buffer(0), engine.create_event_buffer(2)
    engine.create_request().begin_turn(PROMPT)
    return [engine.run(empty) is empty, len(empty), engine.run(buffer=buffer) is buffer]


def _begun(s: Stage) -> object:
    """Keeps the engine, as a request whose engine is dropped is closed there."""
    engine = s.engine()
    return engine.create_request().begin_turn(tokens=PROMPT, turn_options=None)


def _buffer(s: Stage) -> Any:
    engine = s.engine()
    request = engine.create_request()
    request.begin_turn(PROMPT, s.options(request))
    return engine.run(engine.create_event_buffer(4))


def _cancelled(s: Stage) -> list[object]:
    _, request, turn = s.open_turn()
    return [
        request.cancel_turn(turn),
        request.cancel_turn(turn),
        refused(lambda: s.engine().create_request().cancel_turn(1)),
        refused(lambda: request.cancel_turn(-1)),
    ]


def _closed_request(s: Stage) -> Any:
    request = s.engine().create_request()
    request.close()
    return request


def _closed(s: Stage) -> list[object]:
    request = _closed_request(s)
    return [
        request.close(),
        refused(lambda: request.begin_turn(PROMPT)),
        refused(lambda: request.cancel_turn(1)),
        refused(lambda: request.rewind_to_start_of_turn(1)),
    ]


def _turned_back(s: Stage) -> list[object]:
    engine, request, turn = s.finished()
    request.rewind_to_start_of_turn(turn_id=turn)
    return [
        request.begin_turn(PROMPT),
        refused(lambda: request.rewind_to_start_of_turn(turn)),
        refused(lambda: s.engine().create_request().rewind_to_start_of_turn(9)),
        engine.has_pending_requests(),
    ]


def _of_enum(name: str, members: list[str]) -> dict[str, Calls]:
    def kind(s: Stage) -> Any:
        return getattr(s.lib, name)

    return {
        **each(name, members, lambda m: Calls(same=lambda s: [getattr(kind(s), m).name, int(getattr(kind(s), m))])),
        **each(
            name,
            ("__eq__", "__ne__", *(ORDER if name == "EngineEventFlags" else ())),
            lambda o: Calls(
                same=lambda s: [getattr(kind(s)(a), o)(kind(s)(b)) for a, b in ((1, 1), (1, 2), (2, 1))],
                more=lambda s: getattr(kind(s)(1), o)(1),
            ),
        ),
        f"{name}()": Calls(same=lambda s: [kind(s)(n).name for n in (0, 1, 2)]),
        f"{name}.__hash__": Calls(same=lambda s: {kind(s)(1): 3}[kind(s)(1)]),
        f"{name}.__index__": Calls(same=lambda s: "abc"[kind(s)(1)]),
        f"{name}.__int__": Calls(same=lambda s: int(kind(s)(2))),
        f"{name}.__members__": Calls(same=lambda s: {m: int(kind(s).__members__[m]) for m in members}),
        f"{name}.name": Calls(same=lambda s: [kind(s)(1).name, str(kind(s)(1)), f"{kind(s)(1)}"]),
        f"{name}.value": Calls(same=lambda s: kind(s)(1).value),
    }


TRIED: dict[str, tuple[object, ...]] = {
    "do_sample": (True, False, "a"),
    "temperature": (1.0, 0.0, 0.5, -1.0, math.nan, "a"),
    "top_k": (1, 0, 40, -1, 1.5),
    "top_p": (1.0, 0.0, 0.5, 2.0),
    "repetition_penalty": (1.1, 0.0, "a"),
    "no_repeat_ngram_size": (0, 3, -1),
    "max_generated_tokens": (0, 3, np.int32(3), -1, "a"),
    "min_generated_tokens": (0, 3, 9, -1),
}
USAGE = ("prompt_tokens", "generated_tokens", "cached_prompt_tokens")
ENGINE: dict[str, Calls] = {
    "Engine()": Calls(
        same=lambda s: [s.engine() is None, refused(lambda: s.lib.Engine(5))],
        more=lambda s: s.lib.Engine(s.model, max_batch_size=2).get_capabilities().configured_max_batch_size,
    ),
    "Engine.create_event_buffer": Calls(
        same=lambda s: [
            len(s.engine().create_event_buffer(0)),
            len(s.engine().create_event_buffer(capacity=2)),
            refused(lambda: s.engine().create_event_buffer(-1)),
            refused(lambda: s.engine().create_event_buffer(1 << 100)),
            refused(lambda: s.engine().create_event_buffer(1.5)),
        ]
    ),
    "Engine.create_request": Calls(
        same=lambda s: [
            s.engine().create_request(options=s.lib.RequestOptions()) is None,
            refused(lambda: s.engine().create_request(s.params())),
            refused(lambda: s.engine().create_request(options=5)),
        ]
    ),
    "Engine.get_capabilities": Calls(differs=lambda s: s.engine().get_capabilities().max_request_length),
    "Engine.get_speculative_stats": Calls(same=lambda s: sorted(s.engine().get_speculative_stats())),
    "Engine.has_pending_requests": Calls(
        same=lambda s: [s.engine().has_pending_requests(), s.open_turn()[0].has_pending_requests()]
    ),
    "Engine.max_draft_tokens_per_proposal": Calls(differs=lambda s: s.engine().max_draft_tokens_per_proposal()),
    "Engine.run": Calls(
        same=lambda s: [
            _ran(s.engine()),
            refused(lambda: s.engine().run(s.engine().create_event_buffer(1))),
            refused(lambda: s.engine().run(5)),
            [event.token for event in s.events(1)],
        ],
        here=lambda s: len(_buffer(s)),
        why_not_there="tests/parity/test_og_paged_engine.py has a graph that reads block tables",
    ),
    **each(
        "EngineCapabilities",
        ("configured_max_batch_size", "max_request_length", "max_scheduled_tokens"),
        lambda n: Calls(differs=lambda s: getattr(s.engine().get_capabilities(), n)),
    ),
    **each(
        "EngineEvent",
        ("error_code", "finish_reason", "flags", "matched_stop_string_index", "token", "turn_id", "usage"),
        lambda n: Calls(same=lambda s: [plain(getattr(event, n)) for event in s.events()]),
    ),
    "EngineEvent.request": Calls(same=lambda s: [event.is_requests for event in s.events()]),
    "EngineEventBuffer.__len__": Calls(same=lambda s: len(_buffer(s))),
    "EngineEventBuffer.__getitem__": Calls(
        same=lambda s: [
            _buffer(s)[0].turn_id,
            _buffer(s)[-1].turn_id,
            refused(lambda: _buffer(s)[9]),
            len(list(_buffer(s))),
        ],
        more=lambda s: len(_buffer(s)[:1]),
    ),
    "Request.begin_turn": Calls(
        same=lambda s: [
            _begun(s),
            refused(lambda: s.engine().create_request().begin_turn(np.array([PROMPT]))),
            refused(lambda: s.engine().create_request().begin_turn([])),
            refused(lambda: s.engine().create_request().begin_turn(PROMPT, 5)),
            refused(lambda: s.open_turn()[1].begin_turn(PROMPT)),
        ]
    ),
    "Request.cancel_turn": Calls(same=lambda s: _cancelled(s)),
    "Request.close": Calls(same=lambda s: _closed(s)),
    "Request.rewind_to_start_of_turn": Calls(same=lambda s: _turned_back(s)),
    "Request.set_draft_tokens": Calls(
        same=lambda s: [
            refused(lambda: s.engine().create_request().set_draft_tokens([5])),
            refused(lambda: s.engine().create_request().set_draft_tokens([[5]])),
        ],
        differs=lambda s: s.open_turn()[1].set_draft_tokens([5]),
    ),
    "RequestOptions()": Calls(same=lambda s: s.lib.RequestOptions() is None),
    "RequestOptions.set_max_session_tokens": Calls(
        same=lambda s: [
            s.lib.RequestOptions().set_max_session_tokens(5),
            s.lib.RequestOptions().set_max_session_tokens(np.int64(5)),
            refused(lambda: s.lib.RequestOptions().set_max_session_tokens(-1)),
            refused(lambda: s.lib.RequestOptions().set_max_session_tokens(1.5)),
        ]
    ),
    "TurnOptions()": Calls(
        same=lambda s: [
            refused(lambda: s.lib.TurnOptions(5)),
            refused(lambda: s.lib.TurnOptions(_closed_request(s))),
        ],
        more=lambda s: s.lib.TurnOptions() is None,
    ),
    "TurnOptions.reset": Calls(same=lambda s: s.turn(lambda o: (o.set_top_k(40), o.reset()))),
    "TurnOptions.clear_seed": Calls(same=lambda s: s.turn(lambda o: (o.set_seed(4), o.clear_seed()))),
    "TurnOptions.clear_guidance": Calls(
        same=lambda s: s.turn(lambda o: (o.set_guidance("regex", "a"), o.clear_guidance()))
    ),
    "TurnOptions.set_guidance": Calls(
        same=lambda s: [
            s.turn(lambda o: o.set_guidance("regex", "[a-z]+")),
            refused(lambda: s.turn(lambda o: o.set_guidance("no such", "x"))),
            refused(lambda: s.turn(lambda o: o.set_guidance("regex", "x", True))),
        ]
    ),
    "TurnOptions.set_seed": Calls(
        same=lambda s: [s.set_one("seed", value) for value in (-1, 1 << 70, "a")],
        differs=lambda s: s.set_one("seed", 4),
    ),
    "TurnOptions.set_stop_strings": Calls(
        same=lambda s: [
            s.set_one("stop_strings", value)
            for value in ([], "ab", [1], [""], [f"s{n}" for n in range(17)], ["a\0b"], ["x" * 20_000])
        ],
        differs=lambda s: s.set_one("stop_strings", ["ab"]),
    ),
    **each(
        "TurnOptions",
        [f"set_{name}" for name in TRIED],
        lambda n: Calls(same=lambda s: [s.set_one(n.removeprefix("set_"), v) for v in TRIED[n.removeprefix("set_")]]),
    ),
    **each("TurnUsage", USAGE, lambda n: Calls(same=lambda s: s.events()[-1].usage[USAGE.index(n)])),
}

for _name, _members in ENUMS.items():
    ENGINE |= _of_enum(_name, _members.split())
ENGINE["FinishReason.__members__"] = Calls(
    same=lambda s: {m: int(s.lib.FinishReason.__members__[m]) for m in ENUMS["FinishReason"].split()},
    more=lambda s: s.lib.FinishReason.__members__["STOPPING_CRITERION"],
)
ENGINE["EngineEventFlags.__and__"] = Calls(
    same=lambda s: int(s.lib.EngineEventFlags(3) & s.lib.EngineEventFlags.TOKEN),
    more=lambda s: (s.lib.EngineEventFlags(3) & s.lib.EngineEventFlags.TOKEN).name,
)
ENGINE["EngineEventFlags.__or__"] = Calls(
    same=lambda s: int(s.lib.EngineEventFlags.TOKEN | s.lib.EngineEventFlags.TURN_FINISHED)
)
