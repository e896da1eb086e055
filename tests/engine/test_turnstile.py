"""The engine's lock: fair, re-entrant, and it closes what was dropped at the right moment."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from genai_lab.engine.turnstile import Turnstile

WAIT = 60


class Shop:
    def __init__(self) -> None:
        self.closed: list[int] = []
        self.lock = Turnstile(self.close)

    def close(self, number: int) -> None:
        assert self.lock._owner == threading.get_ident()
        self.closed.append(number)


def test_who_waits_is_served_in_order_before_who_comes_again() -> None:
    shop, order, queued = Shop(), [], threading.Semaphore(0)

    class Queue(deque[Any]):
        def append(self, gate: Any) -> None:
            super().append(gate)
            queued.release()

    shop.lock._queue = Queue()

    def customer(number: int) -> None:
        with shop.lock:
            order.append(number)

    threads = []
    with shop.lock:
        for number in range(4):
            threads.append(threading.Thread(target=customer, args=(number,)))
            threads[-1].start()
            assert queued.acquire(timeout=WAIT)
    with shop.lock:
        order.append(99)
    for thread in threads:
        thread.join(WAIT)
    assert order == [0, 1, 2, 3, 99]


def test_what_is_dropped_inside_is_closed_when_the_lock_is_given_back() -> None:
    shop = Shop()
    with shop.lock:
        with shop.lock:
            shop.lock.drop(1)
        assert shop.closed == []
    assert shop.closed == [1]
    shop.lock.drop(2)
    assert shop.closed == [1, 2]


def test_dropping_never_waits_for_another_thread() -> None:
    shop = Shop()
    with shop.lock:
        thread = threading.Thread(target=shop.lock.drop, args=(5,))
        thread.start()
        thread.join(WAIT)
        assert not thread.is_alive()
        assert shop.closed == []
    assert shop.closed == [5]


def test_an_error_inside_gives_the_lock_back() -> None:
    shop = Shop()
    with pytest.raises(ZeroDivisionError), shop.lock:
        raise ZeroDivisionError
    thread = threading.Thread(target=shop.lock.drop, args=(1,))
    thread.start()
    thread.join(WAIT)
    assert shop.closed == [1]


def test_an_interrupt_while_waiting_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    real = threading.Lock
    held, leave = threading.Event(), threading.Event()

    def holder() -> None:
        with shop.lock:
            held.set()
            assert leave.wait(WAIT)

    class Interrupted:
        """A lock whose second acquire is interrupted."""

        def __init__(self) -> None:
            self.lock, self.calls = real(), 0

        def acquire(self) -> None:
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            self.lock.acquire()

        def release(self) -> None:
            self.lock.release()

    thread = threading.Thread(target=holder)
    thread.start()
    assert held.wait(WAIT)
    with monkeypatch.context() as patch:
        patch.setattr("genai_lab.engine.turnstile.threading.Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt), shop.lock:
            pass
    assert not shop.lock._queue
    leave.set()
    thread.join(WAIT)
    with shop.lock:
        shop.lock.drop(3)
    assert shop.closed == [3]
