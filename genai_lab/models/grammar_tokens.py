"""A folder's tokenizer as the grammar room wants it: bytes, special tokens, end tokens and an encoder."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from genai_lab.config import Config
from genai_lab.grammar import TokenTable

if TYPE_CHECKING:
    from genai_lab.tokenizer import Tokenizer


def token_table(tokenizer: Tokenizer, config: Config) -> TokenTable:
    """The vocabulary as far as the model's logits go."""
    from genai_lab.tokenizer.token_bytes import token_bytes

    size = config.model.vocab_size
    special = frozenset(token for token in tokenizer.vocabulary.special_ids if token < size)
    tokens = token_bytes(tokenizer.vocabulary, size)
    return TokenTable(tokens, sorted(special), tuple(config.model.eos_token_ids), _Encoder(tokenizer, tokens, special))


class _Encoder:
    """Text -> ids whose bytes are that text and nothing else: a grammar's forced text stands in the middle of an
    answer, so no space may be put before it, and no part of it may become a special token."""

    def __init__(self, tokenizer: Tokenizer, tokens: list[bytes], special: frozenset[int]) -> None:
        self._tokenizer, self._tokens, self._special = tokenizer, tokens, special

    def __call__(self, text: str) -> list[int]:
        ids = self._tokenizer._plain_ids(text)
        whole = all(i < len(self._tokens) and i not in self._special for i in ids)
        if whole and b"".join(self._tokens[i] for i in ids) == text.encode():
            return ids
        return self._longest_first(text.encode())

    def _longest_first(self, text: bytes) -> list[int]:
        """The longest token that fits, again and again; stops where none does."""
        ids: list[int] = []
        while text:
            length = next((n for n in range(min(len(text), self._longest), 0, -1) if text[:n] in self._by_bytes), 0)
            if not length:
                break
            ids.append(self._by_bytes[text[:length]])
            text = text[length:]
        return ids

    @cached_property
    def _by_bytes(self) -> dict[bytes, int]:
        return {text: i for i, text in enumerate(self._tokens) if text and i not in self._special}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_bytes), default=0)
