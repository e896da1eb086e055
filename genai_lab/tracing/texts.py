"""Tokens as text: what an answer says, and what to call a token that is only part of a character.

Receives texts and bytes of tokens, columns and runs. Returns strings for people. A character such as an emoji has up to
four bytes and may be spread over as many tokens; none of them alone is text. It knows no tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing.recording import Columns, Recording, RunFacts

_LONGEST = 4  # bytes of a character


class Span(NamedTuple):
    """One character of some bytes, or what is none."""

    start: int
    stop: int
    character: str | None  # None: no character
    unfinished: bool  # could still become one


@dataclass(frozen=True, slots=True)
class Names:
    """What tokens are called: their texts, and the bytes of those that are not whole characters."""

    texts: Mapping[int, tuple[str, bool]]  # id -> text, is special
    raw: Mapping[int, bytes]

    def alone(self, token: int, pending: bytes = b"") -> str:
        """A token that might come after `pending`, the bytes of a character that has begun (empty: none has)."""
        data = self.raw.get(token)
        if data is None:
            return self.texts.get(token, (f"[{token}]", False))[0]
        words = []
        whole = pending + data
        for start, stop, character, unfinished in spans(whole):
            if stop <= len(pending):
                continue
            mine = whole[max(start, len(pending)) : stop].hex(" ").upper()
            if character is not None:
                words.append(character if start >= len(pending) else f"⟨last part of {character}⟩")
            elif unfinished:
                verb = "begins" if start >= len(pending) else "goes on with"
                words.append(f"⟨{verb} a character: {mine}⟩")
            else:
                words.append(f"⟨part of a character: {mine}⟩")
        return "".join(words)

    def in_a_row(self, tokens: Sequence[int]) -> list[str]:
        """Tokens that follow each other; part of a character says which part of which: "⟨part 2 of 4 of 😀⟩"."""
        names = [self.alone(token) for token in tokens]
        for first, last in self._stretches(tokens):
            names[first:last] = _parts([self.raw[token] for token in tokens[first:last]])
        return names

    def joined(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens in a row, characters put together; special tokens only if wanted."""
        shown = [t for t in tokens if special or not self.texts.get(t, ("", False))[1]]
        out: list[str] = []
        at = 0
        for first, last in self._stretches(shown):
            out += [self.texts.get(t, ("", False))[0] for t in shown[at:first]]
            out.append(b"".join(self.raw[t] for t in shown[first:last]).decode("utf-8", "replace"))
            at = last
        return "".join(out + [self.texts.get(t, ("", False))[0] for t in shown[at:]])

    def pending(self, tokens: Sequence[int]) -> bytes:
        """The bytes of a character that has begun at the end of `tokens`."""
        data = b""
        for token in reversed(tokens[-_LONGEST:]):
            if token not in self.raw:
                break
            data = self.raw[token] + data
        last = list(spans(data))[-1:]
        return data[last[0].start :] if last and last[0].unfinished else b""

    def _stretches(self, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
        """[first, last) of neighbours that are all not whole characters."""
        first = None
        for i, token in enumerate([*tokens, None]):
            if token in self.raw:
                first = i if first is None else first
            elif first is not None:
                yield first, i
                first = None


def spans(data: bytes) -> Iterator[Span]:
    """The characters of UTF-8 bytes, and the bytes between that are none.

    >>> [data[2:] for data in spans("é".encode() + b"\\xf0\\x9f")]
    [('é', False), (None, True)]
    """
    at = 0
    while at < len(data):
        try:
            text = data[at:].decode("utf-8")
            bad, stop = len(data), len(data)
        except UnicodeDecodeError as error:
            bad, stop = at + error.start, at + error.end
            text = data[at:bad].decode("utf-8")
        for character in text:
            size = len(character.encode("utf-8"))
            yield Span(at, at + size, character, False)
            at += size
        if bad < stop:
            yield Span(bad, stop, None, stop == len(data) and _could_grow(data[bad:stop]))
            at = stop


def _could_grow(data: bytes) -> bool:
    """Whether these bytes are the beginning of a character."""
    needed = 2 if 0xC2 <= data[0] <= 0xDF else 3 if 0xE0 <= data[0] <= 0xEF else 4 if 0xF0 <= data[0] <= 0xF4 else 0
    return len(data) < needed


def _parts(data: Sequence[bytes]) -> list[str]:
    """Names of tokens whose bytes follow each other."""
    ends = np.cumsum([len(piece) for piece in data])
    starts = ends - [len(piece) for piece in data]
    words: list[list[str]] = [[] for _ in data]
    for start, stop, character, unfinished in spans(b"".join(data)):
        holders = [i for i in range(len(data)) if starts[i] < stop and ends[i] > start]
        for part, i in enumerate(holders, 1):
            if character is not None and len(holders) == 1:
                words[i].append(character)
            elif character is not None:
                words[i].append(f"⟨part {part} of {len(holders)} of {character}⟩")
            elif unfinished:
                words[i].append(f"⟨part {part} of a character that was not finished⟩")
            else:
                words[i].append("⟨part of no character⟩")
    return ["".join(each) for each in words]


# ---- of a recording


def names_of(recording: Recording) -> Names:
    """What the tokens of a recording are called."""
    return Names(recording.texts, recording.raw)


def answer_rows(tokens: Columns, runs: Sequence[RunFacts], run: int) -> NDArray[np.intp]:
    """Rows of the tokens table that make up the whole answer of a run: a branch begins with its parents' tokens."""
    index, before = tokens["index"], np.iinfo(np.int64).max
    rows: list[NDArray[np.intp]] = []
    while True:
        mine = np.flatnonzero((tokens["run"] == run) & (index < before))
        rows.insert(0, mine[np.argsort(index[mine], kind="stable")])
        parent, fork = runs[run].parent, runs[run].fork
        if not (isinstance(parent, int) and isinstance(fork, int) and 0 <= parent < run):  # a file may say anything
            return np.concatenate(rows)
        run, before = parent, fork


def token_names(recording: Recording) -> list[str]:
    """What to call the token of each row of the tokens table."""
    tokens, names = recording.tokens, names_of(recording)
    if not recording.raw:
        return [names.alone(int(token)) for token in tokens["token"]]
    found: dict[int, str] = {}
    for run in range(len(recording.runs)):
        rows = answer_rows(tokens, recording.runs, run)
        for row, name in zip(rows.tolist(), names.in_a_row(tokens["token"][rows].tolist()), strict=True):
            if tokens["run"][row] == run:
                found[row] = name
    return [found[row] for row in range(len(tokens["token"]))]


def pending_before(recording: Recording, row: int) -> bytes:
    """The bytes of a character that had begun before the token of a row."""
    rows = answer_rows(recording.tokens, recording.runs, int(recording.tokens["run"][row])).tolist()
    before = rows[: rows.index(row)]
    return names_of(recording).pending(recording.tokens["token"][before].tolist())


def answer_text(recording: Recording, run: int) -> str:
    """The whole answer of a run as its tokenizer writes it, special tokens left out."""
    text = recording.runs[run].text
    if isinstance(text, str):
        return text
    rows = answer_rows(recording.tokens, recording.runs, run)
    return names_of(recording).joined(recording.tokens["token"][rows].tolist())
