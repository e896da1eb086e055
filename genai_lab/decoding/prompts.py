"""Prompts of several sequences, handed in as one padded array -> each row's own tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.decoding.token_input import token_array
from genai_lab.errors import ArgumentError, CapacityError
from genai_lab.types import Tensor


def check_leaves_room(given: NDArray[np.int32], max_length: int) -> None:
    """Raises CapacityError when prompts [rows, n] fill max_length already."""
    if given.shape[1] >= max_length:
        raise CapacityError(
            f"prompts of {given.shape[1]} tokens leave no room to answer; allowed are fewer than max_length = "
            f"{max_length}. Set a larger max_length before you begin"
        )


def padded_rows(tokens: ArrayLike | Tensor, rows: int, vocab_size: int, least: int = 0) -> NDArray[np.int32]:
    """[rows, n] int32 of a [rows, n] or flat [rows * n] array.

    Raises:
        ArgumentError: the number of tokens is no multiple of `rows`, or an id is not in the vocabulary (or below
            `least`).
    """
    array = tokens.as_numpy() if isinstance(tokens, Tensor) else np.asarray(tokens)
    if array.ndim == 2 and array.shape[0] != rows:
        raise ArgumentError(
            f"tokens has shape {list(array.shape)}; batch_size is {rows}, so [{rows}, n] is allowed: one row "
            "per prompt, padded to one length (tokenizer.encode_batch does so)"
        )
    if array.ndim > 2 or array.size % rows:
        raise ArgumentError(
            f"tokens has shape {list(array.shape)}; batch_size is {rows}, so [{rows}, n] or {rows} x n numbers in "
            "a row are allowed"
        )
    return token_array(array.reshape(-1), vocab_size, least).reshape(rows, -1)


def without_padding(rows: NDArray[np.int32], pad_token_id: int) -> list[NDArray[np.int32]]:
    """Each row's own tokens. Padding is what a row [rows, n] has more of at an end than every row has: a token that all
    prompts begin or end with is theirs, also where the model's padding token is its end token.

    >>> [row.tolist() for row in without_padding(np.array([[5, 6, 7], [8, 2, 2], [2, 2, 9]], np.int32), 2)]
    [[5, 6, 7], [8], [9]]
    >>> [row.tolist() for row in without_padding(np.array([[5, 6, 2], [8, 2, 2]], np.int32), 2)]
    [[5, 6, 2], [8, 2]]

    Raises:
        ArgumentError: a row of several is nothing but padding; names the row.
    """
    _check_not_empty(rows, pad_token_id)
    left, right = _extra_padding(rows, pad_token_id), _extra_padding(rows[:, ::-1], pad_token_id)
    length = rows.shape[1]
    return [row[min(a, length - 1) : max(length - b, a + 1)] for row, a, b in zip(rows, left, right, strict=True)]


def _extra_padding(rows: NDArray[np.int32], pad_token_id: int) -> list[int]:
    """How many more padding tokens each row begins with than the row that has fewest."""
    begins = np.logical_and.accumulate(rows == pad_token_id, axis=1).sum(axis=1)
    return [int(count) for count in begins - begins.min()]


def _check_not_empty(rows: NDArray[np.int32], pad_token_id: int) -> None:
    """A batch has no row without a prompt, as in onnxruntime-genai, which fails there inside the run. (A row alone has
    no padding: all its tokens are its own.)"""
    empty = np.flatnonzero((rows == pad_token_id).all(axis=1))
    if len(rows) > 1 and rows.shape[1] and empty.size:
        raise ArgumentError(
            f"tokens: row {empty[0]} of {len(rows)} is nothing but padding (token {pad_token_id}, the model's "
            "pad_token_id); every row needs a token of its own. Leave that prompt out and set a smaller batch_size, or "
            "give it a beginning"
        )
