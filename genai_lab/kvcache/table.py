"""What one request holds: its blocks in order, how many tokens stand in them, and the keys of its full blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from genai_lab.errors import ArgumentError, StateError
from genai_lab.kvcache.keys import TOKEN_BYTES, BlockKey
from genai_lab.kvcache.snapshots import RequestSnapshot


@dataclass(slots=True)
class RequestTable:
    """Changed by its manager only."""

    request: int
    root: BlockKey
    """Key before the first block: adapter and salt."""
    prompt: bytes = b""
    """Tokens known when it was taken in, int32; less after a rewind."""
    blocks: list[int] = field(default_factory=list)
    """Those that it holds, neighbours in the sequence."""
    first_block: int = 0
    """Place of `blocks[0]` in the sequence: as many fell out of its window."""
    keys: list[BlockKey] = field(default_factory=list)
    """Keys of the full blocks, also of those that another block stands for in the cache."""
    num_tokens: int = 0
    num_cached_tokens: int = 0
    tail: bytes = b""
    """Tokens in the last block when it is not full, int32."""
    epoch: int = 0
    """The pool's when it was taken in."""
    step: int = 0
    """Of the last reservation."""
    receipt: int | None = None
    """Id of the reservation that waits for its commit or release."""

    @property
    def namespace(self) -> tuple[str, str]:
        return self.root.namespace

    @property
    def last_key(self) -> BlockKey:
        return self.keys[-1] if self.keys else self.root

    @property
    def num_places(self) -> int:
        """Blocks of its sequence, those that fell out of its window included."""
        return self.first_block + len(self.blocks)

    def copy(self, request: int) -> RequestTable:
        """The same blocks for another request."""
        return replace(self, request=request, blocks=list(self.blocks), keys=list(self.keys))

    def cut(self, length: int, block_size: int) -> list[int]:
        """Keep the first `length` tokens; the blocks that are not needed any more, in order."""
        check_length(self, length)
        if length == self.num_tokens:
            return []
        full, rest = divmod(length, block_size)
        tail = self.keys[full].tokens if full < len(self.keys) else self.tail
        kept = max(0, blocks_for(length, block_size) - self.first_block)
        surplus = self.blocks[kept:]
        del self.blocks[kept:], self.keys[full:]
        self.tail = tail[: rest * TOKEN_BYTES]
        self.num_tokens, self.num_cached_tokens = length, min(self.num_cached_tokens, length)
        self.prompt = self.prompt[: length * TOKEN_BYTES]
        return surplus

    def snapshot(self) -> RequestSnapshot:
        adapter, salt = self.namespace
        return RequestSnapshot(
            self.request,
            tuple(self.blocks),
            self.num_tokens,
            self.num_cached_tokens,
            adapter,
            salt,
            self.first_block,
        )


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that `num_tokens` tokens take.

    >>> [blocks_for(n, 4) for n in (0, 1, 4, 5)]
    [0, 1, 1, 2]
    """
    return -(-num_tokens // block_size)


def check_length(table: RequestTable, length: int) -> None:
    """Refuse to keep more tokens than there are."""
    if not 0 <= length <= table.num_tokens:
        raise ArgumentError(
            f"length is {length}; request {table.request} has {table.num_tokens} tokens, so 0 to {table.num_tokens} is "
            f"allowed"
        )


def find_table(tables: Mapping[int, RequestTable], request: int) -> RequestTable:
    """The request's table, or an error that says who has one."""
    try:
        return tables[request]
    except KeyError:
        known = ", ".join(map(str, tables)) or "none"
        raise StateError(f"request {request} has no blocks; allocate it first. Allocated requests: {known}") from None


def find_idle_table(tables: Mapping[int, RequestTable], request: int) -> RequestTable:
    """The same, of a request without an open receipt."""
    table = find_table(tables, request)
    if table.receipt is not None:
        raise StateError(f"request {request} has receipt {table.receipt} open; commit or release it first")
    return table


def must_be_new(tables: Mapping[int, RequestTable], request: int) -> None:
    """Refuse a request that has a table."""
    if request in tables:
        raise StateError(f"request {request} is allocated already; free it first, or use another number")
