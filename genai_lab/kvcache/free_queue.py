"""The blocks that nobody uses, in the order in which they will be taken.

Every place in the order is a number, so a block that was taken can be put back exactly where it stood. It does not know
what the blocks hold.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class FreeQueue:
    """Front: taken next. Empty blocks go to the front, blocks worth keeping to the back.

    >>> queue = FreeQueue(3)
    >>> place = queue.remove(1)
    >>> list(queue), queue.put_back(1, place), list(queue)
    ([0, 2], None, [0, 1, 2])
    """

    def __init__(self, num_blocks: int) -> None:
        self._order = [(place, -place) for place in range(1 - num_blocks, 1)]  # (place, block), front last
        self._places: dict[int, int] = {block: place for place, block in self._order}
        self._front, self._back = 1, -num_blocks

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, block: int) -> bool:
        return block in self._places

    def __iter__(self) -> Iterator[int]:
        """Front first."""
        return (block for _, block in reversed(self._order))

    def at(self, index: int) -> int:
        """The block at `index` from the front."""
        return self._order[len(self._order) - 1 - index][1]

    def remove(self, block: int) -> int:
        """Take `block` out, wherever it stands; its place."""
        place = self._places.pop(block)
        del self._order[bisect_left(self._order, (place, block))]
        return place

    def push_front(self, block: int) -> None:
        """`block` is the next one to be taken."""
        self.put_back(block, self._front)
        self._front += 1

    def push_back(self, block: int) -> None:
        """`block` is the last one to be taken."""
        self.put_back(block, self._back)
        self._back -= 1

    def put_back(self, block: int, place: int) -> None:
        """`block` stands at `place` again."""
        self._places[block] = place
        insort(self._order, (place, block))
