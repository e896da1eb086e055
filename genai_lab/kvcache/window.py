"""Local attention: a token sees itself and the few before it, so a request needs only its last blocks.

Receives positions, answers with block indices. A block whose last token no later token sees has fallen out of the
window: its request lets it go when a step is committed, and its place in the table stays empty. Such a block may stay
findable; but to go on from some place only the blocks in the window there are needed, whatever became of older ones.
So the end of a sequence is worth more than its beginning, and the beginning is evicted first.

(The rules are vLLM's for sliding windows.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genai_lab.errors import ArgumentError
from genai_lab.kvcache.keys import TOKEN_BYTES, BlockKey
from genai_lab.kvcache.prefix import PrefixIndex, Walk
from genai_lab.kvcache.table import blocks_for


@dataclass(frozen=True, slots=True)
class Window:
    """How far back a token sees.

    Args:
        tokens: that it sees, itself included (GroupQueryAttention's local_window_size).
        block_size: tokens per block.

    >>> window = Window(tokens=6, block_size=4)
    >>> [window.first_block(n) for n in (0, 8, 9, 12, 13)]
    [0, 0, 1, 1, 2]
    >>> window.most_blocks(step=1), window.most_blocks(step=8)
    (3, 5)
    """

    tokens: int
    block_size: int

    def __post_init__(self) -> None:
        if self.tokens < 2 or self.block_size < 1:
            raise ArgumentError(
                f"a window of {self.tokens} tokens in blocks of {self.block_size}: at least 2 tokens, itself and the "
                f"one before, and blocks of at least 1 are needed; None is no window"
            )

    def first_block(self, num_tokens: int) -> int:
        """The first block that the token after `num_tokens` others sees, itself included."""
        return max(0, num_tokens - self.tokens + 1) // self.block_size

    def most_blocks(self, step: int) -> int:
        """The most blocks that a request holds at a time, if it is read by `step` tokens at a time."""
        return blocks_for(self.tokens - 1 + step, self.block_size) + (self.tokens - 1 + step > 1)

    def fewest(self, num_tokens: int) -> int:
        """Blocks without which `num_tokens` tokens cannot be read, even one by one."""
        return min(blocks_for(num_tokens, self.block_size), blocks_for(self.tokens, self.block_size))


def walk_window(prefixes: PrefixIndex, root: BlockKey, data: bytes, limit: int, window: Window) -> Walk:
    """The longest beginning of a prompt, of at most `limit` blocks, after which all blocks in the window are cached."""
    keys, blocks = _look_up(prefixes, root, data, limit)
    count = _longest(blocks, window)
    first = window.first_block(count * window.block_size)
    held = tuple(block for block in blocks[first:count] if block is not None)
    return Walk(root, tuple(keys[:count]), held, first)


def _look_up(prefixes: PrefixIndex, root: BlockKey, data: bytes, limit: int) -> tuple[list[BlockKey], list[int | None]]:
    """The keys of the prompt's blocks, and where their content is."""
    parent, size = root, prefixes.block_size * TOKEN_BYTES
    keys: list[BlockKey] = []
    blocks: list[int | None] = []
    for index in range(limit):
        key = parent.child(data[index * size : (index + 1) * size])
        parent, block = prefixes.find(key) or (key, None)
        keys.append(parent)
        blocks.append(block)
    return keys, blocks


def _longest(blocks: Sequence[int | None], window: Window) -> int:
    """How many blocks the longest usable beginning has."""
    longest = cached = 0  # neighbours up to here that are cached
    for count, block in enumerate(blocks, 1):
        cached = 0 if block is None else cached + 1
        if cached and cached >= count - window.first_block(count * window.block_size):
            longest = count
    return longest
