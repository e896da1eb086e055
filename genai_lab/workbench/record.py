"""`with genai_lab.record() as trace:` around anything that generates."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from genai_lab.errors import ArgumentError
from genai_lab.kvcache import memory_limit_bytes
from genai_lab.once import once
from genai_lab.tracing import Recorder, use_tracer
from genai_lab.workbench.block import Block, current_block, inside
from genai_lab.workbench.trace import Trace

MOST = 2**31 - 1
_TO_THE_CALLER = 4  # frames from `record`'s body: contextlib's, `Once`'s, the with statement


@once
def record(max_tokens: int = 8192, max_stages: int = 131_072, logits_mb: float | None = None) -> Iterator[Trace]:
    """Record every stage of what runs inside the block.

    Args:
        max_tokens: tokens kept; beyond, the oldest are dropped and counted in `trace.dropped`.
        max_stages: stage events kept, likewise.
        logits_mb: memory (MiB) for rows of logits that are not digested yet. Digesting waits until the trace is read,
            or this is full, so that it does not slow the run. None: a sixteenth of the machine's memory, 64 to 2048.

    Yields:
        A `Trace`; it can be read inside the block and after it.

    Recording follows the calling context and does not cross threads by itself. What `ask` writes in the background is
    recorded here, too, when it is done; leaving the block waits for it.

    A run is recorded once: in a block inside another block, the inner trace gets it and the outer one nothing, and a
    UserWarning says so. Each `record()` is for one `with`.

    Raises:
        ArgumentError: a limit that is not allowed.
        StateError: the same `record()` is entered a second time.
    """
    for name, value in (("max_tokens", max_tokens), ("max_stages", max_stages)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            raise ArgumentError(f"record: {name} is {value!r:.60}; allowed is an int from 1 to {MOST}")
    if logits_mb is None:
        logits_mb = _room_for_logits()
    if isinstance(logits_mb, bool) or not isinstance(logits_mb, int | float) or not 0 <= logits_mb < 1e6:
        raise ArgumentError(f"record: logits_mb is {logits_mb!r}; allowed is a number of MiB from 0 to 1e6")
    recorder = Recorder(max_tokens, max_stages, int(logits_mb * 2**20))
    if current_block() is not None:
        warnings.warn(
            "this record() is inside another recording, which gets nothing of what runs in here; use the outer trace, "
            "or record one after the other",
            stacklevel=_TO_THE_CALLER,
        )
    block = Block(recorder)
    with use_tracer(recorder), inside(block):
        yield Trace(recorder)
        block.wait()


def _room_for_logits() -> float:
    """MiB of rows that may wait: on a machine of 2 GiB 128."""
    memory = memory_limit_bytes()
    return 64.0 if memory is None else min(2048.0, max(64.0, memory / 16 / 2**20))
