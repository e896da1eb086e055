"""Random moments before a step, for tests of policies."""

from __future__ import annotations

from hypothesis import strategies as st

from genai_lab.engine import QueueView, RequestView, Status


@st.composite
def request_views(draw: st.DrawFn, number: int, status: Status, block_size: int) -> RequestView:
    """A request that is consistent with itself."""
    num_tokens = draw(st.integers(1, 90))
    computed = draw(st.integers(0, num_tokens - 1))
    if status is Status.WAITING:
        computed = computed // block_size * block_size
    remaining = num_tokens - computed
    is_decode = draw(st.booleans()) if computed else False
    held = -(-computed // block_size)
    return RequestView(
        request=number,
        status=status,
        arrival_step=draw(st.integers(0, 50)),
        priority=draw(st.integers(-2, 2)),
        num_tokens=num_tokens,
        num_computed=computed,
        next_tokens=1 if is_decode else draw(st.integers(1, remaining)),
        is_decode=is_decode,
        held_blocks=held,
        preemptions=draw(st.integers(0, 1)) if status is Status.WAITING else 0,
        beginning=None if is_decode else draw(st.sampled_from([None, 0, 1])),
    )


@st.composite
def queue_views(draw: st.DrawFn) -> QueueView:
    """A queue with some waiting, some running."""
    block_size = draw(st.sampled_from([4, 16]))
    waiting_count, running_count = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    waiting = tuple(draw(request_views(i, Status.WAITING, block_size)) for i in range(waiting_count))
    running = tuple(draw(request_views(waiting_count + i, Status.RUNNING, block_size)) for i in range(running_count))
    free_rows = draw(st.integers(0, 4))
    free_blocks = draw(st.integers(0, 40))
    return QueueView(
        step=60,
        waiting=waiting,
        running=running,
        budget=draw(st.integers(2, 120)),
        free_rows=free_rows,
        free_blocks=free_blocks,
        num_blocks=free_blocks + sum(r.held_blocks for r in running),
        block_size=block_size,
        chunk_size=draw(st.integers(2, 64)),
        rows=running_count + free_rows,
    )
