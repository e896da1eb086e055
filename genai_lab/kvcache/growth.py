"""How a table grows and shrinks in a pool: reserved blocks join, full ones become findable, blocks are let go.

Receives the pool and a table and changes both. It does not know receipts' bookkeeping, nor other requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from genai_lab.errors import ArgumentError
from genai_lab.kvcache.blocks import BlockPool
from genai_lab.kvcache.facts import BlockCopy, Committed, Freed, Receipt, Swap, Tokens
from genai_lab.kvcache.keys import TOKEN_BYTES, token_bytes
from genai_lab.kvcache.table import RequestTable, blocks_for
from genai_lab.kvcache.window import Window


def must_copy(pool: BlockPool, table: RequestTable) -> bool:
    """The next write goes into a block that others hold, or that can be found by its content."""
    if table.num_tokens % pool.block_size == 0:
        return False
    last = table.blocks[-1]
    return pool.ref_counts[last] > 1 or pool.keys[last] is not None


def new_data(pool: BlockPool, table: RequestTable, tokens: Tokens) -> bytes:
    """The tokens from the first not yet full block on, as bytes; checked against those committed before."""
    start = len(table.keys) * pool.block_size
    data = token_bytes(tokens[start:])
    if not data.startswith(table.tail):
        raise ArgumentError(
            f"the tokens committed for request {table.request} differ from those committed before at positions {start} "
            f"to {table.num_tokens - 1}; give the sequence from its first token, and rewind before you change it"
        )
    return data


def take_over(pool: BlockPool, table: RequestTable, receipt: Receipt) -> None:
    """Reserved blocks join the table as far as its tokens need them; the others are given up."""
    for copy in receipt.copies:
        pool.own(copy.target, table.request, table.step)
        table.blocks[copy.index - table.first_block] = copy.target
        pool.let_go(copy.source, table.step)
    needed = blocks_for(table.num_tokens, pool.block_size) - receipt.first_index
    for block in receipt.new_blocks[:needed]:
        pool.own(block, table.request, table.step)
        table.blocks.append(block)
    for block in reversed(receipt.new_blocks[needed:]):
        pool.give_up(block)


def cache_full_blocks(pool: BlockPool, table: RequestTable, data: bytes) -> Committed:
    """Blocks that became full can be found from now on; one whose content is in the pool already gives way to that."""
    size, first = pool.block_size * TOKEN_BYTES, len(table.keys)
    if len(data) < size:  # most tokens fill none
        table.tail = data
        return Committed((), 0, (), table.num_tokens)
    stores: list[BlockCopy] = []
    swaps: list[Swap] = []
    for place in range(0, len(data) - size + 1, size):
        index = len(table.keys)
        at = index - table.first_block
        key, block = table.last_key.child(data[place : place + size]), table.blocks[at]
        found = pool.prefixes.find(key)
        if table.epoch != pool.epoch:
            pass  # the cache was cleared after this request began: what it computed stays its own
        elif found is None:
            pool.cache(block, key)
            stores.append(BlockCopy(block, index * pool.block_size, (index + 1) * pool.block_size))
        else:
            key, table.blocks[at] = found
            pool.hold(table.blocks[at], table.step)
            pool.let_go(block, table.step)
            swaps.append(Swap(index, block, table.blocks[at]))
        table.keys.append(key)
    table.tail = data[(len(table.keys) - first) * size :]
    return Committed(tuple(stores), len(stores), tuple(swaps), table.num_tokens)


def leave_window(pool: BlockPool, table: RequestTable, window: Window) -> None:
    """Let go of the blocks that no later token of the table sees, the first one first."""
    count = max(0, window.first_block(table.num_tokens) - table.first_block)
    for block in table.blocks[:count]:
        pool.let_go(block, table.step)
    del table.blocks[:count]
    table.first_block += count


def let_go(pool: BlockPool, blocks: Sequence[int], step: int) -> Freed:
    """A table gives up `blocks`, the last first, so that ends of sequences are evicted before their beginnings."""
    empty: list[int] = []
    cached: list[int] = []
    for block in reversed(blocks):
        if pool.let_go(block, step):
            (empty if pool.keys[block] is None else cached).append(block)
    return Freed(tuple(empty), tuple(cached))
