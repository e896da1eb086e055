"""Text as a tokenizer can take it: whole characters and no NUL.

Receives what somebody gave as text. Returns it, or says where it is wrong. It turns nothing into tokens.
"""

from __future__ import annotations

from genai_lab.errors import ArgumentError, ArgumentTypeError


def checked_text(text: object, argument: str) -> str:
    """`text` itself; `argument` is what the caller calls it.

    Raises:
        ArgumentTypeError: not a string.
        ArgumentError: a text with NUL or with half a surrogate pair; says where.
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{argument} is {type(text).__name__}; a string is allowed.")
    if "\0" in text:
        raise ArgumentError(
            f"{argument} has a NUL character at {text.index(chr(0))}; text without NUL is allowed. Remove it first."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"{argument} has half a surrogate pair at {error.start}; whole characters are allowed. Repair it first: "
            f"text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')."
        ) from error
    return text
