"""Text that grows with every token: what an answer looks like while it is made.

Receives token ids one by one, returns the text that has become certain. It holds back half a character, and whatever
else a later token could still change, so that the pieces together are the text that `Tokenizer.decode` makes of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genai_lab.errors import ArgumentTypeError
from genai_lab.tokenizer.detokenizer import Detokenizer
from genai_lab.types import TokenId

if TYPE_CHECKING:
    from genai_lab.tokenizer.tokenizer import Tokenizer


class TokenizerStream:
    """Incremental decoding (og class TokenizerStream). Made by `Tokenizer.create_stream`; one stream per answer.

    The cost of a token does not grow with the text before it. Whether special tokens are shown is settled when the
    stream is made.

    Example:
        >>> from genai_lab.tokenizer import Tokenizer
        >>> tokenizer = Tokenizer("path/to/model")
        >>> stream = tokenizer.create_stream()
        >>> [stream.decode(token_id) for token_id in tokenizer.encode("né")], stream.flush()
        (['n', '', 'é'], '')
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not hasattr(tokenizer, "vocabulary"):
            raise ArgumentTypeError(
                f"TokenizerStream() is given {type(tokenizer).__name__}; a Tokenizer is allowed: "
                f"tokenizer.create_stream()."
            )
        self._vocabulary = tokenizer.vocabulary
        self._hidden: frozenset[TokenId] = tokenizer.hidden_ids
        self._detokenizer = Detokenizer(self._vocabulary.decoder)

    def decode(self, token_id: int) -> str:
        """The text that became certain with this token; often empty in the middle of a character.

        Raises:
            ArgumentTypeError: not an integer.
            ArgumentError: not an id of this model.
        """
        checked = self._vocabulary.check_id(token_id)
        written = self._vocabulary.written(checked)
        if written is None or checked in self._hidden:
            return ""
        return self._detokenizer.push(written)

    def flush(self) -> str:
        """What was held back: an unfinished character at the end, as the replacement character, or nothing. Afterwards
        the stream begins anew. (Ours; onnxruntime-genai drops such an end.)"""
        return self._detokenizer.finish()

    def piece(self, token_id: int) -> str:
        """What this token alone looks like, for display: bytes that are no character as `<0xF0>`, special tokens by
        name. Changes nothing in the stream."""
        return self._vocabulary.piece(self._vocabulary.check_id(token_id))

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a mark, such as the end of a turn, rather than text."""
        return self._vocabulary.check_id(token_id) in self._vocabulary.special_ids
