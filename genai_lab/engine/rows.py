"""Which row of the slab each running request has, and which rows one decode run covers."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable

GAP_LIMIT = 2  # idle rows that a decode run may carry along rather than be split in two: another run costs as much


class RowTable:
    """Hands out rows, lowest first, so that the running ones stay neighbours."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._free = list(range(rows))

    @property
    def free(self) -> int:
        """Rows not taken."""
        return len(self._free)

    def take(self) -> int:
        """The lowest free row."""
        return heapq.heappop(self._free)

    def give_back(self, row: int) -> None:
        """`row` is free again."""
        heapq.heappush(self._free, row)

    def swap(self, first: int, second: int) -> None:
        """Whoever had the one row, or nobody, has the other."""
        other = {first: second, second: first}
        self._free = [other.get(row, row) for row in self._free]
        heapq.heapify(self._free)


def decode_ranges(rows: Iterable[int]) -> list[tuple[int, int]]:
    """[first, last] ranges that cover `rows`; a gap of up to GAP_LIMIT idle rows is carried along.

    >>> decode_ranges([0, 1, 3, 9])
    [(0, 3), (9, 9)]
    """
    ranges: list[tuple[int, int]] = []
    for row in sorted(rows):
        if ranges and row - ranges[-1][1] <= GAP_LIMIT + 1:
            ranges[-1] = (ranges[-1][0], row)
        else:
            ranges.append((row, row))
    return ranges


def wasted_rows(rows: Iterable[int]) -> int:
    """How many rows a decode of `rows` computes for nobody; a further run counts as GAP_LIMIT rows.

    >>> wasted_rows([0, 1, 3]), wasted_rows([0, 9]), wasted_rows([4])
    (1, 2, 0)
    """
    wanted = list(rows)
    ranges = decode_ranges(wanted)
    carried = sum(last - first + 1 for first, last in ranges) - len(wanted)
    return carried + GAP_LIMIT * max(0, len(ranges) - 1)


def with_company(first: int, last: int, rows: int, held: Container[int]) -> tuple[int, int]:
    """The range, made two rows wide if it is one: with a neighbour that is free, rather than one that holds tokens.

    >>> with_company(0, 0, 4, {0}), with_company(1, 1, 4, {1, 2}), with_company(2, 3, 4, {2, 3})
    ((0, 1), (0, 1), (2, 3))
    """
    if first != last:
        return first, last
    sides = [(row in held, row) for row in (first + 1, first - 1) if 0 <= row < rows]
    neighbour = min(sides, key=lambda side: side[0])[1]
    return min(first, neighbour), max(first, neighbour)
