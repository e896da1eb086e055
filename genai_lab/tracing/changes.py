"""What processors did to a row of logits, cut down to the candidates that a recording shows.

Receives changes of a whole row; returns changes of few ids, and which ids deserve to be shown because of them: a
grammar may leave none of the most likely tokens, and a person's processor may lift any.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from genai_lab.arrays import TokenMask, largest
from genai_lab.tracing.tracer import Change, Masking

PROMOTED = 24  # candidates shown at most because of what processors did
FORBIDDEN = np.finfo(np.float32).min


def among(change: Change | Masking, shown: NDArray[np.int32]) -> Change:
    """What a processor did to the ids `shown` [k]."""
    if isinstance(change, Masking):
        ids = shown[~change.mask.allows(shown)]
        return Change(change.by, ids, np.full(ids.size, FORBIDDEN))
    keep = np.isin(change.ids, shown)
    return Change(change.by, change.ids[keep], change.logits[keep])


def mask_of(changes: Sequence[Change | Masking]) -> TokenMask | None:
    """The mask of a grammar, if one was put over the row."""
    return next((change.mask for change in changes if isinstance(change, Masking)), None)


def promoted(
    changes: Sequence[Change | Masking], logits: NDArray[np.float32], floor: float, chosen: int
) -> NDArray[np.int32]:
    """Ids to be shown although others are more likely in the raw row [V]: the best that a grammar allows, those that a
    processor lifted above `floor`, and then the chosen one. At most PROMOTED; may hold ids that are shown anyway."""
    found: list[NDArray[np.int32]] = []
    for change in changes:
        if isinstance(change, Masking):
            allowed = np.flatnonzero(change.mask.allowed())
            found.append(allowed[largest(logits[allowed], PROMOTED - 1)].astype(np.int32))
        elif change.ids.size and float(change.logits.max()) > floor:
            best = largest(change.logits, PROMOTED - 1)
            found.append(change.ids[best][change.logits[best] > floor])
    if not found:
        return np.empty(0, np.int32)
    others = np.unique(np.concatenate(found))
    others = others[largest(logits[others], others.size)]
    return np.append(others[others != chosen][: PROMOTED - 1], np.int32(chosen))
