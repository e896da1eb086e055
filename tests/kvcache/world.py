"""A manager and a store together, beside a plain model of what must come out.

The "run" writes a tag for every token: a number that stands for the token and everything before it, adapter and salt
included, so a row with another sequence's content cannot look right. The model keeps tokens in lists and findable
blocks in a dictionary; it knows no reference counts, keys or queues.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_lab.kvcache import (
    CacheSnapshot,
    KVLayout,
    PagedCache,
    Receipt,
    RowStore,
    Shortage,
    SlotStore,
    VmStore,
)

BLOCK = 4
LAYOUT = KVLayout(num_layers=2, num_kv_heads=2, head_dim=256, dtype="float32")  # 4 x 256 x f32 = one page
ROWS, CAPACITY = 5, 24
GARBAGE = -7.0
KINDS = [
    "slots",
    pytest.param(
        "vm", marks=pytest.mark.skipif(not VmStore.is_available().available, reason=VmStore.is_available().reason)
    ),
]
Prefix = tuple[str, str, tuple[int, ...]]
WAITING = [  # prompts that wait all the while, as tests of this world begin theirs
    ([1, 1, 2, 1, 2, 2, 1, 2][:shared] + own, adapter, "")
    for shared in (4, 8)
    for own in ([1], [1, 1, 1, 1, 2], [2, 1, 2, 1])
    for adapter in ("", "x")
]


def make_store(kind: str, num_blocks: int) -> RowStore:
    stores: dict[str, type[SlotStore] | type[VmStore]] = {"slots": SlotStore, "vm": VmStore}
    return stores[kind](LAYOUT, ROWS, CAPACITY, num_blocks, BLOCK)


@dataclass
class Live:
    """One request as the model sees it."""

    row: int
    adapter: str
    salt: str
    tokens: list[int]
    """Committed ones."""
    cleared: bool = False
    """The cache was cleared since it came."""
    receipt: Receipt | None = None
    coming: list[int] = field(default_factory=list)
    """What the open receipt is for."""
    before: tuple[int, CacheSnapshot] | None = None
    """When the receipt was made, and the state just before."""
    lost: dict[int, Prefix] = field(default_factory=dict)
    """Blocks that the open receipt evicted."""
    epoch: int = 0
    """How often the cache had been cleared when the open receipt was made."""

    def prefix(self, length: int) -> Prefix:
        return (self.adapter, self.salt, tuple(self.tokens[:length]))


class World:
    def __init__(self, kind: str, num_blocks: int, **options: Any) -> None:
        self.store = make_store(kind, num_blocks)
        self.cache = PagedCache(num_blocks, BLOCK, writes_in_place=self.store.writes_in_place, **options)
        self.live: dict[int, Live] = {}
        self.findable: dict[int, Prefix] = {}
        self.tags: dict[Prefix, int] = {}
        self.step = self.next_request = self.epoch = 0
        self.happened: Counter[str] = Counter()

    @property
    def idle(self) -> list[int]:
        return [request for request, live in self.live.items() if live.receipt is None]

    @property
    def open(self) -> list[int]:
        return [request for request, live in self.live.items() if live.receipt is not None]

    def pick_idle(self, pick: int) -> int:
        return self.idle[pick % len(self.idle)]

    def pick_open(self, pick: int) -> int:
        return self.open[pick % len(self.open)]

    # What a caller does.

    def come_and_run(self, prompt: list[int], answer: list[int], adapter: str, salt: str) -> None:
        """A whole turn, as far as there is room."""
        request = self.allocate(prompt, adapter, salt)
        if request is not None:
            self.run(request, prompt[len(self.live[request].tokens) :])
            for token in answer:
                self.run(request, [token])

    def run(self, request: int, coming: list[int]) -> None:
        self.reserve(request, coming)
        if self.live[request].receipt is not None:
            self.commit(request)

    def rewind_and_run(self, request: int, length: int) -> None:
        """Regenerate what was taken back, which may find its own blocks again."""
        again = self.live[request].tokens[length:]
        self.rewind(request, min(length, len(self.live[request].tokens)))
        for token in again[:-1]:
            self.run(request, [token])

    def fork_and_run(self, request: int, length: int, coming: list[int]) -> None:
        """A branch, then both go on: one of them copies."""
        target = self.fork(request, min(length, len(self.live[request].tokens)))
        self.run(target, coming)
        self.run(request, coming[:1])

    def allocate(self, prompt: list[int], adapter: str, salt: str) -> int | None:
        request, before = self.next_request, self.cache.snapshot()
        expected = self.longest_findable(prompt, adapter, salt)
        fit = self.cache.can_allocate(array(prompt), adapter, salt)
        match = self.cache.match_prefix(array(prompt), adapter, salt)
        assert self.cache.snapshot() == before, "a question changed the state"
        assert match.num_cached_tokens == fit.cached_tokens == expected
        assert fit.needs_blocks == self.whole_needs(prompt, expected)
        allocation = self.cache.allocate(request, array(prompt), adapter, salt, self.step)
        if isinstance(allocation, Shortage):
            assert fit.never_fits and self.cache.snapshot() == before
            return None
        row = min(set(range(ROWS)) - {live.row for live in self.live.values()})
        self.store.load(row, allocation.loads)
        self.live[request] = Live(row, adapter, salt, prompt[:expected])
        self.next_request += 1
        self.happened["shared"] += expected > 0
        return request

    def reserve(self, request: int, coming: list[int]) -> None:
        coming = coming[: CAPACITY - len(self.live[request].tokens)]
        if not coming:
            return
        live, before = self.live[request], self.cache.snapshot()
        receipt = self.cache.reserve_step(request, len(coming), self.step)
        needs, free = self.blocks_needed(request, len(coming), before), len(before.free_queue)
        if isinstance(receipt, Shortage):
            assert needs > free and (receipt.needs, receipt.free) == (needs, free)
            assert self.cache.snapshot() == before
            self.happened["short"] += 1
            return
        assert needs <= free
        assert (receipt.start, receipt.stop) == (len(live.tokens), len(live.tokens) + len(coming))
        live.receipt, live.coming, live.before, live.epoch = receipt, coming, (self.step, before), self.epoch
        live.lost = {eviction.block: self.findable.pop(eviction.block) for eviction in receipt.evicted}
        self.happened["copied"] += len(receipt.copies)
        self.happened["evicted"] += len(receipt.evicted)
        self.happened["overwritten"] += sum(not eviction.policy for eviction in receipt.evicted)
        self.store.reserve(live.row, receipt)

    def commit(self, request: int, surplus: int = 0) -> None:
        """Run all that is reserved, keep all but `surplus` tokens of it, and at least one."""
        live = self.live[request]
        assert live.receipt is not None
        receipt, live.receipt, start = live.receipt, None, len(live.tokens)
        live.tokens += live.coming
        self.write_tags(live, start)
        live.tokens = live.tokens[: max(len(live.tokens) - surplus, start + 1)]
        committed = self.cache.commit(receipt, array(live.tokens))
        self.store.commit(live.row, committed)
        for copy in committed.stores:
            assert copy.stop - copy.start == BLOCK and copy.block not in self.findable
            self.findable[copy.block] = live.prefix(copy.stop)
        self.happened["swapped"] += len(committed.swaps)
        for swap in committed.swaps:
            assert self.findable[swap.new] == live.prefix((swap.index + 1) * BLOCK)
        self.everything_full_is_findable(live)

    def release(self, request: int, *, partly_run: bool) -> None:
        live = self.live[request]
        assert live.receipt is not None and live.before is not None
        receipt, live.receipt = live.receipt, None
        if partly_run:
            self.store.slab[:, :, live.row, :, receipt.start : receipt.stop] = GARBAGE
        self.cache.release(receipt)
        self.store.release(live.row, receipt)
        exact = not (live.lost and self.store.writes_in_place)
        if exact and live.epoch == self.epoch:
            self.findable |= {b: p for b, p in live.lost.items() if p not in self.findable.values()}
        step, before = live.before
        if exact and step == self.step - 1:
            assert self.cache.snapshot() == before, "a release right after its reservation must undo everything"

    def free(self, request: int) -> None:
        live = self.live.pop(request)
        self.cache.free(request, self.step)
        self.store.clear(live.row)

    def rewind(self, request: int, length: int) -> None:
        live = self.live[request]
        self.cache.rewind(request, length, self.step)
        live.tokens = live.tokens[:length]
        self.store.rewind(live.row, length)

    def fork(self, source: int, length: int) -> int:
        origin, target = self.live[source], self.next_request
        forked = self.cache.fork(source, target, length, self.step)
        places = -(-length // BLOCK) - self.cache.first_block(source)
        assert forked.block_table == self.cache.block_table(source)[:places]
        row = min(set(range(ROWS)) - {live.row for live in self.live.values()})
        self.store.copy_row(origin.row, row, length)
        tokens = origin.tokens[:length]
        self.live[target] = Live(row, origin.adapter, origin.salt, tokens, origin.cleared)
        self.next_request += 1
        return target

    def move(self, request: int, pick: int) -> None:
        """The request, and whoever stands in another row without a run under way, change places."""
        under_way = {self.live[other].row for other in self.open}
        places = [row for row in range(ROWS) if row not in under_way]
        live, row = self.live[request], places[pick % len(places)]
        other = next((other for other in self.live.values() if other.row == row), None)
        self.store.swap_rows(live.row, row, len(live.tokens), len(other.tokens) if other else 0)
        if other is not None:
            other.row = live.row
        live.row = row

    def reset(self) -> None:
        assert self.cache.reset_prefix_cache() == len(self.findable)
        self.findable.clear()
        self.epoch += 1
        for live in self.live.values():
            live.cleared = True

    def end(self) -> None:
        """Everybody goes; no block may be missing."""
        for request in self.open:
            self.release(request, partly_run=True)
            self.step += 1  # what is released next was not reserved right before
        for request in self.idle:
            self.free(request)
        usage = self.cache.usage()
        assert usage.blocks_used == usage.tokens_used == 0, "a block was lost"
        assert self.cache.check() == []
        self.store.close()

    # What must hold.

    def longest_findable(self, prompt: list[int], adapter: str, salt: str) -> int:
        known = set(self.findable.values())
        length = 0
        while length + BLOCK < len(prompt) and (adapter, salt, tuple(prompt[: length + BLOCK])) in known:
            length += BLOCK
        return length

    def whole_needs(self, prompt: list[int], cached: int) -> int:
        """Blocks for a whole prompt of which `cached` tokens are there."""
        return -(-len(prompt) // BLOCK) - cached // BLOCK

    def blocks_needed(self, request: int, count: int, s: CacheSnapshot) -> int:
        """Blocks for `count` more tokens, and one for a copy when the last block is not the request's alone."""
        length = len(self.live[request].tokens)
        fresh = -(-(length + count) // BLOCK) - -(-length // BLOCK)
        if length % BLOCK == 0:
            return fresh
        last = s.block(self.cache.block_table(request)[-1])
        alone = len(last.owners) == 1
        if alone and (last.hash is None or fresh + 1 > len(s.free_queue)):
            return fresh
        return fresh + 1

    def everything_full_is_findable(self, live: Live) -> None:
        if live.cleared or not self.cache.prefix_caching:
            return
        known = set(self.findable.values())
        assert all(live.prefix(stop) in known for stop in range(BLOCK, len(live.tokens) + 1, BLOCK))

    def check(self) -> None:
        assert self.cache.check() == []
        assert self.cache.usage() == self.cache.snapshot().usage()
        assert len(set(self.findable.values())) == len(self.findable), "one content, two findable blocks"
        self.check_waiting()
        snapshot = self.cache.snapshot()
        assert {block for block, hash_ in enumerate(snapshot.hashes) if hash_ is not None} == set(self.findable)
        for request, live in self.live.items():
            assert self.cache.num_tokens(request) == len(live.tokens)
            if live.receipt is None:
                self.check_row(live)

    def check_waiting(self) -> None:
        """What is kept of a walk is what a fresh one finds."""
        for number, (prompt, adapter, salt) in enumerate(WAITING):
            kept = self.cache.waiting_prefix(number, 0, array(prompt), adapter, salt)
            match = self.cache.match_prefix(array(prompt), adapter, salt)
            found = (kept.num_blocks, kept.num_cached_tokens, kept.first_block)
            assert found == (len(match.blocks), match.num_cached_tokens, match.first_block)
            following = array(prompt[: kept.num_cached_tokens + BLOCK]).tobytes()
            whole = kept.num_cached_tokens + BLOCK <= len(prompt)
            assert kept.next_block == ((adapter, salt, following) if whole else None)

    def check_row(self, live: Live) -> None:
        length = len(live.tokens)
        expected = self.expected(live, 0, length)
        row = self.store.slab[:, :, live.row, :, :length]
        np.testing.assert_array_equal(row[..., 0], expected)
        np.testing.assert_array_equal(row[..., -1], expected)

    def write_tags(self, live: Live, start: int) -> None:
        stop = len(live.tokens)
        self.store.slab[:, :, live.row, :, start:stop] = self.expected(live, start, stop)[..., None]

    def expected(self, live: Live, start: int, stop: int) -> NDArray[np.float32]:
        """[layers, 2, kv_heads, tokens]: each layer, key or value and head has a number of its own."""
        parts = np.arange(LAYOUT.num_layers * 2 * LAYOUT.num_kv_heads).reshape(LAYOUT.num_layers, 2, -1, 1)
        tags = [self.tags.setdefault(live.prefix(end), len(self.tags) + 1) for end in range(start + 1, stop + 1)]
        return (np.array(tags, np.float32) * parts.size + parts).astype(np.float32)


def array(tokens: list[int]) -> NDArray[np.int32]:
    return np.array(tokens, np.int32)
