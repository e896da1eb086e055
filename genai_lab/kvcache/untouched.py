"""Large arrays of zeros that cost memory only where they are written, page by page.

`numpy.zeros` asks Linux for huge pages: a row that holds 512 tokens in one stretch a head then takes five times the
memory that it needs, and its first use can wait hundreds of milliseconds for the system to find some. Receives a shape
and a type; knows nothing of tokens.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def untouched_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros of `shape`; small pages, taken at the first write.

    >>> array = untouched_zeros((2, 3), "float32")
    >>> array[1, 2] = 5
    >>> array.sum(), array.flags.c_contiguous
    (np.float32(5.0), True)
    """
    kind = np.dtype(dtype)
    memory = mmap.mmap(-1, max(1, math.prod(shape) * kind.itemsize))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind, math.prod(shape)).reshape(shape)
