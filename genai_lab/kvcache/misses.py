"""Why a prompt's next block was not in the cache: a reason with its operands, and the sentence for a person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from genai_lab.kvcache.eviction import Eviction


class MissReason(StrEnum):
    """What ended the cached prefix."""

    NO_CACHE = "no_cache"
    """Prefix caching is off."""
    NEVER_SEEN = "never_seen"
    """Nothing cached goes on like this."""
    NOT_COMPUTED_YET = "not_computed_yet"
    """A live request has the same tokens, but has not run them yet."""
    DIFFERENT_TOKEN = "different_token"
    """A cached block starts alike and then differs."""
    EVICTED = "evicted"
    """It was cached and another request needed the room."""
    PARTIAL_BLOCK = "partial_block"
    """Only full blocks are cached."""
    OTHER_ADAPTER = "other_adapter"
    """The same tokens are cached, computed with another adapter."""
    OTHER_SALT = "other_salt"
    """The same tokens are cached under another salt."""
    NO_STATE = "no_state"
    """The block is cached, but not the state that the model had behind it or a later one."""
    LAST_TOKEN = "last_token"
    """The block is cached, but its last token must run: its logits choose the next token."""


@dataclass(frozen=True, slots=True)
class Miss:
    """The first block that was not adopted, and why. Fields that a reason does not speak of are None."""

    reason: MissReason
    block_index: int
    """Which block of the prompt, from 0."""
    position: int
    """The token position where the cached prefix ends, or, for DIFFERENT_TOKEN, where the difference is."""
    expected: int | None = None
    """DIFFERENT_TOKEN: the cached block's token at `position`."""
    found: int | None = None
    """DIFFERENT_TOKEN: the prompt's token at `position`."""
    request: int | None = None
    """The other request: whose partial block it was, who will compute it, or who evicted it."""
    filled: int | None = None
    """PARTIAL_BLOCK: how many tokens the block has."""
    adapter: str | None = None
    """OTHER_ADAPTER: the adapter that it was computed with."""
    eviction: Eviction | None = None
    """EVICTED: the whole story."""

    def in_words(self) -> str:
        where = f"block {self.block_index} (from token {self.position})"
        match self.reason:
            case MissReason.NO_CACHE:
                return "prefix caching is off"
            case MissReason.NEVER_SEEN if self.block_index == 0:
                return "no cached prompt begins like this"
            case MissReason.NEVER_SEEN:
                return f"nothing cached goes on after the first {self.position} tokens"
            case MissReason.NOT_COMPUTED_YET:
                return f"{where}: request {self.request} has the same tokens but has not run them yet"
            case MissReason.DIFFERENT_TOKEN:
                return (
                    f"block {self.block_index} differs at token {self.position}: "
                    f"cached is token id {self.expected}, here it is {self.found}"
                )
            case MissReason.EVICTED if self.eviction is not None:
                return f"{where} was cached, but {self.eviction.in_words()}"
            case MissReason.PARTIAL_BLOCK if self.request is not None:
                left = f"{where}: request {self.request} left only {self.filled} tokens there"
                return f"{left}, and only full blocks are kept"
            case MissReason.PARTIAL_BLOCK:
                last = "token does" if self.filled == 1 else f"{self.filled} tokens do"
                return f"the last {last} not fill a block, and only full blocks are kept"
            case MissReason.OTHER_ADAPTER:
                return f"{where} is cached for {f'adapter {self.adapter!r}' if self.adapter else 'no adapter'} only"
            case MissReason.OTHER_SALT:
                return f"{where} is cached under another salt only"
            case MissReason.NO_STATE:
                return f"{where} is cached, but not the state that the model had behind it, so it is read again"
            case _:
                return f"{where} is cached, but the last token must run to give the next one's logits"
