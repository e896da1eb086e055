"""Snapshots and usage of a pool and its tables. Receives both, changes neither."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from genai_lab.kvcache.blocks import BlockPool
from genai_lab.kvcache.facts import Receipt
from genai_lab.kvcache.snapshots import BlockState, CacheSnapshot, ReceiptSnapshot, Usage
from genai_lab.kvcache.table import RequestTable


def paged_snapshot(
    pool: BlockPool, tables: Collection[RequestTable], receipts: Iterable[Receipt], window: int | None = None
) -> CacheSnapshot:
    """The whole state of a paged cache as values."""
    keys, size = pool.keys, pool.block_size
    filled = filled_by(tables, pool.num_blocks, size)
    return CacheSnapshot(
        kind="paged",
        num_blocks=pool.num_blocks,
        block_size=size,
        states=tuple(_state(pool, block) for block in range(pool.num_blocks)),
        ref_counts=tuple(pool.ref_counts),
        hashes=tuple(key.hash if key else None for key in keys),
        parents=tuple(key.parent.hash if key and key.parent else None for key in keys),
        depths=tuple(key.depth if key else None for key in keys),
        tokens_filled=tuple(size if key else count for key, count in zip(keys, filled, strict=True)),
        computed_by=tuple(pool.computed_by),
        last_used=tuple(pool.last_used),
        owners=owners_of(pool.num_blocks, tables),
        requests=tuple(table.snapshot() for table in tables),
        receipts=tuple(map(receipt_snapshot, receipts)),
        free_queue=tuple(pool.free_queue),
        window=window,
    )


def static_snapshot(
    num_blocks: int,
    block_size: int,
    tables: Collection[RequestTable],
    receipts: Iterable[Receipt],
    free_queue: Sequence[int],
) -> CacheSnapshot:
    """The whole state of a static cache as values: every block is its owner's or empty."""
    owners = owners_of(num_blocks, tables)
    nothing = (None,) * num_blocks
    return CacheSnapshot(
        kind="static",
        num_blocks=num_blocks,
        block_size=block_size,
        states=tuple(BlockState.USED if owner else BlockState.FREE for owner in owners),
        ref_counts=tuple(map(len, owners)),
        hashes=nothing,
        parents=nothing,
        depths=nothing,
        tokens_filled=tuple(filled_by(tables, num_blocks, block_size)),
        computed_by=tuple(owner[0] if owner else None for owner in owners),
        last_used=(0,) * num_blocks,
        owners=owners,
        requests=tuple(table.snapshot() for table in tables),
        receipts=tuple(map(receipt_snapshot, receipts)),
        free_queue=tuple(free_queue),
    )


def paged_usage(pool: BlockPool, tables: Collection[RequestTable]) -> Usage:
    """How full the pool is, without a walk over all blocks."""
    used = pool.num_blocks - pool.num_free
    filled = _filled_in_use(pool, tables, used - len(pool.reserved))
    empty = pool.num_free - pool.num_cached_free
    return Usage(used, pool.num_cached_free, empty, filled, used / pool.num_blocks)


def _filled_in_use(pool: BlockPool, tables: Collection[RequestTable], held: int) -> int:
    """Tokens in the `held` blocks of all tables: only a table's last block can have room, unless it is cached.

    A shared block stands at the same place in all its holders' tables.
    """
    size = pool.block_size
    alone, filled, shared = 0, 0, {}
    for table in tables:
        rest = table.num_tokens % size
        if rest and pool.keys[table.blocks[-1]] is None:
            if pool.ref_counts[table.blocks[-1]] == 1:
                alone, filled = alone + 1, filled + rest
            else:
                shared[table.blocks[-1]] = table.num_places - 1
    for block, place in shared.items():
        filled += max(tokens_in(t.num_tokens, place, size) for t in tables if _has(t, place, block))
    return (held - alone - len(shared)) * size + filled


def _has(table: RequestTable, place: int, block: int) -> bool:
    return table.first_block <= place < table.num_places and table.blocks[place - table.first_block] == block


def _state(pool: BlockPool, block: int) -> BlockState:
    if pool.ref_counts[block]:
        return BlockState.USED
    if block in pool.reserved:
        return BlockState.RESERVED
    return BlockState.FREE if pool.keys[block] is None else BlockState.CACHED


def receipt_snapshot(receipt: Receipt) -> ReceiptSnapshot:
    """What a picture needs of a receipt."""
    targets = tuple(copy.target for copy in receipt.copies)
    return ReceiptSnapshot(receipt.id, receipt.request, receipt.start, receipt.stop, receipt.new_blocks, targets)


def owners_of(num_blocks: int, tables: Iterable[RequestTable]) -> tuple[tuple[int, ...], ...]:
    """For each block the requests that hold it, in the tables' order."""
    owners: list[list[int]] = [[] for _ in range(num_blocks)]
    for table in tables:
        for block in table.blocks:
            owners[block].append(table.request)
    return tuple(map(tuple, owners))


def filled_by(tables: Iterable[RequestTable], num_blocks: int, block_size: int) -> Sequence[int]:
    """For each block the tokens in it, by its fullest holder."""
    filled = [0] * num_blocks
    for table in tables:
        for place, block in enumerate(table.blocks, table.first_block):
            filled[block] = max(filled[block], tokens_in(table.num_tokens, place, block_size))
    return filled


def tokens_in(num_tokens: int, place: int, block_size: int) -> int:
    """Tokens in the block at `place` of a table of `num_tokens` tokens.

    >>> [tokens_in(10, place, 4) for place in range(4)]
    [4, 4, 2, 0]
    """
    return min(max(num_tokens - place * block_size, 0), block_size)
