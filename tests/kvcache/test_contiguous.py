"""What a cache costs, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from genai_lab.errors import ArgumentError, CapacityError
from genai_lab.kvcache import ContiguousCache, KVLayout, memory_limit_bytes

LAYOUT = KVLayout(num_layers=2, num_kv_heads=3, head_dim=4, dtype="float32")


def test_rows_are_contiguous_views_of_one_slab() -> None:
    cache = ContiguousCache(LAYOUT, rows=2, capacity=5)
    assert cache.nbytes == cache.slab.nbytes == LAYOUT.bytes_per_token * 2 * 5
    for layer in range(2):
        for part in (cache.keys(layer), cache.values(layer)):
            assert part.shape == (2, 3, 5, 4)
            assert part.flags.c_contiguous
            assert np.shares_memory(part, cache.slab)


def test_a_prefix_is_copied_between_capacities() -> None:
    source, target = ContiguousCache(LAYOUT, 1, 6), ContiguousCache(LAYOUT, 1, 9)
    source.slab[...] = np.random.default_rng(0).standard_normal(source.slab.shape)
    target.copy_prefix(source, 4)
    np.testing.assert_array_equal(target.slab[..., :4, :], source.slab[..., :4, :])
    assert not target.slab[..., 4:, :].any()
    with pytest.raises(ArgumentError, match="tokens=7"):
        target.copy_prefix(source, 7)
    with pytest.raises(ArgumentError, match="one layout"):
        target.copy_prefix(ContiguousCache(LAYOUT, 2, 6), 1)


def test_memory_is_taken_as_tokens_arrive() -> None:
    """A capacity of 8 GiB is fine on a machine that has it in name; pages are touched one by one."""
    limit = memory_limit_bytes()
    assert limit is not None and limit > 2**28
    wide = KVLayout(num_layers=1, num_kv_heads=1, head_dim=1024, dtype="float32")
    cache = ContiguousCache(wide, 1, 2**14)  # 128 MiB in name
    cache.keys(0)[0, 0, 0] = 1.0
    assert cache.nbytes == 2**27


def test_what_can_never_fit_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genai_lab.kvcache.contiguous.memory_limit_bytes", lambda: 10_000)
    with pytest.raises(CapacityError, match=r"needs 19,200,000 bytes .* has 10,000 .* smaller max_length"):
        ContiguousCache(LAYOUT, 1, 100_000)


@pytest.mark.parametrize(("rows", "capacity"), [(0, 5), (1, 0)])
def test_empty_caches_are_refused(rows: int, capacity: int) -> None:
    with pytest.raises(ArgumentError, match="at least one row"):
        ContiguousCache(LAYOUT, rows, capacity)
