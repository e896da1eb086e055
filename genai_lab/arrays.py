"""Small array operations that several rooms need. numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GROUPS = 64


def largest(values: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Indices of the k largest of `values` [n], largest first, lower index first among equals; [min(k, n)].

    About six times faster than argpartition on a vocabulary: the k-th largest column maximum of a [64, n/64] view is a
    lower bound of the k-th largest value, and few values pass it.

    >>> largest(np.array([1.0, 5.0, 3.0], np.float32), 2).tolist()
    [1, 2]
    """
    k = min(k, values.size)
    columns = values.size // _GROUPS
    if columns < 4 * k:
        candidates: NDArray[np.intp] = np.arange(values.size)
        if k < values.size:
            candidates = np.flatnonzero(values >= np.partition(values, -k)[-k])
    else:
        maxima = values[: columns * _GROUPS].reshape(_GROUPS, columns).max(axis=0)
        candidates = np.flatnonzero(values >= np.partition(maxima, -k)[-k])
    order: NDArray[np.intp] = np.argsort(-values[candidates], kind="stable")[:k]
    return candidates[order]


@dataclass(frozen=True, slots=True)
class TokenMask:
    """Which tokens may come next, one bit each: 6 KB for a vocabulary of 49,152.

    >>> mask = TokenMask(np.array([0b00000101], np.uint8), 8)
    >>> mask.allowed().nonzero()[0].tolist(), mask.count, mask.size
    ([0, 2], 2, 6)
    """

    bits: NDArray[np.uint8]  # [ceil(V / 8)], the lowest bit first
    vocab_size: int

    def allowed(self) -> NDArray[np.bool_]:
        """[V], True where a token may come next."""
        return np.unpackbits(self.bits, count=self.vocab_size, bitorder="little").view(np.bool_)

    def allows(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """[k], of `ids` [k]."""
        bits: NDArray[np.bool_] = (self.bits[ids >> 3] >> (ids & 7).astype(np.uint8)) & 1 == 1
        return bits

    @property
    def count(self) -> int:
        """Tokens that may come next."""
        return int(np.bitwise_count(self.bits).sum(dtype=np.int64))

    @property
    def size(self) -> int:
        """Tokens that may not."""
        return self.vocab_size - self.count
