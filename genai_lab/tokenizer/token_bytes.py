"""What each token of a vocabulary adds to a text, as bytes: what a grammar is matched against.

Receives a `Vocabulary`; returns bytes per id. It knows no grammar.
"""

from __future__ import annotations

from genai_lab.tokenizer.detokenizer import byte_of_token, bytes_of_letters, decoder_settings
from genai_lab.tokenizer.vocabulary import Vocabulary


def token_bytes(vocabulary: Vocabulary, size: int) -> list[bytes]:
    """Bytes of the ids 0 to `size` - 1; empty for an id without a token, the written form for a special token."""
    kinds = {settings["type"] for settings in decoder_settings(vocabulary.decoder)}
    return [_bytes(vocabulary, token, "ByteLevel" in kinds, "ByteFallback" in kinds) for token in range(size)]


def _bytes(vocabulary: Vocabulary, token: int, is_byte_level: bool, has_byte_tokens: bool) -> bytes:
    written = vocabulary.written(token)
    if written is None:
        return b""
    if token in vocabulary.added_ids:
        return written.encode()
    if is_byte_level:
        return bytes_of_letters(written)
    byte = byte_of_token(written) if has_byte_tokens else None
    return bytes([byte]) if byte is not None else vocabulary.piece(token).encode()
