"""The pool of blocks: who holds each, which are free, and whose content can still be found.

A block is free (in the queue), reserved (taken for a receipt) or held (by one table or more). Empty free blocks are
taken first; when only cached ones are left, the eviction policy chooses. A block that was just adopted is held, so it
can never be evicted. The pool knows no requests but as numbers, and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex, overload

from genai_lab.errors import ArgumentError
from genai_lab.kvcache.eviction import Eviction, EvictionPolicy, FreeBlock, LeastRecentlyUsed
from genai_lab.kvcache.free_queue import FreeQueue
from genai_lab.kvcache.keys import BlockKey, Hasher, block_hash
from genai_lab.kvcache.prefix import PrefixIndex

REMEMBERED_PER_BLOCK = 4  # evictions and partial ends kept for explanations, per block of the pool


@dataclass(frozen=True, slots=True)
class Taken:
    """A reserved block and what it takes to put it back exactly."""

    block: int
    place: int
    key: BlockKey | None
    eviction: Eviction | None
    computed_by: int | None
    epoch: int


class BlockPool:
    """Reference counts, the free queue, the map of cached content.

    Args:
        num_blocks: blocks in the pool.
        block_size: tokens per block.
        eviction: chooses which cached block is given up; default the least recently used.
        hasher: 48-bit hash of a block's content; the default is the same in every process.

    >>> pool = BlockPool(num_blocks=4, block_size=16)
    >>> taken = pool.take(2, request=0, step=0)
    >>> [t.block for t in taken], pool.num_free
    ([0, 1], 2)
    >>> pool.put_back(taken); pool.num_free
    4
    """

    def __init__(
        self, num_blocks: int, block_size: int, eviction: EvictionPolicy | None = None, hasher: Hasher = block_hash
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ArgumentError(
                f"a pool needs at least one block of one token, got num_blocks={num_blocks}, block_size={block_size}; "
                f"give it more memory or smaller blocks"
            )
        self.num_blocks, self.block_size = num_blocks, block_size
        self.eviction: EvictionPolicy = eviction or LeastRecentlyUsed()
        self.prefixes = PrefixIndex(block_size, REMEMBERED_PER_BLOCK * num_blocks, hasher)
        self.free_queue = FreeQueue(num_blocks)
        self.ref_counts = [0] * num_blocks
        self.keys: list[BlockKey | None] = [None] * num_blocks
        self.computed_by: list[int | None] = [None] * num_blocks
        self.last_used = [0] * num_blocks
        self.hits = [0] * num_blocks
        self.reserved: set[int] = set()
        self.num_cached_free = 0
        """Free blocks whose content can be found."""
        self.epoch = 0
        """How often the cache was cleared: what was taken or begun before must not come back into it."""

    @property
    def num_free(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self.free_queue)

    def take(self, count: int, request: int, step: int) -> tuple[Taken, ...]:
        """Reserve `count` <= `num_free` free blocks, evicting cached content when no empty ones are left."""
        taken: list[Taken] = []
        try:
            for _ in range(count):
                taken.append(self._take_one(request, step))
        except BaseException:  # a policy may raise anything
            self.put_back(taken)
            raise
        return tuple(taken)

    def _take_one(self, request: int, step: int) -> Taken:
        block = self.free_queue.at(0)
        if self.keys[block] is not None:  # empty blocks stand before cached ones, so all are cached
            block = self._choose()
        key, eviction, owner = self.keys[block], None, self.computed_by[block]
        if key is not None:
            eviction = self._evict(block, request, step, self.eviction.name, len(self.free_queue))
            self.num_cached_free -= 1
        place = self.free_queue.remove(block)
        self.reserved.add(block)
        self.computed_by[block] = None
        return Taken(block, place, key, eviction, owner, self.epoch)

    def _choose(self) -> int:
        candidates = _Candidates(self)
        chosen = self.eviction.choose(candidates)
        if not isinstance(chosen, SupportsIndex) or chosen not in self.free_queue:
            raise ArgumentError(
                f"the eviction policy {type(self.eviction).__name__} chose block {chosen!r}, which is not among its "
                f"{len(candidates)} candidates; return the .block of one of them"
            )
        return index(chosen)

    def overwrite(self, block: int, request: int, step: int) -> Taken:
        """The only holder of a cached block is about to write into it: its content cannot be found any more."""
        key, owner = self.keys[block], self.computed_by[block]
        return Taken(block, 0, key, self._evict(block, request, step, "", 0), owner, self.epoch)

    def _evict(self, block: int, request: int, step: int, policy: str, candidates: int) -> Eviction:
        key, owner = self.keys[block], self.computed_by[block]
        assert key is not None and owner is not None
        stop = key.depth * self.block_size
        eviction = Eviction(block, key.hash, stop - self.block_size, stop, owner, step, request, policy, candidates)
        self.prefixes.remove(key)
        self.prefixes.evictions.add(key, eviction)
        self.keys[block] = None
        return eviction

    def put_back(self, taken: Sequence[Taken], contents_lost: bool = False) -> None:
        """Undo `take`: each block stands where it stood, with its content findable again unless that is lost."""
        for one in reversed(taken):
            self.reserved.remove(one.block)
            if one.key is None or self.restore(one, contents_lost):
                self.computed_by[one.block] = one.computed_by
                self.num_cached_free += one.key is not None
                self.free_queue.put_back(one.block, one.place)
            else:
                self._empty(one.block)

    def restore(self, one: Taken, contents_lost: bool = False) -> bool:
        """Make evicted content findable again; False when it is lost, was cleared, or another block has it now."""
        assert one.key is not None and one.eviction is not None
        if contents_lost or one.epoch != self.epoch or one.key in self.prefixes:
            return False
        self.prefixes.evictions.undo(one.eviction)
        self.prefixes.add(one.key, one.block)
        self.keys[one.block] = one.key
        return True

    def own(self, block: int, request: int, step: int) -> None:
        """A reserved block joins a table."""
        self.reserved.remove(block)
        self.ref_counts[block] = 1
        self.computed_by[block] = request
        self.last_used[block] = step
        self.hits[block] = 0

    def hold(self, block: int, step: int, *, hit: bool = False) -> None:
        """One more table has `block`; a free one leaves the queue with its content."""
        if self.ref_counts[block] == 0:
            self.free_queue.remove(block)
            self.num_cached_free -= 1
        self.ref_counts[block] += 1
        self.hits[block] += hit
        self.last_used[block] = step

    def let_go(self, block: int, step: int) -> bool:
        """One table fewer; True when nobody has it now, and it is free."""
        self.ref_counts[block] -= 1
        self.last_used[block] = step
        if self.ref_counts[block]:
            return False
        if self.keys[block] is None:
            self._empty(block)
        else:
            self.num_cached_free += 1
            self.free_queue.push_back(block)
        return True

    def give_up(self, block: int) -> None:
        """A reserved block was not needed after all."""
        self.reserved.remove(block)
        self._empty(block)

    def _empty(self, block: int) -> None:
        self.computed_by[block] = None
        self.free_queue.push_front(block)

    def cache(self, block: int, key: BlockKey) -> None:
        """A held, full block can be found from now on."""
        assert self.keys[block] is None
        self.prefixes.add(key, block)
        self.keys[block] = key

    def clear(self) -> int:
        """Nothing can be found any more; how many blocks could."""
        count = len(self.prefixes)
        self.prefixes.clear()
        self.keys = [None] * self.num_blocks
        for block in self.free_queue:
            self.computed_by[block] = None
        self.num_cached_free = 0
        self.epoch += 1
        return count

    def check(self) -> list[str]:
        """What is wrong between the pool's own parts, in words; empty when nothing is."""
        wrong = []
        cached = {block for block, key in enumerate(self.keys) if key is not None}
        if len(cached) != len(self.prefixes):
            wrong.append(f"{len(cached)} blocks have a key, the map has {len(self.prefixes)}")
        for block in sorted(cached):
            key = self.keys[block]
            if key is not None and self.prefixes.find(key) != (key, block):
                wrong.append(f"block {block} has a key that the map does not lead to it")
        for block in range(self.num_blocks):
            places = (block in self.free_queue) + (block in self.reserved) + (self.ref_counts[block] > 0)
            if places != 1:
                wrong.append(f"block {block} is in {places} places; free, reserved or held is allowed")
        keyed = [self.keys[block] is not None for block in self.free_queue]
        if sum(keyed) != self.num_cached_free:
            wrong.append(f"{sum(keyed)} free blocks are cached, counted were {self.num_cached_free}")
        if keyed != sorted(keyed):
            wrong.append("an empty block stands behind a cached one in the free queue")
        return wrong


class _Candidates(Sequence[FreeBlock]):
    """The free cached blocks for a policy, made one by one as it looks at them."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool

    def __len__(self) -> int:
        return len(self._pool.free_queue)

    @overload
    def __getitem__(self, place: int) -> FreeBlock: ...
    @overload
    def __getitem__(self, place: slice) -> list[FreeBlock]: ...
    def __getitem__(self, place: int | slice) -> FreeBlock | list[FreeBlock]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        pool, block = self._pool, self._pool.free_queue.at(place % len(self))
        key, owner = pool.keys[block], pool.computed_by[block]
        assert key is not None and owner is not None
        return FreeBlock(block, owner, pool.last_used[block], pool.hits[block], key.depth, key.adapter)
