"""The state of mt19937 for a seed of more than 32 bits: onnxruntime-genai gives its low and high half to the C++
standard's std::seed_seq, which makes the words ([rand.util.seedseq]).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WORDS = 624  # of an mt19937
SHIFT = 11  # what the standard takes for that many words
MASK = 2**32 - 1


def wide_state(seed: int) -> NDArray[np.uint32]:
    """[624] words.

    >>> wide_state(2**33 + 5)[:2]
    array([3788146619,  199758747], dtype=uint32)
    """
    return np.array(_seed_sequence((seed & MASK, seed >> 32 & MASK)), np.uint32)


def _seed_sequence(values: Sequence[int]) -> list[int]:
    words, count = [0x8B8B8B8B] * WORDS, len(values)
    p = (WORDS - SHIFT) // 2
    q = p + SHIFT
    for k in range(WORDS):
        near, far = (k + p) % WORDS, (k + q) % WORDS
        one = 1664525 * _mixed(words[k] ^ words[near] ^ words[k - 1]) & MASK
        two = one + (count if k == 0 else k + values[k - 1] if k <= count else k) & MASK
        words[near] = words[near] + one & MASK
        words[far] = words[far] + two & MASK
        words[k] = two
    for k in range(WORDS):
        near, far = (k + p) % WORDS, (k + q) % WORDS
        one = 1566083941 * _mixed(words[k] + words[near] + words[k - 1] & MASK) & MASK
        two = one - k & MASK
        words[near] ^= one
        words[far] ^= two
        words[k] = two
    return words


def _mixed(word: int) -> int:
    return word ^ word >> 27
