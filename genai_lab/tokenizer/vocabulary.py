"""The tokens of a model: their written form, which of them are special, and which ids exist.

Receives a tokenizer of the `tokenizers` library and the model's `vocab_size`. It turns no text into tokens and no
sequence of tokens into text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.tokenizer.detokenizer import REPLACEMENT, byte_of_token, bytes_of_letters, decoder_settings
from genai_lab.tokenizer.guard import decoded
from genai_lab.types import Tensor, TokenId

Ids: TypeAlias = Sequence[int] | NDArray[np.integer[Any]] | Tensor
"""Token ids as people hand them over: a list, a numpy array or a tensor."""

_BEFORE: Final = "a"  # stands before a token whose own text is asked for


class Vocabulary:
    """Ids, written forms and display texts of tokens.

    Args:
        backend: a `tokenizers.Tokenizer`.
        vocab_size: the model's, which may be larger than the tokenizer's: the ids between are allowed and empty.
    """

    def __init__(self, backend: Any, vocab_size: int) -> None:
        self._backend = backend
        self.decoder = backend.decoder
        added = backend.get_added_tokens_decoder()
        self.added_ids: frozenset[TokenId] = frozenset(added)
        self.special_ids: frozenset[TokenId] = frozenset(i for i, token in added.items() if token.special)
        self.size: int = max(vocab_size, backend.get_vocab_size(with_added_tokens=True), max(added, default=-1) + 1)
        self._is_byte_level = any(s["type"] == "ByteLevel" for s in decoder_settings(self.decoder))
        self._written: dict[TokenId, str | None] = {}
        self._pieces: dict[TokenId, str] = {}

    def written(self, token_id: TokenId) -> str | None:
        """The token as the vocabulary writes it (`Ġthe`, `##ing`, `<0x0A>`), or None for an id without a token."""
        if token_id not in self._written:
            self._written[token_id] = self._backend.id_to_token(token_id)
        return self._written[token_id]

    def piece(self, token_id: TokenId) -> str:
        """What the token alone looks like in the middle of a text; bytes that are no UTF-8 as `<0xF0>`."""
        if token_id not in self._pieces:
            self._pieces[token_id] = self._piece(token_id)
        return self._pieces[token_id]

    def part_of_character(self, token_id: TokenId) -> bytes | None:
        """The bytes of a token that is not whole characters, such as the first half of an emoji; None for any other."""
        written = self.written(token_id)
        if written is None or token_id in self.special_ids or self.decoder is None:
            return None
        byte = None if self._is_byte_level else byte_of_token(written)
        if byte is None and not self._is_byte_level:
            return None
        data = bytes_of_letters(written) if byte is None else bytes([byte])
        return data if REPLACEMENT in data.decode("utf-8", "replace") else None

    def _piece(self, token_id: TokenId) -> str:
        written = self.written(token_id)
        if written is None:
            return f"<id {token_id}>"
        decoder = self.decoder
        if token_id in self.special_ids or decoder is None:
            return written
        text = decoded(decoder, [_BEFORE, written])
        if not text.startswith(_BEFORE):
            return written
        if REPLACEMENT not in text:
            return text[len(_BEFORE) :]
        return written if byte_of_token(written) is not None else self._with_bytes_shown(written, text)

    def _with_bytes_shown(self, written: str, text: str) -> str:
        if not self._is_byte_level:
            return text[len(_BEFORE) :]
        shown = bytes_of_letters(written).decode("utf-8", errors="surrogateescape")
        return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in shown)

    # ---- checking what people hand over

    def check_id(self, token_id: object, argument: str = "token_id") -> TokenId:
        """One token id as an int.

        Raises:
            ArgumentTypeError: not an integer.
            ArgumentError: outside the vocabulary.
        """
        if isinstance(token_id, np.ndarray) and token_id.ndim == 0:
            token_id = token_id[()]
        if isinstance(token_id, bool | np.bool_) or not isinstance(token_id, int | np.integer):
            raise ArgumentTypeError(
                f"{argument} is {token_id!r:.60} ({type(token_id).__name__}); one integer token id is allowed."
            )
        if not 0 <= token_id < self.size:
            self._check_exists(int(token_id), argument)
        return int(token_id)

    def check_ids(self, ids: object, argument: str = "ids") -> list[TokenId]:
        """The token ids of one sequence, [num_tokens] or [1, num_tokens], as ints; an empty one is allowed.

        Raises:
            ArgumentTypeError: not integers.
            ArgumentError: several sequences, or an id outside the vocabulary.
        """
        array = self._as_array(ids, argument)
        if array.ndim == 2 and array.shape[0] == 1:
            array = array[0]
        if array.ndim != 1:
            raise ArgumentError(
                f"{argument} has the shape {array.shape}; one sequence, [num_tokens] or [1, num_tokens], is allowed. "
                "For several call decode_batch."
            )
        if array.size == 0:
            return []
        if array.dtype.kind not in "iu":
            raise ArgumentTypeError(f"{argument} holds {array.dtype}; integer token ids are allowed.")
        if array.min() < 0 or array.max() >= self.size:
            for token_id in array.tolist():
                if not 0 <= token_id < self.size:
                    self._check_exists(token_id, argument)
        checked: list[TokenId] = array.tolist()
        return checked

    def _as_array(self, ids: object, argument: str) -> NDArray[Any]:
        if isinstance(ids, np.ndarray | Tensor):
            return np.asarray(ids)
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise ArgumentTypeError(
                f"{argument} is {type(ids).__name__}; a list, array or tensor of token ids is allowed. Text becomes "
                f"ids by encode."
            )
        items = list(ids)
        if any(isinstance(item, bool | np.bool_) for item in items):
            raise ArgumentTypeError(f"{argument} holds booleans; integer token ids are allowed.")
        try:
            array = np.asarray(items)
        except ValueError as error:
            raise ArgumentError(f"{argument} is a ragged list; one flat list of token ids is allowed.") from error
        if array.dtype.kind == "O" and all(isinstance(item, int) for item in items):
            raise ArgumentError(f"{argument} holds an id beyond 64 bits; 0 to {self.size - 1} is allowed.")
        return array

    def _check_exists(self, token_id: int, argument: str) -> None:
        if 0 <= token_id < 2**32 and self.written(token_id) is not None:
            return
        raise ArgumentError(
            f"{argument} holds the token id {token_id}; 0 to {self.size - 1} is allowed for this model. Was it made by "
            f"another model's tokenizer?"
        )

    def id_of(self, token: str) -> TokenId:
        """The id of a token by its written form.

        Raises:
            ArgumentError: no such token; names one that is written alike.
        """
        token_id: TokenId | None = self._backend.token_to_id(token)
        if token_id is not None:
            return token_id
        specials = [str(self.written(i)) for i in sorted(self.special_ids)]
        close = difflib.get_close_matches(token, specials, n=1) or specials[:3]
        raise ArgumentError(
            f"{token!r:.60} is not one token of this vocabulary; the written form of a token is allowed, such as "
            f"{', '.join(map(repr, close)) or 'those in tokenizer.json'}. For text call encode."
        )
