"""Short ways to say what a request does to a manager, for tests that look at one thing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genai_lab.kvcache import Allocation, CacheManager, Committed, PagedCache, Receipt


def ids(*tokens: int) -> NDArray[np.int32]:
    return np.array(tokens, np.int32)


def taken_in(cache: CacheManager, request: int, tokens: NDArray[np.int32], **names: str | int) -> Allocation:
    allocation = cache.allocate(request, tokens, **names)  # type: ignore[arg-type]
    assert isinstance(allocation, Allocation)
    return allocation


def reserved(cache: CacheManager, request: int, num_new: int, step: int = 0) -> Receipt:
    receipt = cache.reserve_step(request, num_new, step)
    assert isinstance(receipt, Receipt)
    return receipt


def run(cache: CacheManager, request: int, tokens: NDArray[np.int32], step: int = 0) -> Committed:
    """Run the request up to `tokens`, its whole sequence."""
    receipt = reserved(cache, request, len(tokens) - cache.num_tokens(request), step)
    return cache.commit(receipt, tokens)


def cached(
    cache: PagedCache, request: int, tokens: NDArray[np.int32], step: int = 0, adapter: str = "", salt: str = ""
) -> None:
    """A request came, ran and went."""
    taken_in(cache, request, tokens, adapter=adapter, salt=salt, step=step)
    run(cache, request, tokens, step)
    cache.free(request, step)
