"""Requests come, run, fail, fork, rewind and go in any order, in pools far too small; contents stay right."""

from __future__ import annotations

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

from genai_lab.kvcache import VmStore
from tests.kvcache.world import CAPACITY, ROWS, World

TOKEN = st.integers(1, 2)
SHARED = [1, 1, 2, 1, 2, 2, 1, 2]  # many prompts begin like this, so that prefixes are found
PROMPTS = st.builds(
    lambda shared, own: (SHARED[:shared] + own)[: CAPACITY // 2],
    st.integers(0, 8),
    st.lists(TOKEN, min_size=1, max_size=6),
)
NAMES = st.sampled_from(["", "", "", "x"])


class AnythingHappens(RuleBasedStateMachine):
    kind = "slots"
    prefix_caching = True

    @initialize(num_blocks=st.integers(2, 11))
    def begin(self, num_blocks: int) -> None:
        self.world = World(self.kind, num_blocks, prefix_caching=self.prefix_caching)

    def idle(self) -> list[int]:
        return [request for request, live in self.world.live.items() if live.receipt is None]

    def open(self) -> list[int]:
        return [request for request, live in self.world.live.items() if live.receipt is not None]

    @precondition(lambda self: len(self.world.live) < ROWS)
    @rule(prompt=PROMPTS, adapter=NAMES, salt=NAMES)
    def allocate(self, prompt: list[int], adapter: str, salt: str) -> None:
        self.world.allocate(prompt, adapter, salt)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), coming=st.lists(TOKEN, min_size=1, max_size=9))
    def reserve(self, data: st.DataObject, coming: list[int]) -> None:
        request = data.draw(st.sampled_from(self.idle()))
        room = CAPACITY - len(self.world.live[request].tokens)
        if room:
            self.world.reserve(request, coming[:room])

    @precondition(lambda self: self.open())
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.open()))
        count = len(self.world.live[request].coming)
        self.world.commit(request, data.draw(st.sampled_from([count, count, max(count // 2, 1)])))

    @precondition(lambda self: self.open())
    @rule(data=st.data(), partly_run=st.booleans())
    def release(self, data: st.DataObject, partly_run: bool) -> None:
        self.world.release(data.draw(st.sampled_from(self.open())), partly_run=partly_run)

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.world.free(data.draw(st.sampled_from(self.idle())))

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.idle()))
        self.world.rewind(request, data.draw(st.integers(0, len(self.world.live[request].tokens))))

    @precondition(lambda self: self.idle() and len(self.world.live) < ROWS)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.idle()))
        self.world.fork(request, data.draw(st.integers(0, len(self.world.live[request].tokens))))

    @precondition(lambda self: self.idle() and len(self.world.live) < ROWS)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        self.world.move(data.draw(st.sampled_from(self.idle())))

    @rule(really=st.integers(0, 5))
    def reset(self, really: int) -> None:
        if really == 5:
            self.world.reset()

    @invariant()
    def all_is_well(self) -> None:
        self.world.step += 1
        self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for request in self.open():
            self.world.release(request, partly_run=True)
        for request in self.idle():
            self.world.free(request)
        usage = self.world.cache.usage()
        assert usage.blocks_used == usage.tokens_used == 0, "a block was lost"
        assert self.world.cache.check() == []
        self.world.store.close()


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("kind", ["slots", "vm"])
def test_anything_happens(kind: str, prefix_caching: bool) -> None:
    if kind == "vm" and not VmStore.is_available().available:
        pytest.skip(VmStore.is_available().reason)
    machine = type("Machine", (AnythingHappens,), {"kind": kind, "prefix_caching": prefix_caching})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=40))
