"""While a cell waits, widgets are heard and everything else keeps its place: in a real kernel, and in ipykernel 6."""

from __future__ import annotations

import asyncio
import logging
import queue
import signal
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

from genai_lab.workbench.kernel_ear import EarOf6, find_ear, uninterrupted

PATIENCE = 60.0
WAITING = """
import threading
import comm
from genai_lab.workbench.kernel_ear import wait_listening

heard = threading.Event()
def opened(comm_, message):
    comm_.on_msg(lambda message: (order.append(message["content"]["data"]), heard.set()))
comm.get_comm_manager().register_target("test", opened)
order = []
print("ready", wait_listening(heard, None), order)
"""


@pytest.fixture
def kernel() -> Iterator[Any]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_outside_a_kernel_there_is_no_ear() -> None:
    assert find_ear() is None


def test_a_waiting_cell_hears_a_widget_and_later_cells_keep_their_order(kernel: Any) -> None:
    waiting = kernel.execute(WAITING)
    later = [kernel.execute(f"order.append({number}); print(order)") for number in range(3)]
    send = kernel.session.send
    opening = {"comm_id": "c", "target_name": "test", "data": {}}
    send(kernel.shell_channel.socket, "comm_open", opening)
    later.append(kernel.execute("order.append(3); print(order)"))
    send(kernel.shell_channel.socket, "comm_msg", {"comm_id": "c", "data": "stop"})
    answered: list[str] = []
    while len(answered) < 5:
        reply = kernel.get_shell_msg(timeout=PATIENCE)
        if reply["msg_type"] == "execute_reply":
            assert reply["content"]["status"] == "ok"
            answered.append(reply["parent_header"]["msg_id"])
    assert answered == [waiting, *later]
    printed: dict[str, str] = {}
    while printed.keys() != {waiting, *later}:
        message = kernel.get_iopub_msg(timeout=PATIENCE)
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed[message["parent_header"]["msg_id"]] = message["content"]["text"]
    assert printed[waiting] == "ready True ['stop']\n"
    assert printed[later[-1]] == "['stop', 0, 1, 2, 3]\n"


class KernelOf6:
    """As much of ipykernel 6 as an ear touches."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self.session = Session(key=b"key")
        self.page = context.socket(zmq.PAIR)
        self.shell_stream = SimpleNamespace(socket=context.socket(zmq.PAIR))
        self.page.bind("inproc://ear-test")
        self.shell_stream.socket.connect("inproc://ear-test")
        self.iopub_socket = context.socket(zmq.PUB)
        self.msg_queue: queue.Queue[Any] = queue.Queue()
        self.ident, self.log = "k", logging.getLogger("kernel")
        self.heard: list[Any] = []
        self.shell_handlers = {"comm_msg": lambda stream, ident, message: self.heard.append(message["content"]["data"])}
        self._numbers = count()

    def dispatch_shell(self, frames: Any) -> None:
        """Read by the kernel after the cell."""

    def schedule_dispatch(self, dispatch: Any, *arguments: Any) -> None:
        self.msg_queue.put_nowait((next(self._numbers), dispatch, arguments))

    def get_parent(self) -> dict[str, Any]:
        return {}

    def arrive(self, kind: str, content: dict[str, Any]) -> None:
        self.session.send(self.page, kind, content)

    def take_in(self) -> None:
        """The event loop had a moment: what has arrived is queued."""
        self.schedule_dispatch(self.dispatch_shell, self.shell_stream.socket.recv_multipart(copy=False))


def test_ipykernel_6_gets_back_what_is_not_for_widgets() -> None:
    with zmq.Context() as context:
        kernel = KernelOf6(context)
        kernel.arrive("execute_request", {"code": 1})
        kernel.arrive("comm_msg", {"data": "queued"})
        kernel.take_in()
        kernel.schedule_dispatch(asyncio.sleep)
        kernel.take_in()
        for kind, content in (("execute_request", {"code": 2}), ("comm_msg", {"data": "new"}), ("inspect_request", {})):
            kernel.arrive(kind, content)
        kernel.page.send_multipart([b"no", b"message"])
        EarOf6(kernel).listen()
        assert kernel.heard == ["queued", "new"]
        entries = [kernel.msg_queue.get_nowait() for _ in range(kernel.msg_queue.qsize())]
        assert [call for _, call, _ in entries].index(asyncio.sleep) == 1
        assert [number for number, _, _ in entries] == sorted(number for number, _, _ in entries)
        kinds = []
        for _, call, arguments in entries:
            if call == kernel.dispatch_shell and len(arguments[0]) > 2:
                _, parts = kernel.session.feed_identities(arguments[0], copy=False)
                kinds.append(kernel.session.deserialize(parts, copy=False)["msg_type"])  # genuine: never read before
        assert kinds == ["execute_request", "execute_request", "inspect_request"]
        for socket in (kernel.page, kernel.shell_stream.socket, kernel.iopub_socket):
            socket.close(0)


def test_an_interrupt_is_heard_when_everything_is_in_its_place() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
