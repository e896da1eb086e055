"""Proposals without a second model: what followed the last tokens when they occurred before.

Source: Saxena 2023 (prompt lookup decoding); og options ngram_size and ngram_chained_lookup.
"""

from __future__ import annotations

from collections.abc import Sequence


class NgramLookup:
    """Where each run of `size - 1` tokens occurred last.

    >>> lookup = NgramLookup(3)
    >>> lookup.sync([1, 2, 9, 4, 1, 2])
    6
    >>> lookup.propose(2, chained=False)
    [9, 4]
    """

    def __init__(self, size: int) -> None:
        self._key_length = size - 1
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # {run of tokens: index of the token behind its last occurrence}
        self.found: int | None = None  # index of the first token proposed last

    def sync(self, tokens: Sequence[int]) -> int:
        """Know exactly these tokens; returns how many were new to it."""
        known = len(self._tokens)
        if self._tokens != list(tokens[:known]):
            self.clear()
            known = 0
        for token in tokens[known:]:
            self._add(int(token))
        return len(tokens) - known

    def propose(self, count: int, *, chained: bool) -> list[int]:
        """At most `count` tokens that followed the last `size - 1` ones at their most recent earlier occurrence.

        Args:
            chained: look up again with every proposed token, so that a proposal goes on where the text ends.
        """
        start = self.found = self._after.get(self._key(self._tokens))
        if start is None:
            return []
        return self._chain(count) if chained else self._tokens[start : start + count]

    def _add(self, token: int) -> None:
        """The run before `token` now occurred before `token`; the run that `token` completes has no successor yet."""
        key = self._key(self._tokens)
        if len(key) == self._key_length:
            self._after[key] = len(self._tokens)
        self._tokens.append(token)

    def _chain(self, count: int) -> list[int]:
        context = list(self._tokens[-self._key_length :])
        proposed: list[int] = []
        while len(proposed) < count:
            start = self._after.get(self._key(context))
            if start is None:
                break
            proposed.append(self._tokens[start])
            context.append(self._tokens[start])
        return proposed

    def _key(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(tokens[-self._key_length :])
