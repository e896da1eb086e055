"""When to close the gaps that ended requests leave between the rows of running ones, and which rows to swap for that.

A gap costs every decode run a row that it computes for nobody; closing it costs the moving of tokens. Receives numbers
of rows and what moving their content costs; moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

TOKENS_A_ROW = 256  # tokens that can be moved in the time of one row in a decode run (measured: 280 to 500, AVX2)

Cost = Callable[[int], int]
"""What moving a row's content costs, in tokens; 0 for an empty one."""


class Gaps:
    """The account of the gaps.

    Nobody knows how long the running answers will be. So rows are moved as soon as the gaps have cost as much as moving
    costs: that is at most twice what one would pay who knew.
    """

    def __init__(self) -> None:
        self._paid = 0  # rows computed for nobody since the last move
        self._needed = 0  # what moving cost when it was last looked at, in tokens

    def to_swap(self, running: Collection[int], rows: int, cost: Cost, wasted: int) -> list[tuple[int, int]]:
        """Pairs of rows to swap now; none while it does not pay.

        Args:
            running: the rows to bring together.
            rows: how many there are in all.
            cost: of moving a row.
            wasted: rows that the next decode run computes for nobody; 0: there are no gaps.
        """
        if not wasted:
            self._paid = self._needed = 0
            return []
        self._paid += wasted
        paid = self._paid * TOKENS_A_ROW
        if paid < self._needed:
            return []
        swaps = cheapest_swaps(running, rows, cost)
        self._needed = cost_of(swaps, cost)
        if paid < self._needed:
            return []
        self._paid = self._needed = 0
        return swaps


def cheapest_swaps(running: Collection[int], rows: int, cost: Cost) -> list[tuple[int, int]]:
    """(row, new row) until `running` are neighbours, for the lowest cost.

    >>> cheapest_swaps({0, 3, 4}, 6, lambda row: 10)
    [(0, 2)]
    """
    wanted = frozenset(running)
    starts = range(rows - len(wanted) + 1)
    return min((_swaps_into(range(first, first + len(wanted)), wanted) for first in starts), key=_by(cost))


def cost_of(swaps: Collection[tuple[int, int]], cost: Cost) -> int:
    """In tokens."""
    return sum(cost(row) for pair in swaps for row in pair)


def _swaps_into(place: range, running: frozenset[int]) -> list[tuple[int, int]]:
    outside = sorted(row for row in running if row not in place)
    return list(zip(outside, (row for row in place if row not in running), strict=True))


def _by(cost: Cost) -> Callable[[list[tuple[int, int]]], int]:
    return lambda swaps: cost_of(swaps, cost)
