"""Whether a sequence gets the same bits in a packed run with others as alone: measured, not assumed (see `exactness`).

Receives a model and the facts of its graph, reads a few short sequences alone and together on a pool of its own, and
remembers the answer for as long as the model lives.
"""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

from genai_lab.kvcache.table import blocks_for
from genai_lab.kvcache.untouched import untouched_zeros
from genai_lab.models.exactness import CONTEXT, BatchFacts
from genai_lab.models.model import Model
from genai_lab.models.packed import PackedExecutor, Part
from genai_lab.models.paged import PagedGraph

PROBED_BLOCK = 16  # tokens of a block, where the graph takes any size

_known: weakref.WeakKeyDictionary[Model, dict[int, BatchFacts]] = weakref.WeakKeyDictionary()


def packed_facts(model: Model, paged: PagedGraph, rows: int) -> BatchFacts:
    """The facts for runs of up to `rows` sequences; the first call for a model reads two to eight of them."""
    known = _known.setdefault(model, {})
    if rows not in known:
        exact = rows == 1 or _is_exact(model, paged, min(rows, 4))
        known[rows] = BatchFacts(rows, is_exact=exact, is_invariant=exact)
    return known[rows]


def known_packed_facts(model: Model, rows: int) -> BatchFacts | None:
    """The facts if they were measured."""
    return _known.get(model, {}).get(rows)


def _is_exact(model: Model, paged: PagedGraph, rows: int) -> bool:
    """Prompts, then one more token each."""
    size = paged.block_size or PROBED_BLOCK
    per_row = blocks_for(CONTEXT + 1, size)
    count = paged.num_blocks or rows * per_row
    rows = min(rows, count // per_row)
    if rows < 2:
        return False
    pool = {t.name: untouched_zeros((count, size, *t.shape), t.dtype) for t in paged.tensors}
    executor, random = PackedExecutor(model, paged, pool), np.random.default_rng(0)
    tokens = random.integers(0, model.vocab_size, (rows, CONTEXT + 1)).astype(np.int32)
    lengths = CONTEXT - np.arange(rows) % 3

    def parts(first: NDArray[np.int64], last: NDArray[np.int64]) -> list[Part]:
        tables = [range(row * per_row, (row + 1) * per_row) for row in range(rows)]
        return [Part(tokens[r, first[r] : last[r]], int(first[r]), tables[r]) for r in range(rows)]

    asked = [parts(np.zeros_like(lengths), lengths), parts(lengths, lengths + 1)]
    alone = [executor.run([part])[0].tobytes() for parts in asked for part in parts]
    together = [row.tobytes() for parts in asked for row in executor.run(parts)]
    return alone == together
