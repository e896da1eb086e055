"""The tokens that a recorder keeps: so many at most, the oldest dropped first and counted.

Receives the fact of each token and the row of logits it was chosen from. A row is copied, which a decode step does not
feel; digesting it (see `digest`) waits until somebody reads. A row that nobody asked for until it drops out of the ring
is never digested. When the rows that wait pass their memory budget, a new one is digested at once: those before it
drop out, and make room, sooner. It knows no runs, no stages and no texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing.changes import among
from genai_lab.tracing.digest import Digest, Digester
from genai_lab.tracing.row_pool import RowPool
from genai_lab.tracing.tracer import TokenFact


class Entry:
    """One token: its fact, and its logits until they are digested."""

    __slots__ = ("borrowed", "digest", "fact", "row")

    def __init__(self, fact: TokenFact, digest: Digest | None, row: NDArray[np.float32] | None, borrowed: bool) -> None:
        self.fact = fact
        self.digest = digest
        self.row = row
        self.borrowed = borrowed  # from the pool of rows, which wants it back


class KeptTokens:
    """A ring of tokens.

    Args:
        most: tokens kept.
        logits_bytes: memory for rows of logits that wait to be digested.
        lock: held while a row is digested; readers hold it while they look.
    """

    def __init__(self, most: int, logits_bytes: int, lock: AbstractContextManager[object]) -> None:
        self.logits_bytes, self._lock = logits_bytes, lock
        self.count = 0  # all so far, dropped ones included
        self._entries: deque[Entry] = deque(maxlen=most)
        self._waiting: deque[Entry] = deque()  # entries that still hold their logits
        self._rows = RowPool()
        self._digester: Digester | None = None

    @property
    def most(self) -> int:
        """Tokens kept at most."""
        return self._entries.maxlen or 0

    @property
    def dropped(self) -> int:
        """The oldest, which did not fit. (A token is appended before it is counted.)"""
        return max(0, self.count - len(self._entries))

    def add(self, fact: TokenFact, digest: Digest) -> None:
        """A token whose distribution is known already."""
        self._append(Entry(fact, digest, None, False))

    def add_row(self, fact: TokenFact, logits: NDArray[np.float32], *, owned: bool) -> None:
        """A token and the raw logits [V] it was chosen from. `owned`: nobody writes over them; else the row is copied
        (6 to 40 us for 49,152 floats)."""
        row = logits
        if not owned:
            row = self._rows.take(logits.size)
            np.multiply(logits, np.float32(1.0), out=row)  # several times faster than a memcpy on some machines
        entry = Entry(fact, None, row, not owned)
        self._append(entry)
        self._waiting.append(entry)
        if len(self._waiting) * row.nbytes > self.logits_bytes:
            with self._lock:
                self._digest_next(self._waiting.pop)

    def settle(self) -> None:
        """Digest every row of logits that still waits."""
        with self._lock:
            while self._waiting:
                self._digest_next(self._waiting.popleft)

    def since(self, first: int) -> tuple[int, list[Entry]]:
        """Those from the absolute row `first` on that are digested, and the absolute row of the first of them; `settle`
        before to have all."""
        entries, dropped = list(self._entries), self.dropped
        begin = max(first, dropped)
        entries = entries[begin - dropped :]
        lost = next((place for place, entry in enumerate(entries) if entry.digest is not None), 0)
        return begin + lost, [entry for entry in entries[lost:] if entry.digest is not None]

    def of_run(self, run: int) -> list[tuple[TokenFact, Digest]]:
        """Every digested token of one run."""
        return [(e.fact, e.digest) for e in self._entries if e.fact.run == run and e.digest is not None]

    # ---- inside -------------------------------------------------------------------------------------------------

    def _append(self, entry: Entry) -> None:
        entries = self._entries
        if len(entries) == entries.maxlen and entries[0].digest is None:
            self._forget(entries[0])
        entries.append(entry)
        self.count += 1

    def _forget(self, entry: Entry) -> None:
        """It drops out of the ring before anybody asked for its digest. Only who takes an entry out of `_waiting` has
        its row: a reader in another thread may be at it."""
        try:
            oldest = self._waiting.popleft()
        except IndexError:
            return
        if oldest is entry:
            self._take_row(oldest)
        else:
            self._waiting.appendleft(oldest)

    def _take_row(self, entry: Entry) -> None:
        row, entry.row = entry.row, None
        if row is not None and entry.borrowed:
            self._rows.give_back(row)

    def _digest_next(self, take: Callable[[], Entry]) -> None:
        try:
            entry = take()
        except IndexError:
            return
        row = entry.row
        if row is not None:
            if self._digester is None or self._digester.vocab_size != row.size:
                self._digester = Digester(row.size)
            fact = entry.fact
            entry.digest = self._digester.digest(row, fact.token, fact.seen, fact.changes)
            if fact.changes:  # of a whole vocabulary only what is shown is kept
                shown = np.unique(np.append(entry.digest.top_ids, np.int32(fact.token)))
                entry.fact = replace(fact, changes=tuple(among(change, shown) for change in fact.changes))
            self._take_row(entry)
