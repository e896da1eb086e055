"""What must hold of every snapshot of a cache, whatever happened before it.

Each function receives a `CacheSnapshot` and returns what is wrong in words; an empty list is good. Numbers are those
of the engine's seventeen invariants; the ones about time (scheduling, life cycle, streams) are checked by the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise

from genai_lab.errors import StateError
from genai_lab.kvcache.snapshots import BlockState, CacheSnapshot


def every_block_is_somewhere(s: CacheSnapshot) -> list[str]:
    """1: free + reserved + allocated = total."""
    count = Counter(s.states)
    free = count[BlockState.FREE] + count[BlockState.CACHED]
    wrong = []
    if free != len(s.free_queue):
        wrong.append(f"{free} blocks are free, the free queue has {len(s.free_queue)}")
    if sum(count.values()) != s.num_blocks:
        wrong.append(f"{sum(count.values())} blocks have a state, the pool has {s.num_blocks}")
    held = {block for owner in s.requests for block in owner.block_table}
    if count[BlockState.USED] != len(held):
        wrong.append(f"{count[BlockState.USED]} blocks are used, tables hold {len(held)}")
    return wrong


def ids_are_in_range_and_once(s: CacheSnapshot) -> list[str]:
    """2a: block ids in range, once per table, once in the free queue."""
    wrong = []
    for name, ids in [("the free queue", s.free_queue), *((f"request {r.request}", r.block_table) for r in s.requests)]:
        outside = [block for block in ids if not 0 <= block < s.num_blocks]
        twice = [block for block, count in Counter(ids).items() if count > 1]
        wrong += [f"{name} has block {block}; 0 to {s.num_blocks - 1} is allowed" for block in outside]
        wrong += [f"{name} has block {block} more than once" for block in twice]
    return wrong


def ref_counts_are_holders(s: CacheSnapshot) -> list[str]:
    """2b: the reference count is the number of tables with the block; 0 exactly when it is free or reserved."""
    holders = Counter(block for owner in s.requests for block in owner.block_table)
    wrong = []
    for block, (count, state) in enumerate(zip(s.ref_counts, s.states, strict=True)):
        if count != holders[block] or count != len(s.owners[block]):
            wrong.append(f"block {block} has reference count {count}, {holders[block]} tables hold it")
        if (count > 0) != (state is BlockState.USED):
            wrong.append(f"block {block} has reference count {count} and is {state}")
    return wrong


def the_free_queue_has_the_free_blocks(s: CacheSnapshot) -> list[str]:
    """2c: a block is free exactly when it is in the free queue."""
    queued = set(s.free_queue)
    return [
        f"block {block} is {state} and {'in' if block in queued else 'not in'} the free queue"
        for block, state in enumerate(s.states)
        if (state in (BlockState.FREE, BlockState.CACHED)) != (block in queued)
    ]


def tables_have_room_for_their_tokens(s: CacheSnapshot) -> list[str]:
    """3: used + empty slots = owned capacity; no paged block without a token (a static cache owns all at once)."""
    wrong = []
    for owner in s.requests:
        capacity, size = (owner.first_block + len(owner.block_table)) * s.block_size, s.block_size
        empty = capacity - owner.num_tokens
        if empty < 0 or (s.kind == "paged" and empty >= size):
            wrong.append(f"request {owner.request} has {owner.num_tokens} tokens in {capacity} slots")
    for block, filled in enumerate(s.tokens_filled):
        if not 0 <= filled <= s.block_size:
            wrong.append(f"block {block} has {filled} tokens; 0 to {s.block_size} is allowed")
    return wrong


def reserved_blocks_have_one_receipt(s: CacheSnapshot) -> list[str]:
    """4: a reserved block belongs to one receipt, and a request has at most one."""
    promised = Counter(block for r in s.receipts for block in (*r.new_blocks, *r.copy_targets))
    requests = Counter(r.request for r in s.receipts)
    known = {owner.request for owner in s.requests}
    wrong = [f"block {block} is promised to {count} receipts" for block, count in promised.items() if count > 1]
    wrong += [f"request {request} has {count} receipts" for request, count in requests.items() if count > 1]
    wrong += [
        f"receipt {r.id} is for request {r.request}, which has no table" for r in s.receipts if r.request not in known
    ]
    for block, state in enumerate(s.states):
        if (state is BlockState.RESERVED) != (block in promised):
            wrong.append(f"block {block} is {state} and promised to {promised[block]} receipts")
    return wrong


def only_full_blocks_can_be_found(s: CacheSnapshot) -> list[str]:
    """8: a hash stands on a full block that is used or cached, never on an empty or reserved one."""
    wrong = []
    for block, (hash_, state) in enumerate(zip(s.hashes, s.states, strict=True)):
        if hash_ is not None and (
            state in (BlockState.FREE, BlockState.RESERVED) or s.tokens_filled[block] < s.block_size
        ):
            wrong.append(f"block {block} has a hash, is {state} and has {s.tokens_filled[block]} tokens")
        if hash_ is None and state is BlockState.CACHED:
            wrong.append(f"block {block} is cached without a hash")
    return wrong


def shared_blocks_stand_at_their_place(s: CacheSnapshot) -> list[str]:
    """9: a block holds one stretch of positions under one adapter and salt, in every table that has it."""
    places: dict[int, tuple[int, str, str]] = {}
    wrong = []
    for owner in s.requests:
        for place, block in enumerate(owner.block_table, owner.first_block):
            mine = (place, owner.adapter, owner.salt)
            if places.setdefault(block, mine) != mine:
                wrong.append(f"block {block} stands at different places or under different adapters or salts")
            depth = s.depths[block]
            if depth is not None and depth != place + 1:
                wrong.append(
                    f"block {block} was computed as block {depth - 1}, request {owner.request} has it as {place}"
                )
    return wrong


def chains_hang_together(s: CacheSnapshot) -> list[str]:
    """9b: of two neighbours in a table that can both be found, the first is the second's parent."""
    return [
        f"request {owner.request}: block {second} does not follow block {first}"
        for owner in s.requests
        for first, second in pairwise(owner.block_table)
        if None not in (s.hashes[first], s.hashes[second]) and s.parents[second] != s.hashes[first]
    ]


