"""The shape of one token's keys and values, and so the price of a token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What a model keeps of each token.

    >>> KVLayout(num_layers=30, num_kv_heads=3, head_dim=64, dtype="float32").bytes_per_token
    46080
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str  # numpy name of the cache's element type

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's keys and values over all layers."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * np.dtype(self.dtype).itemsize

    def row_shape(self, rows: int, capacity: int) -> tuple[int, int, int, int]:
        """Shape of one layer's keys (or values): [rows, kv_heads, capacity, head_dim]."""
        return (rows, self.num_kv_heads, capacity, self.head_dim)

    @property
    def numpy_dtype(self) -> DTypeLike:
        return np.dtype(self.dtype)
