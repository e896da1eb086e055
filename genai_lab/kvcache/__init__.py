"""Keys and values of what the model has read. Memory and its bookkeeping; no model, no tracer."""

from __future__ import annotations

from genai_lab.kvcache.block_store import BlockStore
from genai_lab.kvcache.blocks import BlockPool
from genai_lab.kvcache.contiguous import ContiguousCache, memory_limit_bytes
from genai_lab.kvcache.eviction import (
    DeepestFirst,
    Eviction,
    EvictionPolicy,
    FreeBlock,
    LeastOftenUsed,
    LeastRecentlyUsed,
)
from genai_lab.kvcache.facts import (
    Admission,
    Allocation,
    BlockCopy,
    CacheManager,
    Committed,
    CopyOnWrite,
    Fit,
    Forked,
    Freed,
    PrefixMatch,
    Receipt,
    ReservationRequest,
    Shortage,
    Swap,
)
from genai_lab.kvcache.invariants import check_cache, raise_if_broken
from genai_lab.kvcache.layout import KVLayout
from genai_lab.kvcache.misses import Miss, MissReason
from genai_lab.kvcache.paged import PagedCache
from genai_lab.kvcache.slots import SlotStore
from genai_lab.kvcache.snapshots import (
    BlockSnapshot,
    BlockState,
    CacheSnapshot,
    ReceiptSnapshot,
    RequestSnapshot,
    Usage,
)
from genai_lab.kvcache.static import StaticCache
from genai_lab.kvcache.stores import RowStore, Store
from genai_lab.kvcache.suspension import Suspended
from genai_lab.kvcache.vm import VmStore

__all__ = [
    "Admission",
    "Allocation",
    "BlockCopy",
    "BlockPool",
    "BlockSnapshot",
    "BlockState",
    "BlockStore",
    "CacheManager",
    "CacheSnapshot",
    "Committed",
    "ContiguousCache",
    "CopyOnWrite",
    "DeepestFirst",
    "Eviction",
    "EvictionPolicy",
    "Fit",
    "Forked",
    "FreeBlock",
    "Freed",
    "KVLayout",
    "LeastOftenUsed",
    "LeastRecentlyUsed",
    "Miss",
    "MissReason",
    "PagedCache",
    "PrefixMatch",
    "Receipt",
    "ReceiptSnapshot",
    "RequestSnapshot",
    "ReservationRequest",
    "RowStore",
    "Shortage",
    "SlotStore",
    "StaticCache",
    "Store",
    "Suspended",
    "Swap",
    "Usage",
    "VmStore",
    "check_cache",
    "memory_limit_bytes",
    "raise_if_broken",
]
