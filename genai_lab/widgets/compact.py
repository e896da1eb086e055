"""What keeps chunks small: numbers rounded to what can be seen, and columns packed one by one.

Receives columns, returns columns and bytes. It does not know what the columns mean.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing.recording import Columns

CLOCK_STEPS = 16384  # times keep 1/16384 ms (61 ns): finer digits are noise and do not compress
COUNT_BITS = 4  # leading bits that a big count keeps


def on_clock(ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Milliseconds rounded to the clock's steps."""
    return np.rint(ms * CLOCK_STEPS) / CLOCK_STEPS


def rounded_counts(count: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Histograms [n, bins] with big counts rounded; what a bin loses or gains, the next ones give back.

    Counts below 16 stay as they are, one near 1000 becomes a multiple of 64. That halves a histogram's size; sums over
    it change by less than 1e-4 of the whole at temperature 1, by less than 5e-4 at 2, as much as its bins are wide.

    >>> rounded_counts(np.array([[3, 0, 15, 41, 999, 300, 5]], np.uint32)).tolist()
    [[3, 0, 15, 40, 1024, 288, 0]]
    """
    exact = count.astype(np.int64)
    bits = np.frexp(exact)[1]  # 1 for 1, 5 for 16 to 31
    step = np.left_shift(1, np.maximum(0, bits - COUNT_BITS))
    rounded = np.empty_like(count)
    carry = np.zeros(len(count), np.int64)
    for column in range(count.shape[1]):
        wanted = exact[:, column] + carry
        near = np.maximum(0, (wanted + step[:, column] // 2) // step[:, column] * step[:, column])
        rounded[:, column] = np.where(exact[:, column] > 0, near, 0)
        carry = wanted - rounded[:, column]
    return rounded


def pack(header: dict[str, Any], columns: Columns, level: int) -> bytes:
    """Header and columns as one compressed chunk; every column is a block of its own, with a code of its own."""
    described: list[dict[str, Any]] = []
    blocks: list[bytes] = []
    offset = 0
    for name, column in columns.items():
        little = np.ascontiguousarray(column, column.dtype.newbyteorder("<"))
        place = {"shape": list(little.shape), "offset": offset}
        described.append({"name": name, "dtype": little.dtype.str[1:]} | place)
        blocks.append(little.tobytes() + b"\0" * (-little.nbytes % 8))
        offset += len(blocks[-1])
    words = json.dumps(header | {"columns": described}, ensure_ascii=False, separators=(",", ":"))
    text = words.encode("utf-8", "replace")  # half a surrogate pair, from a damaged file, becomes a question mark
    first = struct.pack("<I", len(text)) + text + b"\0" * (-(4 + len(text)) % 8)
    packer = zlib.compressobj(level)
    packed = [packer.compress(block) + packer.flush(zlib.Z_SYNC_FLUSH) for block in (first, *blocks)]
    return b"".join([*packed, packer.flush()])
