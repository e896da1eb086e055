"""Calls into the `tokenizers` library, whose failures and panics become errors of ours.

Receives a call, returns its result. A tokenizer.json is foreign data: some make the library panic, which Python sees as
a `BaseException` that no `except Exception` catches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from genai_lab.errors import ModelFolderError

T = TypeVar("T")


def guarded(call: Callable[[], T], what: str) -> T:
    """The result of a call into the library.

    Raises:
        ModelFolderError: it failed or panicked; `what` says what was wanted.
    """
    try:
        return call()
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"  # cannot be imported
        if not isinstance(error, Exception) and not is_panic:
            raise
        raise ModelFolderError(f"{what}: {error}. Take tokenizer.json anew from the model's repository.") from error


def decoded(decoder: Any, pieces: Sequence[str]) -> str:
    """What a decoder of the library makes of written tokens."""
    return str(guarded(lambda: decoder.decode(list(pieces)), "the tokenizer's decoder fails"))
