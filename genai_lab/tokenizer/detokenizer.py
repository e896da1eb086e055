"""Text out of tokens, one token at a time: the same text, in the end, as the `tokenizers` library makes of all of
them.

Receives a decoder of the `tokenizers` library (its settings, as JSON), returns a chain of stages. A stage gives out
only what no later token can change, so the pieces of text never have to be taken back. It knows no vocabulary and no
model.

The settings of a decoder form a sequence, such as Llama's `Replace, ByteFallback, Fuse, Strip`. Before the first stage
that joins everything (`Fuse`, `ByteLevel`) the stages see token after token; behind it they see one growing text.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from tokenizers import Regex, decoders

from genai_lab.tokenizer.guard import decoded

REPLACEMENT: Final = "\ufffd"
"""What stands for bytes that are no UTF-8."""


class Stage(Protocol):
    """One step from tokens to text. `push` takes the next piece, `finish` says that there is no more."""

    def push(self, piece: str) -> Sequence[str]: ...

    def finish(self) -> Sequence[str]: ...


# ---- stages that see token after token


class EachAlone:
    """A decoder that treats every token by itself (Replace, Strip)."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._known: dict[str, str] = {}

    def push(self, piece: str) -> Sequence[str]:
        if piece not in self._known:
            self._known[piece] = decoded(self._decoder, [piece])
        return (self._known[piece],)

    def finish(self) -> Sequence[str]:
        return ()


class EachByPosition:
    """A decoder that treats every token by itself, but the first one differently (WordPiece, Metaspace)."""

    _FIRST: Final = "a"  # takes the first place while the others are asked about

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._skip = len(decoded(decoder, [self._FIRST]))
        self._is_first = True
        self._known: dict[str, str] = {}

    def push(self, piece: str) -> Sequence[str]:
        if self._is_first:
            self._is_first = False
            return (decoded(self._decoder, [piece]),)
        if piece not in self._known:
            self._known[piece] = decoded(self._decoder, [self._FIRST, piece])[self._skip :]
        return (self._known[piece],)

    def finish(self) -> Sequence[str]:
        self._is_first = True
        return ()


class JoinBySpace:
    """No decoder at all: the library then puts spaces between the tokens."""

    def __init__(self) -> None:
        self._is_first = True

    def push(self, piece: str) -> Sequence[str]:
        text = piece if self._is_first else " " + piece
        self._is_first = False
        return (text,)

    def finish(self) -> Sequence[str]:
        self._is_first = True
        return ()


class WithoutRepeats:
    """CTC: the same token several times in a row counts once; then each by itself, empty ones dropped."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._last: str | None = None

    def push(self, piece: str) -> Sequence[str]:
        if piece == self._last:
            return ()
        self._last = piece
        text = decoded(self._decoder, [piece])
        return (text,) if text else ()

    def finish(self) -> Sequence[str]:
        self._last = None
        return ()


class WordEnds:
    """BPE with a mark at the end of words: the mark is a space, except in the last token, where it is nothing."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._held: str | None = None

    def push(self, piece: str) -> Sequence[str]:
        ready = () if self._held is None else (self._held.replace(self._suffix, " "),)
        self._held = piece
        return ready

    def finish(self) -> Sequence[str]:
        last = () if self._held is None else (self._held.replace(self._suffix, ""),)
        self._held = None
        return last


_BYTE_TOKEN: Final = re.compile(r"<0x(\+[0-9A-Fa-f]|[0-9A-Fa-f]{2})>")


def byte_of_token(token: str) -> int | None:
    """The byte that a token such as `<0xE4>` stands for, or None for any other token."""
    match = _BYTE_TOKEN.fullmatch(token)
    return int(match[1], 16) if match else None


class ByteRuns:
    """Byte tokens: a run of them is text if all of it is UTF-8, else one replacement character per byte. So a run is
    kept until it ends."""

    def __init__(self) -> None:
        self._run = bytearray()

    def push(self, piece: str) -> Sequence[str]:
        value = byte_of_token(piece)
        if value is None:
            return (*self.finish(), piece)
        self._run.append(value)
        return ()

    def finish(self) -> Sequence[str]:
        if not self._run:
            return ()
        try:
            text = self._run.decode("utf-8")
        except UnicodeDecodeError:
            text = REPLACEMENT * len(self._run)
        self._run.clear()
        return (text,)


def _byte_level_alphabet() -> dict[str, int]:
    """ByteLevel's letter for each byte: printable Latin-1 stands for itself, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_OF_LETTER: Final = _byte_level_alphabet()


def bytes_of_letters(token: str) -> bytes:
    """The bytes a ByteLevel token stands for; a token with any other letter (an added token) is its own UTF-8."""
    try:
        return bytes([_BYTE_OF_LETTER[letter] for letter in token])
    except KeyError:
        return token.encode("utf-8")


class ByteLevelText:
    """ByteLevel: tokens are bytes, together one UTF-8 text. An unfinished character waits for its other bytes."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes: dict[str, bytes] = {}

    def push(self, piece: str) -> Sequence[str]:
        data = self._bytes.get(piece)
        if data is None:
            data = self._bytes[piece] = bytes_of_letters(piece)
        return (self._utf8.decode(data),)

    def finish(self) -> Sequence[str]:
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return (text,)


class OneText:
    """Fuse: from here on the pieces are parts of one text."""

    def push(self, piece: str) -> Sequence[str]:
        return (piece,)

    def finish(self) -> Sequence[str]:
        return ()


# ---- stages that see one growing text


