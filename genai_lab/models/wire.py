"""Protobuf messages as bytes: a run of fields, each a number and a value; a value may be a message again.

Receives bytes, returns fields, and the other way round. It knows no message's meaning (see `graph_bytes`). The package
onnx reads these messages too, but its import takes longer than all that is asked of a graph here, and 10 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

Field = tuple[int, int | bytes]
"""Number and value."""

VARINT: Final = 0  # kinds of value: a number of seven bits a byte, the lowest first
BYTES: Final = 2  # a length, then a text, a message or packed numbers
_FIXED: Final = {1: 8, 5: 4}  # {kind: bytes} of numbers that nobody asks for here


def fields(data: bytes) -> Iterator[Field]:
    """Every field of a message, in order, but for those of four and eight bytes.

    Raises:
        ValueError: the message is cut or damaged.
    """
    place, end = 0, len(data)
    try:
        while place < end:
            key = data[place]
            place += 1
            if key > 0x7F:
                key, place = _number(data, place - 1)
            kind = key & 7
            if kind in _FIXED:
                place += _FIXED[kind]
                continue
            size = data[place]  # or the number itself
            place += 1
            if size > 0x7F:
                size, place = _number(data, place - 1)
            if kind == VARINT:
                yield key >> 3, size
            elif kind == BYTES:
                begin, place = place, place + size
                if place > end:
                    break
                yield key >> 3, data[begin:place]
            else:
                raise ValueError(f"a protobuf message has a field of kind {kind}, which there is not")
    except IndexError:
        place = end + 1
    if place > end:
        raise ValueError("a field of a protobuf message ends behind the message")


def inner(data: bytes, number: int) -> Iterator[bytes]:
    """The values of the fields `number` that are bytes."""
    return (value for found, value in fields(data) if found == number and isinstance(value, bytes))


def number_of(data: bytes, number: int) -> int | None:
    """The value of the field `number` that is a number; None: there is none."""
    return next((value for found, value in fields(data) if found == number and isinstance(value, int)), None)


def text_of(data: bytes, number: int) -> str:
    """The value of the field `number` as a text; "": there is none."""
    return next((value.decode() for value in inner(data, number)), "")


def numbers_of(data: bytes, number: int) -> tuple[int, ...]:
    """The values of a field of several numbers, written one by one or packed."""
    numbers: list[int] = []
    for found, value in fields(data):
        if found == number and isinstance(value, int):
            numbers.append(value)
        elif found == number and isinstance(value, bytes):
            place = 0
            while place < len(value):
                one, place = _number(value, place)
                numbers.append(one)
    return tuple(numbers)


def message(*given: tuple[int, int | str | bytes]) -> bytes:
    """The message with these fields, numbers not negative.

    >>> message((1, 300), (2, "ab")).hex(" ")
    '08 ac 02 12 02 61 62'
    """
    out: list[bytes] = []
    for number, value in given:
        if isinstance(value, int):
            out += [_encoded(number << 3 | VARINT), _encoded(value)]
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += [_encoded(number << 3 | BYTES), _encoded(len(raw)), raw]
    return b"".join(out)


def _encoded(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(data: bytes, place: int) -> tuple[int, int]:
    """A number, and the place behind it."""
    number = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise ValueError("a number in a protobuf message is cut or too long")
