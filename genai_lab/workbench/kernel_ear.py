"""Hears the page while a cell waits: messages to widgets, such as Stop, are handled between two naps.

A notebook kernel reads the next message when the cell has ended, so a cell that waits would make it deaf. This module
knows the insides of ipykernel 6 and 7: the socket that the main thread reads, and who reads it. Only messages to
widgets are handled here; every other one goes to the kernel's own reader, in the order of arrival, to be read after
the cell. Where anything is not as expected, there is no ear, and widgets are heard after the cell as usual.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

COMM = frozenset({"comm_open", "comm_msg", "comm_close"})
Frames = list[Any]
NAP = 0.03  # seconds between two looks at what the page says while a cell waits


def find_ear() -> KernelEar | None:
    """The ear of the cell that runs this; None outside a notebook's kernel, or in another thread than its cells'."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None or threading.current_thread() is not threading.main_thread():
        return None
    try:
        return EarOf7(kernel) if getattr(kernel, "shell_channel_thread", None) else EarOf6(kernel)
    except (AttributeError, TypeError):  # another kernel, or a release with other insides
        return None


def wait_listening(done: threading.Event, end: float | None) -> bool:
    """Wait for `done`, until the monotonic clock says `end` at most, and hear the page. Whether it is done."""
    ear = find_ear()
    nap = NAP if ear is not None else None
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        if done.wait(left if nap is None else nap if left is None else min(left, nap)):
            return True
        if left == 0.0 or (ear is None and left is not None):
            return False
        if ear is not None:
            ear.listen()


class KernelEar(ABC):
    """What both releases have in common.

    Args:
        kernel: ipykernel's, whose cell is running in this thread.
        stream: the ZMQStream on which this thread gets messages.
    """

    def __init__(self, kernel: Any, stream: Any) -> None:
        self.kernel, self._stream = kernel, stream
        self._receive, self._poll = stream.socket.recv_multipart, stream.socket.poll

    def listen(self) -> None:
        """Handle the messages to widgets that have come. Never waits."""
        with uninterrupted():  # a message that was taken must be handled or given back
            mine = self._take()
        for frames in mine:
            self._handle(frames)

    def _take(self) -> list[Frames]:
        """Take what has come: messages to widgets, oldest first. The others are given back."""
        mine: list[Frames] = []
        while self._poll(0):  # to the very end: the socket wakes its reader only for what comes after that
            frames = self._receive(copy=False)
            if self._is_comm(frames):
                mine.append(frames)
            else:
                self._give_back(frames)
        return mine

    @abstractmethod
    def _give_back(self, frames: Frames) -> None:
        """Let the kernel's own reader handle it after the cell, behind those given back before."""

    def _is_comm(self, frames: Frames) -> bool:
        """By the type in the header. Whether the message is genuine is checked when it is handled, here or later."""
        session = self.kernel.session
        try:
            _, parts = session.feed_identities(frames, copy=False)
            return session.unpack(parts[1].bytes)["msg_type"] in COMM
        except Exception:  # no message at all: the kernel's own reader says so in its log
            return False

    def _handle(self, frames: Frames) -> None:
        kernel = self.kernel
        identities, parts = kernel.session.feed_identities(frames, copy=False)
        try:
            message = kernel.session.deserialize(parts, content=True, copy=False)
        except Exception:  # a wrong signature; as the kernel does
            kernel.log.exception("Invalid message")
            return
        self._tell("busy", message)
        try:
            kernel.shell_handlers[message["msg_type"]](self._stream, identities, message)
        except Exception:  # an error in some widget's own code is not the cell's; as the kernel does
            kernel.log.exception("Exception in message handler")
        self._tell("idle", message)  # ipywidgets sends its next change only then
        self._tell("busy", kernel.get_parent())  # the cell goes on

    def _tell(self, state: str, parent: Any) -> None:
        kernel = self.kernel
        topic = f"kernel.{kernel.ident}.status".encode()
        kernel.session.send(kernel.iopub_socket, "status", {"execution_state": state}, parent=parent, ident=topic)


class EarOf7(KernelEar):
    """ipykernel 7: a thread reads the shell channel and passes messages on to the main thread, whose event loop stands
    still now. A task that is made now runs before any that is made of a message read later."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel, kernel.shell_channel_thread.manager._shell_channel_to_main.to_stream)
        self._read, self._loop = self._stream._recv_callback, kernel.io_loop.asyncio_loop
        self._given_back: set[asyncio.Future[Any]] = set()  # an event loop holds its tasks weakly
        if not asyncio.iscoroutinefunction(self._read):
            raise TypeError("the main thread's messages are read in another way")

    def _give_back(self, frames: Frames) -> None:
        task = asyncio.ensure_future(self._read(frames), loop=self._loop)
        self._given_back.add(task)
        task.add_done_callback(self._given_back.discard)


class EarOf6(KernelEar):
    """ipykernel 6: the main thread reads the shell channel itself, into a queue of what to call with each message."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel, kernel.shell_stream)
        self._queue, self._dispatch, self._schedule = kernel.msg_queue, kernel.dispatch_shell, kernel.schedule_dispatch

    def _take(self) -> list[Frames]:
        mine: list[Frames] = []
        for _ in range(self._queue.qsize()):  # once round, so the order of the others stays
            entry = self._queue.get_nowait()
            _, call, arguments = entry
            if call == self._dispatch and self._is_comm(arguments[0]):
                mine.append(arguments[0])
            else:
                self._queue.put_nowait(entry)
        return mine + super()._take()

    def _give_back(self, frames: Frames) -> None:
        self._schedule(self._dispatch, frames)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """An interrupt that comes inside is heard at the end."""
    heard: list[Any] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: heard.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if heard and callable(handler):
        handler(*heard[-1])