class StripText:
    """Takes up to `start` characters `content` off the front and up to `stop` off the end."""

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content, self._start, self._stop = content, start, stop
        self._to_strip = start
        self._tail = ""

    def push(self, piece: str) -> Sequence[str]:
        text = self._strip_front(piece)
        if not self._stop:
            return (text,)
        text = self._tail + text
        kept = len(text) - min(len(text) - len(text.rstrip(self._content)), self._stop)
        self._tail = text[kept:]
        return (text[:kept],)

    def _strip_front(self, text: str) -> str:
        if not self._to_strip:
            return text
        length = min(len(text) - len(text.lstrip(self._content)), self._to_strip)
        self._to_strip = self._to_strip - length if length == len(text) else 0
        return text[length:]

    def finish(self) -> Sequence[str]:
        self._to_strip, self._tail = self._start, ""
        return ()


class ReplaceText:
    """Replaces a fixed string; an end of the text that could still become one waits."""

    def __init__(self, pattern: str, content: str) -> None:
        self._pattern, self._content = pattern, content
        self._tail = ""

    def push(self, piece: str) -> Sequence[str]:
        parts = (self._tail + piece).split(self._pattern)
        end = parts[-1]
        kept = len(end) - self._could_begin(end)
        self._tail = end[kept:]
        return (self._content.join([*parts[:-1], end[:kept]]),)

    def _could_begin(self, text: str) -> int:
        longest = min(len(text), len(self._pattern) - 1)
        return next((n for n in range(longest, 0, -1) if text.endswith(self._pattern[:n])), 0)

    def finish(self) -> Sequence[str]:
        tail, self._tail = self._tail, ""
        return (tail,)


class AllAtTheEnd:
    """A combination without a stage of its own: nothing is said before the end, and then what the library says."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._pieces: list[str] = []

    def push(self, piece: str) -> Sequence[str]:
        self._pieces.append(piece)
        return ()

    def finish(self) -> Sequence[str]:
        pieces, self._pieces = self._pieces, []
        return (decoded(self._decoder, pieces),) if pieces else ()


# ---- the chain


class Detokenizer:
    """A chain of stages. `push` a token, get the text that is certain; `finish`, get the rest and start anew.

    Example:
        >>> detokenizer = Detokenizer(decoders.ByteLevel())
        >>> detokenizer.push("Ã"), detokenizer.push("©"), detokenizer.finish()
        ('', 'é', '')
    """

    def __init__(self, decoder: Any) -> None:
        self._stages = stages_of(decoder)

    def push(self, token: str) -> str:
        pieces: Sequence[str] = (token,)
        for stage in self._stages:
            pieces = stage.push(pieces[0]) if len(pieces) == 1 else _each(stage, pieces)
        return pieces[0] if len(pieces) == 1 else "".join(pieces)

    def finish(self) -> str:
        pieces: Sequence[str] = ()
        for stage in self._stages:
            pieces = [*_each(stage, pieces), *stage.finish()]
        return "".join(pieces)


def _each(stage: Stage, pieces: Iterable[str]) -> Sequence[str]:
    return [out for piece in pieces for out in stage.push(piece)]


def decoder_settings(decoder: Any) -> list[dict[str, Any]]:
    """The settings of a decoder, a sequence (also nested) as a flat list."""
    return _flat(json.loads(decoder.__getstate__())) if decoder is not None else []


def _flat(settings: dict[str, Any]) -> list[dict[str, Any]]:
    if settings["type"] != "Sequence":
        return [settings]
    return [inner for item in settings["decoders"] for inner in _flat(item)]


def stages_of(decoder: Any) -> list[Stage]:
    """The stages that do, token by token, what the decoder does to a whole list."""
    if decoder is None:
        return [JoinBySpace()]
    stages: list[Stage] = []
    is_one_text = False
    for settings in decoder_settings(decoder):
        stage = _text_stage(settings) if is_one_text else _token_stage(settings)
        if stage is None:
            return [AllAtTheEnd(decoder)]
        stages.append(stage)
        is_one_text = is_one_text or settings["type"] in ("Fuse", "ByteLevel")
    return stages


def _token_stage(settings: dict[str, Any]) -> Stage | None:
    match settings:
        case {"type": "ByteLevel"}:
            return ByteLevelText()
        case {"type": "Fuse"}:
            return OneText()
        case {"type": "ByteFallback"}:
            return ByteRuns()
        case {"type": "WordPiece", "prefix": prefix, "cleanup": cleanup}:
            return EachByPosition(decoders.WordPiece(prefix=prefix, cleanup=cleanup))
        case {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme}:
            return EachByPosition(decoders.Metaspace(replacement=replacement, prepend_scheme=scheme))
        case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
            return EachAlone(decoders.Replace(pattern, content))
        case {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}:
            return EachAlone(decoders.Replace(Regex(pattern), content))
        case {"type": "Strip", "content": content, "start": start, "stop": stop}:
            return EachAlone(decoders.Strip(content, start, stop))
        case {"type": "BPEDecoder", "suffix": suffix} if suffix:
            return WordEnds(suffix)
        case {"type": "CTC", "pad_token": pad, "word_delimiter_token": delimiter, "cleanup": cleanup}:
            return WithoutRepeats(decoders.CTC(pad_token=pad, word_delimiter_token=delimiter, cleanup=cleanup))
    return None


def _text_stage(settings: dict[str, Any]) -> Stage | None:
    match settings:
        case {"type": "Fuse"}:
            return OneText()
        case {"type": "Strip", "content": content, "start": start, "stop": stop}:
            return StripText(content, start, stop)
        case {"type": "Replace", "pattern": {"String": pattern}, "content": content} if pattern:
            return ReplaceText(pattern, content)
    return None
