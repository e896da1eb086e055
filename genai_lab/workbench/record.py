"""`with genai_lab.record() as trace:` around anything that generates."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from genai_lab.errors import ArgumentError
from genai_lab.kinds import number, whole
from genai_lab.kvcache import memory_limit_bytes
from genai_lab.once import once
from genai_lab.tracing import Recorder, use_tracer
from genai_lab.workbench.block import Block, current_block, inside
from genai_lab.workbench.trace import Trace

MOST, MOST_MB = 2**31 - 1, 1_000_000
_TO_THE_CALLER = 4  # frames from `record`'s body: contextlib's, `Once`'s, the with statement


@once
def record(max_tokens: int = 8192, max_stages: int = 131_072, logits_mb: float | None = None) -> Iterator[Trace]:
    """Record every stage of what runs inside the block.

    Args:
        max_tokens: tokens kept; beyond, the oldest are dropped and counted in `trace.dropped`.
        max_stages: stage events kept, likewise, and of an Engine so many steps: with 5, the last five.
        logits_mb: memory (MiB) for rows of logits that are not digested yet. Digesting waits until the trace is read,
            or this is full, so that it does not slow the run. None: a sixteenth of the machine's memory, 64 to 2048.
            1,000,000 at most.

    Yields:
        A `Trace`; it can be read inside the block and after it.

    Recording follows the calling context and does not cross threads by itself. What `ask` writes in the background is
    recorded here, too, when it is done; leaving the block waits for it.

    A run is recorded once: in a block inside another block, the inner trace gets it and the outer one nothing, and a
    UserWarning says so. Each `record()` is for one `with`.

    Raises:
        ArgumentError, ArgumentTypeError: a limit that is not allowed.
        StateError: the same `record()` is entered a second time.
    """
    for name, value in (("max_tokens", max_tokens), ("max_stages", max_stages)):
        if not 1 <= whole(f"record: {name}", value, f"an int from 1 to {MOST}") <= MOST:
            raise ArgumentError(f"record: {name} is {value!r:.60}; allowed is an int from 1 to {MOST}")
    allowed = f"a number of MiB from 0 to {MOST_MB:,}, or None"
    room = _room_for_logits() if logits_mb is None else number("record: logits_mb", logits_mb, allowed)
    if not 0 <= room <= MOST_MB:
        raise ArgumentError(f"record: logits_mb is {logits_mb!r:.60}; allowed is {allowed}")
    recorder = Recorder(int(max_tokens), int(max_stages), int(room * 2**20))
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
