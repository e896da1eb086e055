"""Taking a request's blocks away for the length of a step: given up for good when the step is committed, back exactly
as they were when it fails.

Receives the pool and a table and changes both. Whoever resumes has released every reservation made in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from genai_lab.kvcache.blocks import BlockPool
from genai_lab.kvcache.growth import let_go
from genai_lab.kvcache.keys import BlockKey
from genai_lab.kvcache.table import RequestTable


@dataclass(frozen=True, slots=True)
class _Held:
    """A block as it was."""

    block: int
    key: BlockKey | None
    computed_by: int | None
    last_used: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """A request without its blocks, which others may have taken meanwhile."""

    table: RequestTable
    held: tuple[_Held, ...]
    order: tuple[int, ...]
    """All requests with a table, before."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """What it held."""
        return tuple(one.block for one in self.held)


def suspend(pool: BlockPool, table: RequestTable, order: tuple[int, ...], step: int) -> Suspended:
    """Let the blocks go, the last first."""
    held = tuple(_Held(b, pool.keys[b], pool.computed_by[b], pool.last_used[b]) for b in table.blocks)
    let_go(pool, table.blocks, step)
    return Suspended(table, held, order)


def resume(pool: BlockPool, suspended: Suspended) -> None:
    """Hold them again; content that an undone reservation lost in between can be found again too."""
    for one in suspended.held:
        if pool.ref_counts[one.block]:
            pool.hold(one.block, one.last_used)
        else:
            _take_back(pool, one)
        pool.last_used[one.block] = one.last_used


def _take_back(pool: BlockPool, one: _Held) -> None:
    """Out of the free queue."""
    pool.num_cached_free -= pool.keys[one.block] is not None
    pool.free_queue.remove(one.block)
    pool.ref_counts[one.block] = 1
    pool.computed_by[one.block] = one.computed_by
    if one.key is not None and pool.keys[one.block] is None and one.key not in pool.prefixes:
        eviction = pool.prefixes.evictions.find(one.key)
        if eviction is not None:
            pool.prefixes.evictions.undo(eviction)
        pool.cache(one.block, one.key)
