"""Numbers and token texts as a person reads them; the same words as in the browser's pictures."""

from __future__ import annotations

import unicodedata


def percent(part: float) -> str:
    """A share: two digits that count.

    >>> [percent(p) for p in (0.3512, 0.0712, 0.00284, 0.0004, 1.0, 0.9996)]
    ['35 %', '7.1 %', '0.28 %', '< 0.1 %', '100 %', '> 99.9 %']
    """
    if part != part:
        return "unknown"
    if 0.9995 <= part < 1:
        return "> 99.9 %"
    if part < 0.001:
        return "0 %" if part == 0 else "< 0.1 %"
    value = 100 * part
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %" if value >= 1 else f"{value:.2f} %"


def milliseconds(ms: float) -> str:
    """A time: three digits that count.

    >>> [milliseconds(t) for t in (12345, 186.2, 19.23, 0.712, 0.079)]
    ['12.3 s', '186 ms', '19.2 ms', '0.71 ms', '79 µs']
    """
    if ms >= 10_000:
        return f"{ms / 1000:.1f} s"
    if ms >= 100:
        return f"{ms:.0f} ms"
    if ms >= 1:
        return f"{ms:.1f} ms"
    return f"{ms:.2f} ms" if ms >= 0.1 else f"{ms * 1000:.0f} µs"


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "token"), plural(1200, "token")
    ('1 token', '1,200 tokens')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Text whose control characters show, and whose direction marks cannot turn the page around.

    >>> printable("a\\n\\x00\\u202eb")
    'a↵\\n<00><202E>b'
    """
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character == "\n":
        return "↵\n"
    joins = character in "\u200c\u200d"  # inside emoji and several scripts
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co") and not joins:
        return f"<{ord(character):02X}>"
    return character
