"""Ctrl-C at any moment leaves the engine whole, and so does whatever a person's code calls or raises in a step."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import genai_lab
from genai_lab.engine import Engine, Fcfs, OrderedPolicy, QueueView, StepPlan
from genai_lab.errors import CallableError, StateError
from tests.engine.asking import prompts, skip_without_pages

COUNT, BLOCKS = 5, 40
POINTS = 48  # moments of a run at which it is interrupted
OURS = str(Path(genai_lab.__file__).parent)


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> genai_lab.Model:
    return genai_lab.Model(tiny_folder)


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Python's own, whatever ran before; and nobody has put another one there in the end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@contextmanager
def at_line(number: int, act: Callable[[], None]) -> Iterator[list[int]]:
    """Does something just before the `number`-th line of the package that is run inside the block; counts them."""
    count = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            count[0] += 1
            if count[0] == number:
                act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def make(model: genai_lab.Model, **options: Any) -> Engine:
    skip_without_pages(options)
    return Engine(model, max_batch_size=3, max_session_tokens=100, num_blocks=BLOCKS, **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"kv_backend": "vm"}], ids=["slots", "vm"])
def test_an_interrupt_between_any_two_statements(
    model: genai_lab.Model, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, heard = 0, 0

    def send() -> None:
        nonlocal sent
        sent += 1
        interrupt()

    def in_a_finalizer(unraisable: Any) -> None:  # where Python itself passes on nothing that is raised
        nonlocal heard
        heard += unraisable.exc_type is KeyboardInterrupt

    monkeypatch.setattr(sys, "unraisablehook", in_a_finalizer)
    asked = prompts(20, 9, 30, 12, shared=18)
    for _ in range(2):  # what a first run looks up is known in the second, as in those that follow
        with make(model, **options) as engine, at_line(0, send) as count:
            expected = engine.generate_all(asked, max_generated_tokens=COUNT)
    for point in range(POINTS):
        engine = make(model, **options)
        try:
            with at_line(1 + count[0] * point // POINTS, send):
                engine.generate_all(asked, max_generated_tokens=COUNT)
        except KeyboardInterrupt:
            heard += 1
        assert engine.generate_all(asked, max_generated_tokens=COUNT) == expected
        assert engine.view().free_blocks == BLOCKS, "no block was lost"
        engine.close()
    assert heard == sent > POINTS * 0.9


def test_an_interrupted_loop_goes_on_where_it_was(model: genai_lab.Model) -> None:
    class Interrupted(Fcfs):
        def plan(self, view: QueueView) -> StepPlan:
            if view.step in (1, 3):
                interrupt()
            return super().plan(view)

    asked = prompts(20, 9)
    with make(model) as engine:
        expected = engine.generate_all(asked, max_generated_tokens=COUNT)
    engine, raised = make(model, policy=Interrupted()), 0
    requests = [engine.create_request() for _ in asked]
    for request, prompt in zip(requests, asked, strict=True):
        options = genai_lab.TurnOptions()
        options.set_max_generated_tokens(COUNT)
        request.begin_turn(prompt, options)
    buffer = engine.create_event_buffer(1)
    while engine.has_pending_requests():
        try:
            engine.run(buffer)
        except KeyboardInterrupt:
            raised += 1
    assert raised == 2
    answers = [r.tokens()[len(p) :].tolist() for r, p in zip(requests, asked, strict=True)]
    assert answers == expected


def test_a_second_interrupt_ends_an_endless_loop(model: genai_lab.Model) -> None:
    def endless(tokens: Any, logits: Any) -> None:
        while True:
            interrupt()

    asked = prompts(20, 9)
    with make(model) as engine:
        expected = engine.generate_all(asked, max_generated_tokens=COUNT)
        with pytest.raises(KeyboardInterrupt):
            engine.generate_all(asked, max_generated_tokens=COUNT, logits_processors=[endless])
        assert engine.generate_all(asked, max_generated_tokens=COUNT) == expected
        assert engine.view().free_blocks == BLOCKS


def test_a_processor_that_would_end_the_program_ends_its_request(model: genai_lab.Model) -> None:
    def leave(tokens: Any, logits: Any) -> None:
        raise SystemExit(3)

    with make(model) as engine:
        bad = engine.submit(prompts(9)[0], max_generated_tokens=COUNT, logits_processors=[leave])
        with pytest.raises(CallableError, match="SystemExit: 3"):
            bad.result()
        assert len(engine.submit(prompts(9)[0], max_generated_tokens=COUNT).result()) <= COUNT


CALLS: dict[str, Callable[[Engine, genai_lab.Request], object]] = {
    "close": lambda engine, request: engine.close(),
    "stop": lambda engine, request: engine.stop(),
    "start": lambda engine, request: engine.start(),
    "step": lambda engine, request: engine.step(),
    "submit": lambda engine, request: engine.submit([5, 6]).result(),
    "generate_all": lambda engine, request: engine.generate_all([[5, 6]]),
    "create_request": lambda engine, request: engine.create_request(),
    "request.close": lambda engine, request: request.close(),
    "cancel_turn": lambda engine, request: request.cancel_turn(1),
    "fork": lambda engine, request: request.fork(),
}


@pytest.mark.parametrize("kind", ["processor", "sampler", "criterion", "policy"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_guest_in_a_step_cannot_call_the_engine(
    model: genai_lab.Model, kind: str, call: Callable[[Engine, genai_lab.Request], object]
) -> None:
    refused: list[str] = []

    def guest(*_: Any) -> Any:
        with pytest.raises(StateError, match="inside its own step"):
            call(engine, request)
        refused.append(kind)
        return 7 if kind == "sampler" else None

    class Asking(OrderedPolicy):
        def plan(self, view: QueueView) -> StepPlan:
            if kind == "policy":
                guest()
            return super().plan(view)

    engine = make(model, policy=Asking())
    request, options = engine.create_request(), genai_lab.TurnOptions()
    options.set_max_generated_tokens(2)
    adding = {
        "processor": options.add_logits_processor,
        "sampler": options.set_sampler,
        "criterion": options.add_stopping_criterion,
    }
    if kind in adding:
        adding[kind](guest)
    request.begin_turn(prompts(9)[0], options)
    assert engine.run_until_idle() > 0
    assert refused
    engine.close()


@pytest.mark.parametrize(
    "name", ["batch_is_exact", "get_capabilities", "max_draft_tokens_per_proposal", "get_speculative_stats"]
)
def test_after_close_every_question_says_so(model: genai_lab.Model, name: str) -> None:
    engine = make(model)
    engine.close()
    with pytest.raises(StateError, match="closed"):
        answer = getattr(engine, name)
        answer()


def test_a_handler_that_is_set_in_a_step_stays(model: genai_lab.Model) -> None:
    """As in "the first Ctrl-C asks, the second one ends"."""
    heard: list[int] = []

    def gently(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, gently)

    class Interrupted(Fcfs):
        def plan(self, view: QueueView) -> StepPlan:
            if not heard:
                interrupt()
            return super().plan(view)

    engine = Engine(model, policy=Interrupted(), max_session_tokens=60)
    request = engine.create_request()
    request.begin_turn([5, 6, 7])
    engine.step()
    assert heard == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_after_an_interrupt_the_buffer_has_only_what_nobody_has_seen(model: genai_lab.Model) -> None:
    engine = Engine(model, max_session_tokens=60)
    request = engine.create_request()
    request.begin_turn([5, 6, 7])
    buffer = engine.create_event_buffer(8)
    engine.run(buffer)
    assert len(buffer) == 1
    step = engine.step

    def interrupted() -> Any:
        raise KeyboardInterrupt

    engine.step = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        engine.run(buffer)
    assert len(buffer) == 0
    engine.step = step  # type: ignore[method-assign]
    engine.run(buffer)
    assert len(buffer) == 1
