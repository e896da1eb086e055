"""Finds cached blocks by content, and can say why the search ended.

Receives keys and block ids from the pool; `walk` and `explain` change nothing. What it keeps besides the map (siblings,
the last evictions, ends of sequences that did not fill a block) serves explanations only and is bounded. It does not
know reference counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from genai_lab.kvcache.eviction import EvictionLog
from genai_lab.kvcache.keys import TOKEN_BYTES, BlockKey, Hasher, block_hash
from genai_lab.kvcache.misses import Miss, MissReason
from genai_lab.kvcache.table import RequestTable

MOST_NAMESPACES = 16  # how many other adapters and salts an explanation looks through


@dataclass(frozen=True, slots=True)
class Walk:
    """The cached blocks of a prompt, in order, with their keys; `root` is the key before the first."""

    root: BlockKey
    keys: tuple[BlockKey, ...]
    blocks: tuple[int, ...]
    first: int = 0
    """Blocks before those, which are out of the window: they have keys and are not needed."""

    @property
    def last(self) -> BlockKey:
        return self.keys[-1] if self.keys else self.root

    def cut(self, may_end: Callable[[int], bool]) -> Walk:
        """The longest beginning whose last block may be one."""
        count = next((n for n in range(len(self.blocks), 0, -1) if may_end(self.blocks[n - 1])), 0)
        return replace(self, keys=self.keys[: self.first + count] if count else (), blocks=self.blocks[:count])


class PrefixIndex:
    """Content -> block.

    Args:
        block_size: tokens per block.
        memory: how many evictions and partial ends are remembered for explanations.
        hasher: 48-bit hash of bytes; tests give one that collides.
    """

    def __init__(self, block_size: int, memory: int, hasher: Hasher = block_hash) -> None:
        self.block_size, self.hasher = block_size, hasher
        self.evictions = EvictionLog(memory)
        self._blocks: dict[BlockKey, tuple[BlockKey, int]] = {}  # with the key that went in: chains share objects
        self._children: dict[BlockKey, list[bytes]] = {}  # sorted, so that neighbours start most alike
        self._namespaces: dict[bytes, dict[tuple[str, str], BlockKey]] = {}  # first block's tokens -> roots
        self._partials: OrderedDict[BlockKey, tuple[bytes, int]] = OrderedDict()
        self._memory = memory
        self.added, self.removed = 0, 0  # how often: what was found before is true while they stand still
        self._gone: dict[int, int] = {}  # block -> `removed` when it last lost its content

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._blocks

    def find(self, key: BlockKey) -> tuple[BlockKey, int] | None:
        """The block with this content, and the key object that stands for it."""
        return self._blocks.get(key)

    def add(self, key: BlockKey, block: int) -> None:
        """`block` has this content from now on; no other block may have it."""
        assert key.parent is not None and key not in self._blocks
        self.added += 1
        self._blocks[key] = (key, block)
        insort(self._children.setdefault(key.parent, []), key.tokens)
        if key.parent.is_root:
            self._namespaces.setdefault(key.tokens, {})[key.namespace] = key.parent

    def remove(self, key: BlockKey) -> None:
        """The content is gone."""
        assert key.parent is not None
        self.removed += 1
        _, block = self._blocks.pop(key)
        self._gone[block] = self.removed
        siblings = self._children[key.parent]
        del siblings[bisect_left(siblings, key.tokens)]
        if not siblings:
            del self._children[key.parent]
        if key.parent.is_root:
            del self._namespaces[key.tokens][key.namespace]
            if not self._namespaces[key.tokens]:
                del self._namespaces[key.tokens]

    def clear(self) -> None:
        """Nothing is cached, and nothing is remembered."""
        self.removed += 1
        self._gone.update((block, self.removed) for _, block in self._blocks.values())
        self._blocks.clear()
        self._children.clear()
        self._namespaces.clear()
        self._partials.clear()
        self.evictions.clear()

    def lost_since(self, removed: int, blocks: Iterable[int]) -> bool:
        """Whether one of `blocks` lost its content after the count of removals was `removed`."""
        return any(self._gone.get(block, 0) > removed for block in blocks)

    def remember_partial(self, parent: BlockKey, tokens: bytes, request: int) -> None:
        """A sequence ended with a block that is not full; a later prompt may ask why it is not there."""
        self._partials[parent] = (tokens, request)
        self._partials.move_to_end(parent)
        if len(self._partials) > self._memory:
            self._partials.popitem(last=False)

    def walk(self, data: bytes, adapter: str, salt: str, limit: int) -> Walk:
        """The first cached blocks of a prompt (int32 bytes), at most `limit` of them."""
        return self._walk(BlockKey.root(adapter, salt, self.hasher), data, limit)

    def _walk(self, root: BlockKey, data: bytes, limit: int) -> Walk:
        parent, size = root, self.block_size * TOKEN_BYTES
        keys: list[BlockKey] = []
        blocks: list[int] = []
        for index in range(limit):
            found = self._blocks.get(parent.child(data[index * size : (index + 1) * size]))
            if found is None:
                break
            parent, block = found
            keys.append(parent)
            blocks.append(block)
        return Walk(root, tuple(keys), tuple(blocks))

    def explain(self, walk: Walk, data: bytes, live: Iterable[RequestTable]) -> Miss | None:
        """Why the block after `walk` is not adopted."""
        index, size = len(walk.keys), self.block_size * TOKEN_BYTES
        rest = data[index * size : (index + 1) * size]
        position = index * self.block_size
        if not rest:
            return None
        if len(rest) < size:
            return Miss(MissReason.PARTIAL_BLOCK, index, position, filled=len(rest) // TOKEN_BYTES)
        key = walk.last.child(rest)
        if key in self._blocks:
            return Miss(MissReason.LAST_TOKEN, index, position)
        return (
            self._evicted(key, index, position)
            or self._elsewhere(walk.root, data, index, position)
            or self._unfinished(walk, data, index, position, live)
            or self._different(walk.last, rest, index, position)
            or Miss(MissReason.NEVER_SEEN, index, position)
        )

    def _evicted(self, key: BlockKey, index: int, position: int) -> Miss | None:
        eviction = self.evictions.find(key)
        if eviction is None:
            return None
        return Miss(MissReason.EVICTED, index, position, request=eviction.by, eviction=eviction)

    def _elsewhere(self, root: BlockKey, data: bytes, index: int, position: int) -> Miss | None:
        """Another adapter or salt has this block."""
        others = self._namespaces.get(data[: self.block_size * TOKEN_BYTES], {})
        for namespace, other in list(others.items())[:MOST_NAMESPACES]:
            if namespace != root.namespace and len(self._walk(other, data, index + 1).blocks) > index:
                if namespace[0] != root.adapter:
                    return Miss(MissReason.OTHER_ADAPTER, index, position, adapter=namespace[0])
                return Miss(MissReason.OTHER_SALT, index, position)
        return None

    def _unfinished(
        self, walk: Walk, data: bytes, index: int, position: int, live: Iterable[RequestTable]
    ) -> Miss | None:
        """A live request will have this block, or somebody's sequence ended in the middle of it."""
        stop = (index + 1) * self.block_size * TOKEN_BYTES
        for table in live:
            same = table.namespace == walk.root.namespace and table.prompt[:stop] == data[:stop]
            if same and table.num_tokens < position + self.block_size:
                return Miss(MissReason.NOT_COMPUTED_YET, index, position, request=table.request)
        tokens, request = self._partials.get(walk.last, (b"", 0))
        if tokens and data.startswith(tokens, position * TOKEN_BYTES):
            return Miss(MissReason.PARTIAL_BLOCK, index, position, request=request, filled=len(tokens) // TOKEN_BYTES)
        return None

    def _different(self, parent: BlockKey, rest: bytes, index: int, position: int) -> Miss | None:
        """The cached block that starts most like `rest`; its first different token."""
        siblings = self._children.get(parent, [])
        place = bisect_left(siblings, rest)
        wanted = np.frombuffer(rest, np.int32)
        alike, nearest = 0, None
        for sibling in siblings[max(place - 1, 0) : place + 1]:
            cached = np.frombuffer(sibling, np.int32)
            common = int(np.argmax(cached != wanted))
            if nearest is None or common > alike:
                alike, nearest = common, cached
        if nearest is None or (index == 0 and alike == 0):
            return None
        return Miss(
            MissReason.DIFFERENT_TOKEN,
            index,
            position + alike,
            expected=int(nearest[alike]),
            found=int(wanted[alike]),
        )
