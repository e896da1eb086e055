"""The name of a full block's content: its tokens and everything before them, under one adapter and one salt.

Keys form a chain: each knows its parent, so two keys are equal only when all tokens from the first one on are. The hash
only makes the search quick: equality compares tokens, so a collision costs time and never a wrong hit.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike

TOKEN_BYTES = 4  # int32

Hasher = Callable[[bytes], int]


def block_hash(data: bytes) -> int:
    """48 bits (exact in JavaScript too) that are the same in every process, so traces show the same numbers."""
    return int.from_bytes(blake2b(data, digest_size=6).digest(), "little")


def token_bytes(tokens: ArrayLike) -> bytes:
    """int32 tokens as bytes: quick to cut, compare and hash."""
    return np.ascontiguousarray(tokens, np.int32).tobytes()


class BlockKey:
    """One full block after `parent`; a root (no parent, no tokens) stands for an adapter and a salt.

    >>> root = BlockKey.root("", "")
    >>> a, b = (root.child(token_bytes([1, 2])).child(token_bytes([3, 4])) for _ in range(2))
    >>> a == b, a.depth, a == root.child(token_bytes([3, 4]))
    (True, 2, False)
    """

    __slots__ = ("depth", "hash", "hasher", "namespace", "parent", "tokens")

    def __init__(
        self, parent: BlockKey | None, tokens: bytes, namespace: tuple[str, str], hash_: int, hasher: Hasher
    ) -> None:
        self.parent, self.tokens, self.namespace = parent, tokens, namespace
        self.hash, self.hasher = hash_, hasher
        self.depth: int = 0 if parent is None else parent.depth + 1

    @classmethod
    def root(cls, adapter: str, salt: str, hasher: Hasher = block_hash) -> BlockKey:
        parts = [text.encode("utf-8", "surrogatepass") for text in (adapter, salt)]
        data = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return cls(None, b"", (adapter, salt), hasher(data), hasher)

    def child(self, tokens: bytes) -> BlockKey:
        """The block of `tokens` (int32 bytes) after this one."""
        return BlockKey(
            self, tokens, self.namespace, self.hasher(self.hash.to_bytes(8, "little") + tokens), self.hasher
        )

    @property
    def adapter(self) -> str:
        return self.namespace[0]

    @property
    def is_root(self) -> bool:
        return self.parent is None

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockKey):
            return NotImplemented
        if self.depth != other.depth or self.namespace != other.namespace:
            return False
        mine: BlockKey | None = self
        theirs: BlockKey | None = other
        while mine is not theirs:  # chains grow out of common objects, so this walk is short
            if mine is None or theirs is None or mine.hash != theirs.hash or mine.tokens != theirs.tokens:
                return False
            mine, theirs = mine.parent, theirs.parent
        return True

    def __repr__(self) -> str:
        return f"BlockKey(depth={self.depth}, hash={self.hash:#x})"
