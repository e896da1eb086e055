"""Contiguous rows: one slab for all layers, a fixed capacity of tokens per row.

The slab is zero-filled by the operating system page by page as tokens arrive, so a large capacity costs memory only for
what is used. The same memory is bound as past and as present: the attention kernel appends in place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, CapacityError
from genai_lab.kvcache.layout import KVLayout


class ContiguousCache:
    """Keys and values of `rows` sequences with room for `capacity` tokens each.

    Args:
        layout: what one token needs.
        rows: sequences.
        capacity: tokens per row (the generator's max_length).

    Raises:
        CapacityError: the rows can never fit into this machine's memory.
    """

    def __init__(self, layout: KVLayout, rows: int, capacity: int) -> None:
        if rows < 1 or capacity < 1:
            raise ArgumentError(f"a cache needs at least one row and one token, got rows={rows}, capacity={capacity}")
        self.layout, self.rows, self.capacity = layout, rows, capacity
        self.nbytes = layout.bytes_per_token * rows * capacity
        check_fits(self.nbytes, rows, capacity)
        self.slab: NDArray[Any] = np.zeros(
            (layout.num_layers, 2, *layout.row_shape(rows, capacity)), layout.numpy_dtype
        )  # [layers, 2, rows, kv_heads, capacity, head_dim]

    def keys(self, layer: int) -> NDArray[Any]:
        """Keys of one layer, [rows, kv_heads, capacity, head_dim], contiguous."""
        keys: NDArray[Any] = self.slab[layer, 0]
        return keys

    def values(self, layer: int) -> NDArray[Any]:
        """Values of one layer, [rows, kv_heads, capacity, head_dim], contiguous."""
        values: NDArray[Any] = self.slab[layer, 1]
        return values

    def copy_prefix(self, source: ContiguousCache, tokens: int) -> None:
        """Take over the first `tokens` tokens of `source`'s rows; the same layout and number of rows."""
        if source.layout != self.layout or source.rows != self.rows:
            raise ArgumentError("a prefix can only be copied between caches of one layout and number of rows")
        if tokens > min(self.capacity, source.capacity):
            raise ArgumentError(
                f"tokens={tokens} does not fit: the smaller cache holds {min(self.capacity, source.capacity)}"
            )
        self.slab[..., :tokens, :] = source.slab[..., :tokens, :]


def check_fits(nbytes: int, rows: int, capacity: int) -> None:
    """Refuse what can never fit, before any memory is taken."""
    limit = memory_limit_bytes()
    if limit is not None and nbytes > limit:
        raise CapacityError(
            f"the KV cache for {rows} x {capacity:,} tokens needs {nbytes:,} bytes ({nbytes / 2**30:.1f} GiB), "
            f"this machine "
            f"has {limit:,} ({limit / 2**30:.1f} GiB); set a smaller max_length "
            f"(params.set_search_options(max_length=...))"
        )


def memory_limit_bytes() -> int | None:
    """Physical memory, or the container's limit when that is lower; None where neither can be read."""
    limits = [_physical_bytes(), *(_cgroup_bytes(p) for p in ("memory.max", "memory/memory.limit_in_bytes"))]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _physical_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return None


def _cgroup_bytes(name: str) -> int | None:
    try:
        text = (Path("/sys/fs/cgroup") / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
