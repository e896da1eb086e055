"""What the target thinks of each position of the text: what the draft is to learn.

Receives the target's weights and the text. Returns the target's probabilities for any window. The draft learns them
rather than the text's own next token, since what counts is how often it says what the target would say.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tools.tiny.llama import Floats, Llama, Sizes, Tokens, Weights
from tools.tiny.training import Wanted

WINDOW: Final = 256
STRIDE: Final = 128
BATCH: Final = 4


def shares_of(weights: Weights, sizes: Sizes, text: Tokens) -> Wanted:
    """The target's probabilities: each position's are computed once, with at least 128 tokens before it."""
    model = Llama(sizes)
    kept = np.empty((text.size, sizes.vocab_size), np.float16)
    starts = np.unique([*range(0, text.size - WINDOW, STRIDE), text.size - WINDOW])
    for batch in np.array_split(starts, -(-starts.size // BATCH)):
        shares = _softmax(model.logits(weights, text[batch[:, None] + np.arange(WINDOW)]))
        for start, window in zip(batch, shares, strict=True):
            new = 0 if start == 0 else STRIDE
            kept[start + new : start + WINDOW] = window[new:]
    return lambda places, length: kept[places[:, None] + np.arange(length)].astype(np.float32)


def _softmax(logits: Floats) -> Floats:
    logits -= logits.max(axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True)
    return logits
