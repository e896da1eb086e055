"""Rules for receipts that every manager keeps: a positive size, one use, no more tokens than reserved."""

from __future__ import annotations

from genai_lab.errors import ArgumentError, StateError
from genai_lab.kvcache.facts import Receipt


def check_num_new(num_new: int, request: int) -> None:
    """A reservation is for at least one token."""
    if num_new < 1:
        raise ArgumentError(f"num_new is {num_new} for request {request}; reserve at least 1 token")


def check_committed(receipt: Receipt, length: int) -> None:
    """A commit adds at least one token and at most what was reserved."""
    if not receipt.start < length <= receipt.stop:
        raise ArgumentError(
            f"commit got {length} tokens for request {receipt.request}; its receipt is for {receipt.start + 1} to "
            f"{receipt.stop}, counted from the sequence's first token; release the receipt to commit none"
        )


def check_open(receipt: Receipt, known: Receipt | None) -> None:
    """A receipt is used once; `known` is what the manager has under its id."""
    if receipt is not known and receipt != known:
        raise StateError(
            f"receipt {receipt.id} of request {receipt.request} is not open: it was committed or released already; "
            f"reserve again"
        )
