"""Where the engine's keys and values live: rows that are copied to and from a pool, or rows whose pages are the
pool's."""

from __future__ import annotations

from genai_lab.engine.limits import EngineLimits
from genai_lab.errors import ArgumentError
from genai_lab.kvcache import KVLayout, SlotStore, VmStore

BACKENDS = ("slots", "vm")


def make_store(backend: str, layout: KVLayout, limits: EngineLimits) -> SlotStore | VmStore:
    """The store of a backend.

    Args:
        backend: "slots" (everywhere; a prefix hit is copied) or "vm" (Linux; a prefix hit is mapped, nothing is
        copied).

    Raises:
        ArgumentError: an unknown backend, or "vm" where blocks cannot be mapped; the message says why.
        CapacityError: rows and pool can never fit into memory.
    """
    if backend not in BACKENDS:
        raise ArgumentError(f"kv_backend is {backend!r}; allowed are {', '.join(map(repr, BACKENDS))}")
    # one position more than a conversation can have: an idle row's unread token goes there
    capacity = limits.max_session_tokens + 1
    if backend == "slots":
        return SlotStore(layout, limits.max_batch_size, capacity, limits.num_blocks, limits.block_size)
    # a whole block more than a conversation can have: an idle row's unread token goes past its last block
    whole = (-(-limits.max_session_tokens // limits.block_size) + 1) * limits.block_size
    return VmStore(layout, limits.max_batch_size, whole, limits.num_blocks, limits.block_size)
