"""What a caller may hand in as tokens -> one checked int32 array."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.types import Tensor

NEGATIVE = -(2**31)
"""The least token id of a model that sees: negative ones stand for images, as in Phi-3 vision."""


def token_array(tokens: ArrayLike | Tensor, vocab_size: int, least: int = 0) -> NDArray[np.int32]:
    """[n] int32 of a list, array or Tensor of [n] or [1, n] integers, all from `least` to the end of the vocabulary,
    n >= 1."""
    try:
        array = tokens.as_numpy() if isinstance(tokens, Tensor) else np.asarray(tokens)
    except ValueError as error:
        raise ArgumentError("tokens is a ragged list; allowed is [n] or [1, n]: one sequence at a time") from error
    if array.size == 0:
        raise ArgumentError(
            "tokens is empty (input_ids is empty); give at least one token id, such as tokenizer.encode(prompt)"
        )
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"tokens is {tokens!r:.60} (dtype {array.dtype}); integers are allowed. Text is encoded first: "
            "tokenizer.encode(prompt)"
        )
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1:
        raise ArgumentError(f"tokens has shape {list(array.shape)}; allowed is [n] or [1, n]: one sequence at a time")
    wrong = array[(array < least) | (array >= vocab_size)]
    if wrong.size:
        images = " (and negative ones, which stand for images)" if least < 0 else ""
        raise ArgumentError(
            f"token id {int(wrong[0])} is not in the vocabulary; allowed is 0 to {vocab_size - 1}{images}"
        )
    return array.astype(np.int32)
