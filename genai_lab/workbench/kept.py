"""Generators kept after their answer, so that a branch reads only what differs from what one of them has read.

Receives generators; returns one that holds a wanted prefix. At most a few of one model are kept; the one unused for
longest is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import StateError
from genai_lab.generation import Generator, GeneratorParams
from genai_lab.models import Model

LIMIT = 4  # generators; each holds the keys and values of its sequence


@dataclass(frozen=True, slots=True)
class Prepared:
    """A generator of ours, and the tokens that it must read before it stands at the end of the prefix."""

    generator: Generator
    rest: NDArray[np.int32]  # [n]


class KeptGenerators:
    """A few generators of the background's own, the most recently used ones.

    Args:
        limit: how many.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._kept: dict[Generator, bool] = {}  # -> is a branch; oldest first

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, generator: Generator, *, branch: bool) -> None:
        """Keep a generator of ours. Closes those of other models, so that these can be freed, and the one unused for
        longest when there are too many."""
        with self._lock:
            self._kept.pop(generator, None)
            self._kept[generator] = branch
            same = [g for g in self._kept if g.model is generator.model][-self.limit :]
            dropped = [g for g in self._kept if g not in same]
            for old in dropped:
                del self._kept[old]
        for old in dropped:
            old.close()

    def forget(self, model: Model) -> None:
        """Close those of one model."""
        with self._lock:
            mine = [generator for generator in self._kept if generator.model is model]
            for generator in mine:
                del self._kept[generator]
        for generator in mine:
            generator.close()

    def clear(self) -> None:
        """Close all of them."""
        with self._lock:
            kept, self._kept = list(self._kept), {}
        for generator in kept:
            generator.close()

    def prepare(
        self, model: Model, params: GeneratorParams, prefix: NDArray[np.int32], others: Iterable[Generator] = ()
    ) -> Prepared:
        """A generator of ours that holds as much of `prefix` [n] as any that is kept here or lives elsewhere.

        A kept branch with the same options is rewound, unless they say where its random numbers begin. From any other
        generator, including `others` (a person's own), the common part of the cache is copied, and that generator stays
        as it was.
        """
        with self._lock:
            candidates = [(g, branch) for g, branch in self._kept.items() if g.model is model]
        candidates += [(g, False) for g in others if g.model is model]
        by_common = sorted(candidates, key=lambda c: common_length(c[0], prefix), reverse=True)
        for generator, branch in by_common:
            common = common_length(generator, prefix)
            if common == 0:
                break
            if branch and _goes_on(generator, params):
                generator.rewind_to(common)
                return Prepared(self._take(generator), prefix[common:])
            try:
                return Prepared(generator.fork(common, params), prefix[common:])
            except StateError:  # closed by its owner meanwhile
                continue
        return Prepared(Generator(model, params), prefix)

    def _take(self, generator: Generator) -> Generator:
        with self._lock:
            self._kept.pop(generator, None)
        return generator


def _goes_on(generator: Generator, params: GeneratorParams) -> bool:
    """Whether a generator, rewound, is what a new one would be: its random numbers go on where they were."""
    same = generator.options == params.options and generator.params.hooks == params.hooks
    return same and params.options.random_seed < 0


def common_length(generator: Generator, prefix: NDArray[np.int32]) -> int:
    """How many tokens of `prefix` the generator's sequence begins with; none of a closed one's."""
    try:
        tokens = generator.get_sequence(0)[: prefix.size]
    except StateError:
        return 0
    different = np.flatnonzero(tokens != prefix[: tokens.size])
    return int(different[0]) if different.size else int(tokens.size)


KEPT = KeptGenerators()
