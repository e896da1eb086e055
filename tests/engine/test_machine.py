"""Any order of arrivals, steps, failing runs, cancels, closes and further turns, against a model that knows only what
each request was asked: every answer is the beginning of the one that a Generator gives."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import genai_lab
from genai_lab.engine import Engine, EngineEventFlags, Fcfs, OrderedPolicy, PrefixFirst, PriorityFirst, ShortestFirst
from genai_lab.engine.invariants import same_tokens_as_alone
from genai_lab.types import FinishReason
from tests.engine.asking import Tokens, alone, prompts
from tests.engine.storm import Asked, BoomError, ask

POLICIES: dict[str, OrderedPolicy] = {
    "fcfs": Fcfs(),
    "skipping": Fcfs(skip_blocked=True),
    "shortest": ShortestFirst(patience=5),
    "prefix": PrefixFirst(patience=5),
    "priority": PriorityFirst(patience=5),
}
PROMPTS: list[Tokens] = [*prompts(1, 2, 5, 9, 14, shared=8), *prompts(1, 3, 20, 60, seed=1)]


class EngineMachine(RuleBasedStateMachine):
    """The engine has its own checks on; the machine judges what comes out."""

    model: ClassVar[genai_lab.Model]
    prompts: ClassVar[list[Tokens]] = PROMPTS
    longest: ClassVar[int] = 90  # conversation

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        rows=st.integers(1, 4),
        blocks=st.integers(8, 24),
        budget=st.sampled_from([3, 7, 64]),
        chunk=st.sampled_from([3, 5, 64]),
        caching=st.booleans(),
    )
    def make(self, policy: str, rows: int, blocks: int, budget: int, chunk: int, caching: bool) -> None:
        self.engine = Engine(
            self.model,
            policy=POLICIES[policy],
            max_batch_size=rows,
            max_scheduled_tokens=budget,
            max_session_tokens=self.longest,
            block_size=4,
            num_blocks=blocks,
            chunk_size=chunk,
            prefix_caching=None if caching else False,
            check_invariants=True,
        )
        self.asked: dict[int, Asked] = {}
        self.handles: dict[int, genai_lab.Request] = {}
        self.buffer = self.engine.create_event_buffer(3)

    @rule(prompt=st.sampled_from(range(len(PROMPTS))), count=st.integers(1, 12), seed=st.none() | st.integers(0, 2))
    def arrive(self, prompt: int, count: int, seed: int | None) -> None:
        request = self.engine.create_request()
        asked = Asked(self.prompts[prompt], count, seed)
        self.asked[request.number], self.handles[request.number] = asked, request
        ask(request, asked)

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.engine.step()

    @rule(place=st.sampled_from(["decode", "chunk", "reserve"]), late=st.booleans())
    def fail(self, place: str, late: bool) -> None:
        owner, name = self.owner_of(place)
        real = getattr(owner, name)

        def failing(*args: object) -> None:
            if late:
                real(*args)
            raise BoomError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, failing)
            before = self.engine.steps
            try:
                self.engine.step()
            except BoomError:
                assert self.engine.steps == before

    def owner_of(self, place: str) -> tuple[object, str]:
        """What a place is a method of, and its name there."""
        runner = self.engine._runner
        return (runner.store if place == "reserve" else runner.executor), place

    def expected(self, asked: Asked) -> list[int]:
        """What a request gets alone."""
        return answer(self.model, asked)

    @rule()
    def run(self) -> None:
        if self.engine.has_pending_requests():
            self.take()

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.handles)))
        under_way = self.handles[number].cancel_turn(self.asked[number].turns)
        assert not (under_way and self.asked[number].finish)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), drop=st.booleans())
    def close(self, data: st.DataObject, drop: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.handles)))
        self.asked[number].gone = True
        handle = self.handles.pop(number)
        self.buffer = self.engine.create_event_buffer(3)  # the old one may hold the handle
        if not drop:
            handle.close()
        del handle
        assert number not in self.engine._states

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), seed=st.integers(0, 2))
    def fork(self, data: st.DataObject, seed: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.handles)))
        asked, state = self.asked[number], self.engine._states[number]
        assert state.turn is not None
        if asked.seed is not None and state.turn.generated:
            return  # it draws on from another stream: nobody else gets that answer
        twin = self.handles[number].fork(seed=seed)
        one = Asked(asked.prompt, asked.count, None if asked.seed is None else seed)
        one.tokens, one.turns = twin.tokens()[asked.prompt.size :].tolist(), asked.turns
        one.finish = state.turn.finish
        self.asked[twin.number], self.handles[twin.number] = one, twin

    @precondition(lambda self: any(asked.finish for n, asked in self.asked.items() if n in self.handles))
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        over = [n for n in self.handles if self.asked[n].finish is not None]
        number = data.draw(st.sampled_from(sorted(over)))
        asked, handle = self.asked[number], self.handles[number]
        handle.rewind_to_start_of_turn(asked.turns)
        assert handle.tokens().size == 0
        asked.tokens.clear()
        asked.finish, asked.turns = None, asked.turns + 1
        ask(handle, asked)

    @invariant()
    def answers_are_those_alone(self) -> None:
        if not hasattr(self, "asked"):
            return
        early = {
            n for n, asked in self.asked.items() if asked.finish in (None, FinishReason.CANCELLED, FinishReason.FAILED)
        }
        expected = {n: self.expected(asked) for n, asked in self.asked.items() if asked.tokens or n not in early}
        assert same_tokens_as_alone({n: asked.tokens for n, asked in self.asked.items()}, expected, early) == []

    def teardown(self) -> None:
        if not hasattr(self, "asked"):
            return
        for _ in range(600):  # no order of calls leaves an engine that goes round and round
            if self.engine.has_pending_requests():
                self.take()
        assert not self.engine.has_pending_requests(), [d.in_words() for d in self.engine.step()]
        for number in self.handles:
            asked = self.asked[number]
            assert asked.finish is not None
            blocks = self.engine.limits.num_blocks
            if asked.finish is FinishReason.FAILED:
                assert asked.prompt.size + asked.count > (blocks - 1) * 4
        self.answers_are_those_alone()
        self.engine.close()
        assert self.engine._cache.usage().blocks_used == 0
        assert self.engine._rows.free == self.engine.limits.max_batch_size

    def take(self) -> None:
        """Take events."""
        for event in self.engine.run(self.buffer):
            if event.request is None:
                continue
            asked = self.asked[event.request.number]
            assert asked.finish is None
            if event.token is not None:
                asked.tokens.append(event.token)
            if event.flags & EngineEventFlags.TURN_FINISHED:
                asked.finish = event.finish_reason


@cache
def _answer(model: genai_lab.Model, prompt: bytes, seed: int | None) -> list[int]:
    found = next(p for p in PROMPTS if p.tobytes() == prompt)
    return alone(model, found, 12, seed, **Asked(found, 12, seed).options)


def answer(model: genai_lab.Model, asked: Asked) -> list[int]:
    """What a Generator says; a shorter answer is the beginning of a longer one."""
    return _answer(model, asked.prompt.tobytes(), asked.seed)[: asked.count]


@pytest.mark.slow
def test_any_order_of_calls(tiny_folder: object) -> None:
    EngineMachine.model = genai_lab.Model(tiny_folder)  # type: ignore[arg-type]
    run_machine(EngineMachine, 40)


def run_machine(machine: type[EngineMachine], examples: int) -> None:
    """Try many orders of calls."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
