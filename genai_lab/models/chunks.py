"""In which pieces a prompt is read."""

from __future__ import annotations

PREFILL_CHUNK = 256  # tokens of a prompt read in one run, unless the option chunk_size says otherwise


def chunk_stops(start: int, stop: int, size: int | None = None) -> list[int]:
    """Ends of the chunks of at most about `size` tokens from `start` to `stop`. No chunk of one token is left over: one
    alone takes another numeric path in ONNX Runtime's kernels than inside a chunk. Chunks give the same numbers as the
    whole, bit by bit, and keep the memory for intermediate results small.

    >>> chunk_stops(0, 10, 4), chunk_stops(0, 9, 4)
    ([4, 8, 10], [4, 9])
    """
    size = max(2, size or PREFILL_CHUNK)
    stops = list(range(start + size, stop, size))
    if stops and stop - stops[-1] == 1:
        stops.pop()
    return [*stops, stop]
