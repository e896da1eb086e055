"""Rows of the pool: nobody gets memory that somebody else has."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from genai_lab.tracing.row_pool import RowPool


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40), st.sampled_from([3, 8])), max_size=40))
def test_memory_is_handed_out_once(calls: list[tuple[bool, int, int]]) -> None:
    pool, held = RowPool(), []
    for number, (alone, rows, size) in enumerate(calls):
        memory = pool.take(size).reshape(1, size) if alone else pool.cut(rows, size)
        assert memory.shape == (1 if alone else rows, size)
        memory[:] = number
        held.append(memory)
    for number, memory in enumerate(held):
        assert (memory == number).all()


def test_a_row_that_was_given_back_is_taken_again() -> None:
    pool = RowPool()
    row = pool.take(8)
    pool.give_back(row)
    assert np.shares_memory(pool.take(8), row)
    pool.give_back(row)
    assert pool.take(5).size == 5
    assert not np.shares_memory(pool.take(8), row)


def test_its_thread_ends_with_it() -> None:
    before = set(threading.enumerate())
    pool = RowPool()
    pool.take(8)
    (maker,) = set(threading.enumerate()) - before
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    maker.join(60)
    assert gone() is None
    assert not maker.is_alive()
