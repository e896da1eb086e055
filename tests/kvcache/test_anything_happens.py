"""Requests come, run, fail, fork, rewind and go in any order, in pools far too small; contents stay right."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.kvcache.world import CAPACITY, KINDS, ROWS, World

SHARED = [1, 1, 2, 1, 2, 2, 1, 2]  # prompts begin like this, so that prefixes are found
TOKENS = st.lists(st.integers(1, 2), min_size=1, max_size=6)
NAMES = st.sampled_from(["", "", "", "x"])
PICK = st.integers(0, ROWS - 1)


class AnythingHappens(RuleBasedStateMachine):
    kind = "slots"
    prefix_caching = True

    @initialize(num_blocks=st.integers(3, 11))
    def begin(self, num_blocks: int) -> None:
        self.world = World(self.kind, num_blocks, prefix_caching=self.prefix_caching)

    def room(self) -> bool:
        return len(self.world.live) < ROWS

    @precondition(room)
    @rule(shared=st.integers(0, 8), own=TOKENS, answer=TOKENS, adapter=NAMES, salt=NAMES)
    def a_request_comes_and_runs(self, shared: int, own: list[int], answer: list[int], adapter: str, salt: str) -> None:
        self.world.come_and_run(SHARED[:shared] + own, answer, adapter, salt)

    @precondition(room)
    @rule(shared=st.integers(0, 8), own=TOKENS, adapter=NAMES, salt=NAMES)
    def a_request_comes(self, shared: int, own: list[int], adapter: str, salt: str) -> None:
        self.world.allocate(SHARED[:shared] + own, adapter, salt)

    @precondition(lambda self: self.world.idle)
    @rule(pick=PICK, coming=TOKENS)
    def run(self, pick: int, coming: list[int]) -> None:
        self.world.run(self.world.pick_idle(pick), coming)

    @precondition(lambda self: self.world.idle)
    @rule(pick=PICK, coming=TOKENS)
    def reserve(self, pick: int, coming: list[int]) -> None:
        self.world.reserve(self.world.pick_idle(pick), coming)

    @precondition(lambda self: self.world.open)
    @rule(pick=PICK, surplus=st.integers(0, 3))
    def commit(self, pick: int, surplus: int) -> None:
        self.world.commit(self.world.pick_open(pick), surplus)

    @precondition(lambda self: self.world.open)
    @rule(pick=PICK, partly_run=st.booleans())
    def release(self, pick: int, partly_run: bool) -> None:
        self.world.release(self.world.pick_open(pick), partly_run=partly_run)

    @precondition(lambda self: self.world.idle)
    @rule(pick=PICK)
    def free(self, pick: int) -> None:
        self.world.free(self.world.pick_idle(pick))

    @precondition(lambda self: self.world.idle)
    @rule(pick=PICK, length=st.integers(0, CAPACITY))
    def rewind_and_run(self, pick: int, length: int) -> None:
        self.world.rewind_and_run(self.world.pick_idle(pick), length)

    @precondition(lambda self: self.world.idle and self.room())
    @rule(pick=PICK, length=st.integers(0, CAPACITY), coming=TOKENS)
    def fork_and_run(self, pick: int, length: int, coming: list[int]) -> None:
        self.world.fork_and_run(self.world.pick_idle(pick), length, coming)

    @precondition(lambda self: self.world.idle)
    @rule(pick=PICK, place=PICK)
    def move(self, pick: int, place: int) -> None:
        self.world.move(self.world.pick_idle(pick), place)

    @precondition(lambda self: len(self.world.findable) > 3)
    @rule()
    def reset(self) -> None:
        self.world.reset()

    @invariant()
    def all_is_well(self) -> None:
        self.world.step += 1
        self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()


@pytest.mark.slow
@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_anything_happens(kind: str, prefix_caching: bool) -> None:
    machine = type("Machine", (AnythingHappens,), {"kind": kind, "prefix_caching": prefix_caching})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=30))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_blocks", [5, 9, 14])
def test_a_long_life_in_a_small_pool(kind: str, num_blocks: int) -> None:
    """Hundreds of requests through one pool, so that every block is reused many times in every way."""
    dice, world = random.Random(num_blocks), World(kind, num_blocks)

    def tokens() -> list[int]:
        return [dice.choice([1, 1, 2]) for _ in range(dice.randint(1, 6))]

    def come() -> None:
        prompt, names = SHARED[: dice.choice([0, 4, 5, 8])] + tokens(), dice.choice([("", ""), ("", ""), ("x", "y")])
        if dice.random() < 0.7:
            world.come_and_run(prompt, tokens(), *names)
        else:
            world.allocate(prompt, *names)

    def act() -> None:
        pick, length = dice.randrange(ROWS), dice.randrange(CAPACITY)
        if world.open and dice.random() < 0.5:
            request = world.pick_open(pick)
            if dice.random() < 0.6:
                world.commit(request, dice.choice([0, 0, 1, 3]))
            else:
                world.release(request, partly_run=dice.random() < 0.5)
        elif world.idle:
            request = world.pick_idle(pick)
            actions = [world.free, world.free, lambda r: world.rewind_and_run(r, length)]
            actions += [lambda r: world.run(r, tokens()), lambda r: world.reserve(r, tokens())]
            actions += [lambda r: world.move(r, length)]
            if len(world.live) < ROWS:
                actions += [lambda r: world.fork_and_run(r, length, tokens())]
            dice.choice(actions)(request)

    for step in range(1_500):
        world.step += 1
        if len(world.live) < ROWS and dice.random() < 0.4:
            come()
        elif step % 300 == 299:
            world.reset()
        else:
            act()
        world.check()
    wanted = ["evicted", "copied", "shared", "swapped", "short", "overwritten"][: 6 if num_blocks == 5 else 5]
    assert min(world.happened[what] for what in wanted) > 0, world.happened
    world.end()
