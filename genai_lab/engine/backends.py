"""Where the engine's keys and values live: rows that are copied to and from a pool, or rows whose pages are the
pool's."""

from __future__ import annotations

from genai_lab.engine.limits import DEFAULT_BLOCK_SIZE, EngineLimits
from genai_lab.errors import ArgumentError, CapacityError
from genai_lab.kvcache import KVLayout, SlotStore, VmStore
from genai_lab.kvcache.contiguous import memory_limit_bytes
from genai_lab.kvcache.stores import bytes_needed
from genai_lab.kvcache.vm import smallest_block

BACKENDS = ("slots", "vm")


def block_size_of(backend: str, layout: KVLayout, given: int | None) -> int | None:
    """The block size of an engine that was given `given`; None leaves it to the limits.

    With "vm" a block of one head must fill whole memory pages, so that small tokens need larger blocks: 16 tokens of 64
    numbers in float32 are one page, in 8 bits it takes 64 tokens.
    """
    if given is not None or backend != "vm" or not VmStore.is_available().available:
        return given
    smallest = smallest_block(layout)
    return -(-DEFAULT_BLOCK_SIZE // smallest) * smallest


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
    _check_memory(backend, layout, limits)
    # one position more than a conversation can have: an idle row's unread token goes there
    capacity = limits.max_session_tokens + 1
    if backend == "slots":
        return SlotStore(layout, limits.max_batch_size, capacity, limits.num_blocks, limits.block_size)
    # a whole block more than a conversation can have: an idle row's unread token goes past its last block
    whole = (-(-limits.max_session_tokens // limits.block_size) + 1) * limits.block_size
    return VmStore(layout, limits.max_batch_size, whole, limits.num_blocks, limits.block_size)


def _check_memory(backend: str, layout: KVLayout, limits: EngineLimits) -> None:
    """Refuse what the store would refuse, with the names of the engine's own arguments."""
    rows, tokens = limits.max_batch_size, limits.max_session_tokens
    of_rows, of_pool = bytes_needed(layout, rows, tokens + 1, limits.num_blocks, limits.block_size)
    if backend == "vm":
        of_rows = 0  # addresses without memory: their pages are the pool's
    limit = memory_limit_bytes()
    if limit is not None and of_rows + of_pool > limit:
        raise CapacityError(
            f"Engine: num_blocks={limits.num_blocks:,} blocks of block_size={limits.block_size:,} tokens need "
            f"{_gib(of_pool)}, max_batch_size={rows:,} rows of max_session_tokens={tokens:,} tokens {_gib(of_rows)}; "
            f"this machine has {_gib(limit)}. Make smaller whichever of them is large"
        )


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:,.1f} GiB"
