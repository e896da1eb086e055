"""Rows and blocks in memory: both stores, seen through the same eyes, and what only the mapped one can do."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from genai_lab.errors import ArgumentError, CapacityError, StateError
from genai_lab.kvcache import (
    BlockCopy,
    Committed,
    CopyOnWrite,
    KVLayout,
    Receipt,
    RowStore,
    SlotStore,
    Swap,
    VmStore,
    pages,
)
from tests.kvcache.world import BLOCK, CAPACITY, KINDS, LAYOUT, ROWS, make_store

needs_pages = pytest.mark.skipif(not VmStore.is_available().available, reason=VmStore.is_available().reason)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> RowStore:
    store = make_store(request.param, num_blocks=8)
    fill = np.arange(8, dtype=np.float32).reshape(8, 1, 1, 1, 1, 1) + 1  # block b holds b + 1
    store.pool[...] = fill  # type: ignore[attr-defined]
    return store


def row_of(store: RowStore, row: int) -> list[float]:
    """One number per block of the row; all its values must be that number."""
    parts = store.slab[:, :, row].reshape(2, 2, 2, CAPACITY // BLOCK, -1)
    assert (parts == parts[:1, :1, :1, :, :1]).all()
    return [float(value) for value in parts[0, 0, 0, :, 0]]


def receipt(start: int, stop: int, new: tuple[int, ...] = (), copies: tuple[CopyOnWrite, ...] = ()) -> Receipt:
    return Receipt(0, 0, start, stop, -(-start // BLOCK), new, copies, ())


def loads(*blocks: int) -> list[BlockCopy]:
    return [BlockCopy(block, i * BLOCK, (i + 1) * BLOCK) for i, block in enumerate(blocks)]


def test_rows_are_contiguous_and_start_empty(store: RowStore) -> None:
    assert store.slab.shape == (2, 2, ROWS, 2, CAPACITY, 256) and store.slab.dtype == np.float32
    assert store.slab[0, 1, 1:4].flags.c_contiguous and store.slab.flags.writeable
    assert row_of(store, 2) == [0.0] * 6


def test_adopted_blocks_appear_in_order(store: RowStore) -> None:
    store.load(1, loads(3, 4, 0, 7))
    assert row_of(store, 1) == [4, 5, 1, 8, 0, 0]
    assert row_of(store, 0) == row_of(store, 2) == [0] * 6


def test_what_a_run_writes_is_found_by_the_next_request(store: RowStore) -> None:
    store.load(0, loads(6))
    store.reserve(0, receipt(4, 10, new=(2, 5)))
    store.slab[:, :, 0, :, 4:8], store.slab[:, :, 0, :, 8:10] = 50, 60
    store.commit(0, Committed((BlockCopy(2, 4, 8),), 1, (), 10))
    store.clear(0)
    store.load(3, loads(6, 2))
    assert row_of(store, 3)[:2] == [7, 50]


def test_a_fork_leaves_its_origin_alone(store: RowStore) -> None:
    store.load(0, loads(6, 1))
    store.copy_row(0, 4, 6)
    store.reserve(4, receipt(6, 8, copies=(CopyOnWrite(1, 1, 3),)))
    store.slab[:, :, 4, :, 6:8] = 50
    assert row_of(store, 0)[:2] == [7, 2]
    np.testing.assert_array_equal(store.slab[1, 0, 4, 1, :8, 0], [7, 7, 7, 7, 2, 2, 50, 50])


def test_a_released_run_is_forgotten(store: RowStore) -> None:
    store.load(0, loads(6, 1))
    store.rewind(0, 6)
    failed = receipt(6, 12, new=(2,), copies=(CopyOnWrite(1, 1, 3),))
    store.reserve(0, failed)
    store.slab[:, :, 0, :, 6:12] = -1
    store.release(0, failed)
    np.testing.assert_array_equal(store.slab[0, 1, 0, 0, :6, 5], [7, 7, 7, 7, 2, 2])
    store.reserve(0, receipt(6, 8, copies=(CopyOnWrite(1, 1, 3),)))
    store.slab[:, :, 0, :, 6:8] = 50
    np.testing.assert_array_equal(store.slab[0, 1, 0, 0, :8, 5], [7, 7, 7, 7, 2, 2, 50, 50])
    store.load(1, loads(6, 1))
    assert row_of(store, 1)[:2] == [7, 2], "the shared block is untouched"


def test_a_sequence_moves_to_another_row(store: RowStore) -> None:
    store.load(0, loads(6, 1, 2))
    store.swap_rows(0, 3, 10, 0)
    store.reserve(3, receipt(10, 12, copies=(CopyOnWrite(2, 2, 5),)))
    store.slab[:, :, 3, :, 10:12] = 50
    np.testing.assert_array_equal(store.slab[0, 0, 3, 0, :12:2, 0], [7, 7, 2, 2, 3, 50])


def test_two_sequences_change_places(store: RowStore) -> None:
    store.load(0, loads(6, 1, 2))
    store.load(3, loads(4))
    assert 0 < store.moving_cost(3, 4) < store.moving_cost(0, 12), "an emptier row is easier to move"
    store.swap_rows(0, 3, 12, 4)
    store.swap_rows(3, 3, 12, 12)
    np.testing.assert_array_equal(store.slab[1, 1, 3, 0, :12:2, 0], [7, 7, 2, 2, 3, 3])
    np.testing.assert_array_equal(store.slab[1, 1, 0, 0, :4:2, 0], [5, 5])
    store.swap_rows(3, 4, 12, 0)
    assert store.moving_cost(3, 0) == 0, "nothing is left in the row that was moved"
    np.testing.assert_array_equal(store.slab[0, 0, 4, 0, :12:2, 5], [7, 7, 2, 2, 3, 3])


def test_rows_and_positions_that_are_not_there(store: RowStore) -> None:
    for row in (-1, ROWS):
        with pytest.raises(ArgumentError, match=f"row is {row}; the store has rows 0 to 4"):
            store.load(row, loads(1))
        with pytest.raises(ArgumentError, match=f"row is {row}"):
            store.copy_row(0, row, 0)
        with pytest.raises(ArgumentError, match=f"row is {row}"):
            store.swap_rows(0, row, 0, 0)
    with pytest.raises(ArgumentError, match="not in a row of 24 tokens; make the store with a larger capacity"):
        store.reserve(0, receipt(20, 25, new=(1,)))
    with pytest.raises(ArgumentError, match="not in a row of 24"):
        store.load(0, [BlockCopy(1, 24, 28)])


def test_a_closed_store_says_so(store: RowStore) -> None:
    held = store.slab
    held[...] = 3
    store.close()
    store.close()
    with pytest.raises(StateError, match="the store is closed"):
        _ = store.slab
    with pytest.raises(StateError, match="the store is closed"):
        store.load(0, loads(1))
    held[0, 0, 0] = 5  # an array that somebody kept is still memory


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_checked_before_memory_is_taken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="num_blocks=0"):
        make_store(kind, 0)
    monkeypatch.setattr("genai_lab.kvcache.contiguous.memory_limit_bytes", lambda: 100_000)
    monkeypatch.setattr(np, "zeros", None)
    monkeypatch.setattr(pages, "memory_file", None)
    with pytest.raises(CapacityError, match="this machine has 100,000"):
        make_store(kind, 1000)


def test_slots_count_rows_and_pool() -> None:
    store = SlotStore(KVLayout(3, 2, 8, "float16"), rows=2, capacity=10, num_blocks=5, block_size=4)
    assert store.nbytes == store.slab.nbytes + store.pool.nbytes == 3 * 2 * 2 * 8 * 2 * (20 + 20)
    store.pool[4] = 2.5
    store.copy_block(4, 1)
    store.load(1, [BlockCopy(1, 8, 10)])
    assert (store.slab[:, :, 1, :, 8:] == 2.5).all() and not store.slab[:, :, 1, :, :8].any()
    store.store(1, [BlockCopy(0, 6, 10)])
    assert (store.pool[0, ..., 2:, :] == 2.5).all() and not store.pool[0, ..., :2, :].any()


# What is only true of pages.


def maps() -> int:
    return pages.mappings_now()


def vm_store(**options: int) -> VmStore:
    return VmStore(LAYOUT, ROWS, CAPACITY, 8, BLOCK, **options)


@needs_pages
def test_a_shared_prefix_is_the_same_memory() -> None:
    store = vm_store()
    for row in range(3):
        store.load(row, loads(2, 3))
    store.slab[1, 1, 0, 1, 5, 7] = 9
    assert store.slab[1, 1, 2, 1, 5, 7] == 9 and store.pool[3, 1, 1, 1, 1, 7] == 9
    store.commit(1, Committed((), 0, (Swap(1, 3, 6),), 8))
    assert store.block_table(1) == (2, 6) and store.slab[1, 1, 1, 1, 5, 7] == 0


@needs_pages
def test_an_idle_row_is_nobodys_memory() -> None:
    store = vm_store()
    store.load(0, loads(2))
    store.slab[:, :, 0, :, :4] = 8
    store.clear(0)
    assert not store.slab[:, :, 0].any()
    store.slab[:, :, 0] = 5
    assert (store.pool[2] == 8).all()


@needs_pages
def test_a_released_runs_blocks_are_unmapped() -> None:
    store = vm_store()
    store.load(0, loads(2))
    failed = receipt(2, 12, new=(0, 1), copies=(CopyOnWrite(0, 2, 5),))
    store.reserve(0, failed)
    assert store.block_table(0) == (5, 0, 1)
    store.release(0, failed)
    assert store.block_table(0) == (2,)


@needs_pages
def test_surplus_blocks_are_unmapped_at_commit() -> None:
    store = vm_store()
    store.reserve(0, receipt(0, 12, new=(0, 1, 2)))
    store.commit(0, Committed((), 0, (), 5))
    assert store.block_table(0) == (0, 1)
    store.rewind(0, 4)
    assert store.block_table(0) == (0,)


@needs_pages
def test_mappings_are_counted_and_neighbours_are_one() -> None:
    base = maps()
    store = vm_store()
    empty = store.num_mappings
    assert maps() - base <= empty
    store.load(0, loads(0, 1, 2, 3))
    assert store.num_mappings == empty - 4 + 8 * 2  # 8 heads: blocks and rest; before: keys and values of two layers
    assert maps() - base <= store.num_mappings
    store.load(1, loads(0, 2, 4, 6))
    assert store.num_mappings == empty - 8 + 8 * 2 + 8 * 5
    assert maps() - base <= store.num_mappings


@needs_pages
def test_too_many_mappings_are_refused_before_anything_changes() -> None:
    store = vm_store(max_mappings=65)
    store.load(0, loads(0, 2, 4))
    with pytest.raises(CapacityError, match=r"3 separate pieces needs 7\d memory mappings .* 65 are allowed"):
        store.load(1, loads(0, 2, 4))
    assert store.block_table(1) == () and not store.slab[:, :, 1].any()
    store.load(1, loads(3, 4, 5, 6))
    assert store.block_table(1) == (3, 4, 5, 6)


@pytest.mark.slow
@needs_pages
def test_nothing_leaks() -> None:
    vm_store().close()
    gc.collect()
    mappings, files = maps(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        store = vm_store()
        for row in range(ROWS):
            store.load(row, loads(row, 5, 2, 7))
        store.slab[...] = 1
        store.close()
    dropped = vm_store()
    held = dropped.slab[0]
    dropped.load(0, loads(1, 3))
    del dropped
    held[...] = 2  # an array outlives its store
    del held
    gc.collect()
    assert maps() <= mappings + 1 and len(os.listdir("/proc/self/fd")) == files
    assert "genai_lab-kv" not in Path("/proc/self/maps").read_text()


@needs_pages
def test_blocks_must_fill_pages() -> None:
    assert VmStore.is_available(LAYOUT, BLOCK).available
    answer = VmStore.is_available(KVLayout(1, 1, 64, "int8"), 16)
    assert not answer.available
    assert answer.reason == (
        "a block of one head has 16 x 64 x int8 = 1,024 bytes, which is not a multiple of the page size 4,096 "
        "(a block_size of 64, or a multiple of it, is)"
    )
    with pytest.raises(ArgumentError, match=r"not a multiple of the page size .* use kv_backend='slots'"):
        VmStore(KVLayout(1, 1, 64, "int8"), 1, 16, 1, 16)
    with pytest.raises(ArgumentError, match="capacity is 18; it must be a multiple of block_size = 4"):
        VmStore(LAYOUT, 1, 18, 1, 4)
    assert VmStore(KVLayout(1, 1, 64, "int8"), 1, 64, 1, 64).slab.dtype == np.int8


@needs_pages
def test_blocks_that_are_not_there() -> None:
    store = vm_store()
    with pytest.raises(ArgumentError, match="block is 8; the pool has blocks 0 to 7"):
        store.map_block(0, 0, 8)
    with pytest.raises(ArgumentError, match="index is 1; row 0 has 0 blocks, so 0 to 0 is allowed"):
        store.map_block(0, 1, 3)
    with pytest.raises(ArgumentError, match="not in a row of 4 tokens"):
        store.map_block(0, 0, 3), store.copy_row(0, 1, 5)  # only one block is mapped


def test_where_pages_cannot_be_mapped_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise PermissionError("not here")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    assert VmStore.is_available().reason == "the system gives no memory file (memfd_create): not here"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert VmStore.is_available().reason == "mapping pages of a memory file needs Linux, this is darwin"
    with pytest.raises(ArgumentError, match="this is darwin; use kv_backend='slots'"):
        VmStore(LAYOUT, 1, CAPACITY, 1, BLOCK)


@needs_pages
def test_a_refusal_of_the_system_is_an_error_in_words() -> None:
    with pytest.raises(CapacityError, match=r"refused to map .* \(ENOMEM: Cannot allocate memory\)"):
        pages.AddressRange(2**62)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from Linux's /proc")
def test_a_row_takes_memory_for_the_tokens_it_holds() -> None:
    store = SlotStore(KVLayout(30, 3, 64, "float32"), rows=4, capacity=2048, num_blocks=8, block_size=16)
    before = resident_bytes()
    for row in range(4):
        store.slab[:, :, row, :, :64] = 1
    needed = 4 * 64 * store.layout.bytes_per_token
    assert resident_bytes() - before < 3 * needed  # with huge pages it would be twenty times as much


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_idle_row_writes_where_nobody_reads(store: RowStore) -> None:
    store.load(0, loads(6, 1))
    store.load(1, loads(6, 1))
    store.rewind(1, 6)
    store.slab[:, :, 1, :, store.idle_position(1, 6)] = -1
    assert row_of(store, 0)[:2] == [7, 2]
    np.testing.assert_array_equal(store.slab[0, 0, 1, 0, :6, 0], [7, 7, 7, 7, 2, 2])
    store.reserve(2, receipt(0, 4, new=(3,)))
    store.slab[:, :, 2, :, :4] = 50
    store.commit(2, Committed((BlockCopy(3, 0, 4),), 1, (), 4))
    store.clear(2)
    store.slab[:, :, 2, :, store.idle_position(2, 0)] = -1
    store.load(3, loads(3))
    assert row_of(store, 3)[0] == 50


def test_an_idle_row_keeps_what_stands_behind_its_tokens_for_others(store: RowStore) -> None:
    """A row keeps two blocks for whoever finds them; its next sequence has one block, and is carried along."""
    store.reserve(2, receipt(0, 8, new=(3, 4)))
    store.slab[:, :, 2, :, :4], store.slab[:, :, 2, :, 4:8] = 50, 60
    store.commit(2, Committed((BlockCopy(3, 0, 4), BlockCopy(4, 4, 8)), 2, (), 8))
    store.clear(2)
    store.load(2, loads(1))
    store.slab[:, :, 2, :, store.idle_position(2, 4)] = -1
    store.load(3, (BlockCopy(3, 0, 4), BlockCopy(4, 4, 8)))
    np.testing.assert_array_equal(store.slab[0, 0, 3, 0, :8, 0], [50] * 4 + [60] * 4)


def test_found_blocks_stay_in_their_row_until_they_are_overwritten() -> None:
    store = SlotStore(LAYOUT, ROWS, CAPACITY, 8, BLOCK)
    memory = store._pool
    assert memory is not None
    store.reserve(0, receipt(0, 8, new=(2, 5)))
    store.slab[:, :, 0, :, :4], store.slab[:, :, 0, :, 4:8] = 50, 60
    store.commit(0, Committed((BlockCopy(2, 0, 4), BlockCopy(5, 4, 8)), 2, (), 8))
    store.clear(0)
    store.load(3, loads(2, 5))
    assert row_of(store, 3)[:2] == [50, 60] and not memory.any(), "from row to row"
    store.load(0, loads(2))
    store.reserve(0, receipt(4, 8, new=(7,)))
    assert (memory[5] == 60).all() and not memory[2].any(), "only what is about to be overwritten is copied"
    store.slab[:, :, 0, :, 4:8] = 70
    store.commit(0, Committed((), 0, (), 8))
    store.load(1, loads(2, 5))
    assert row_of(store, 1)[:2] == [50, 60]
    store.reserve(1, receipt(8, 12, new=(2,)))  # block 2 is somebody else's now
    store.commit(1, Committed((), 0, (), 12))
    store.reserve(0, receipt(0, 4, new=(0,)))
    assert not memory[2].any(), "what nobody can find is not kept"