def some_token_is_left_to_run(s: CacheSnapshot) -> list[str]:
    """10: adopted tokens are whole blocks and no more than the request has."""
    return [
        f"request {owner.request} adopted {owner.num_cached_tokens} of its {owner.num_tokens} tokens"
        for owner in s.requests
        if owner.num_cached_tokens > owner.num_tokens
    ]


def empty_blocks_are_taken_first(s: CacheSnapshot) -> list[str]:
    """11a: no cached block is evicted while an empty one is free."""
    cached = [s.states[block] is BlockState.CACHED for block in s.free_queue]
    return [] if cached == sorted(cached) else ["a cached block stands before an empty one in the free queue"]


def tails_go_before_heads(s: CacheSnapshot) -> list[str]:
    """11b: a cached free block stands before its parent in the free queue, and a used one's parent is not free. (With a
    window it is the other way round: beginnings fall out of it.)"""
    if s.window is not None:
        return []
    place = {block: index for index, block in enumerate(s.free_queue)}
    by_hash = {hash_: block for block, hash_ in enumerate(s.hashes) if hash_ is not None}
    wrong = []
    for block, parent_hash in enumerate(s.parents):
        parent = by_hash.get(parent_hash) if parent_hash is not None else None
        if parent is not None and place.get(parent, s.num_blocks) < place.get(block, s.num_blocks):
            wrong.append(f"block {parent} would be evicted before block {block}, which follows it")
    return wrong


def only_the_window_is_held(s: CacheSnapshot) -> list[str]:
    """3b: a request holds the blocks that its next token sees and none before them; without a window all."""
    wrong = []
    for owner in s.requests:
        out_of_sight = 0 if s.window is None else max(0, owner.num_tokens - s.window + 1) // s.block_size
        if owner.first_block != out_of_sight:
            wrong.append(
                f"request {owner.request} with {owner.num_tokens} tokens holds blocks from {owner.first_block} on; its "
                f"next token sees them from {out_of_sight} on"
            )
    return wrong


INVARIANTS: tuple[Callable[[CacheSnapshot], list[str]], ...] = (
    every_block_is_somewhere,
    ids_are_in_range_and_once,
    ref_counts_are_holders,
    the_free_queue_has_the_free_blocks,
    tables_have_room_for_their_tokens,
    only_the_window_is_held,
    reserved_blocks_have_one_receipt,
    only_full_blocks_can_be_found,
    shared_blocks_stand_at_their_place,
    chains_hang_together,
    some_token_is_left_to_run,
    empty_blocks_are_taken_first,
    tails_go_before_heads,
)


def check_cache(snapshot: CacheSnapshot) -> list[str]:
    """Everything that is wrong with a snapshot; empty when nothing is."""
    checks = [ids_are_in_range_and_once] if ids_are_in_range_and_once(snapshot) else INVARIANTS  # others look ids up
    return [f"{check.__name__}: {words}" for check in checks for words in check(snapshot)]


def raise_if_broken(wrong: Iterable[str]) -> None:
    """Stop at the first broken state, where its cause is still near.

    Raises:
        StateError: `wrong` is not empty.
    """
    found = list(wrong)
    if found:
        raise StateError(
            "the KV cache is in a state that must not be (an error in genai_lab, please report it): " + "; ".join(found)
        )
