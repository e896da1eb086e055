"""The stream of random numbers of one generator: seeded draws give og's tokens.

mt19937 and the discrete distribution as the GNU C++ library defines them: two 32-bit words make one number in [0, 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.sampling.wide_seed import wide_state

_LARGEST = float(np.nextafter(1.0, 0.0))


class RandomStream:
    """Draws indices with given weights.

    Args:
        seed: og option random_seed, or a turn's seed of up to 64 bits; None draws a fresh one from the operating
            system.

    >>> RandomStream(7).draw(np.array([0.0, 1.0, 0.0]))
    1
    """

    def __init__(self, seed: int | None) -> None:
        state = np.random.RandomState() if seed is None else np.random.RandomState(seed % 2**32)
        if seed is not None and seed >= 2**32:
            state.set_state(("MT19937", wide_state(seed), 624, 0, 0.0))
        # RandomState seeds mt19937 as std::mt19937 does; its own number recipe is not the library's, so raw words are
        # used
        self._words = state._bit_generator
        self.last: float | None = None  # the number that the last draw took; None: it took none

    def draw(self, weights: NDArray[np.floating[Any]]) -> int:
        """Index drawn with probability proportional to `weights` [n], n >= 1. One weight alone costs no random
        number."""
        if weights.size < 2:
            self.last = None
            return 0
        number = self.uniform()
        wide = weights.astype(np.float64)
        cumulative = np.cumsum(wide / wide.sum())
        cumulative[-1] = 1.0
        return int(np.searchsorted(cumulative, number, side="left"))

    def uniform(self) -> float:
        """The next number in [0, 1)."""
        low, high = self._words.random_raw(2)
        number = (float(low) + float(high) * 2.0**32) / 2.0**64
        self.last = min(number, _LARGEST)
        return self.last

    @property
    def numpy(self) -> np.random.Generator:
        """A numpy generator that draws from this very stream, for a person's own sampler."""
        return np.random.Generator(self._words)

    @property
    def state(self) -> Any:
        """A copy of the stream's state; `restore` puts it back."""
        return self._words.state

    def restore(self, state: Any) -> None:
        self._words.state = state
