"""Keys and values of what the model has read. Memory and its bookkeeping; no model, no tracer."""

from __future__ import annotations

from genai_lab.kvcache.contiguous import ContiguousCache, memory_limit_bytes
from genai_lab.kvcache.layout import KVLayout

__all__ = ["ContiguousCache", "KVLayout", "memory_limit_bytes"]
