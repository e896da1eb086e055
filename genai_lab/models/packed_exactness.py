"""Whether a sequence gets the same bits in a packed run with others as alone: measured, not assumed (see `exactness`).

Receives a model and the facts of its graph, reads a few short sequences alone and together on a pool of its own, and
remembers the answer for as long as the model lives.
"""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

from genai_lab.kvcache.table import blocks_for
from genai_lab.models.exactness import CONTEXT, BatchFacts
from genai_lab.models.model import Model
from genai_lab.models.packed import PackedExecutor, Part, make_pool
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
    """Prompts, then one more token each: one after another, and all at once. Not tried where the graph was made for the
    rings of a certain number of sequences."""
    if paged.num_ring_blocks is not None:
        return False
    size = paged.block_size or PROBED_BLOCK
    per_row = blocks_for(CONTEXT + 1, size)
    rows = min(rows, (paged.num_blocks or rows * per_row) // per_row)
    if rows < 2:
        return False
    tokens = np.random.default_rng(0).integers(0, model.vocab_size, (rows, CONTEXT + 1)).astype(np.int32)
    return _read(model, paged, tokens, 1) == _read(model, paged, tokens, rows)


def _read(model: Model, paged: PagedGraph, tokens: NDArray[np.int32], at_once: int) -> list[bytes]:
    """The bits of all logits, with `at_once` sequences in a run."""
    rows, size = len(tokens), paged.block_size or PROBED_BLOCK
    per_row = blocks_for(CONTEXT + 1, size)
    pool = make_pool(paged, rows, paged.num_blocks or rows * per_row, size, CONTEXT)
    executor = PackedExecutor(model, paged, pool)
    for row in range(rows):
        pool.place(row, range(row * per_row, (row + 1) * per_row))
    lengths, found = CONTEXT - np.arange(rows) % 3, []
    for first, last in ((np.zeros_like(lengths), lengths), (lengths, lengths + 1)):
        parts = [Part(tokens[row, first[row] : last[row]], int(first[row]), row) for row in range(rows)]
        for start in range(0, rows, at_once):
            found += [logits.tobytes() for logits in executor.run(parts[start : start + at_once])]
        if pool.states is not None:
            for row in range(rows):
                pool.states.commit(row)
    return found
