"""The moment before a step, as a policy sees it. Looking changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from genai_lab.engine.limits import EngineLimits
from genai_lab.engine.memory import Memory
from genai_lab.engine.plan import QueueView, RequestView, Status
from genai_lab.engine.request import RequestState
from genai_lab.kvcache import PagedCache

LOOKED_AT = 64  # waiting requests that a policy sees in one step
BUSY = (Status.WAITING, Status.RUNNING)

States = Mapping[int, RequestState]


def queue_view(states: States, memory: Memory, limits: EngineLimits, step: int) -> QueueView:
    """Who waits, who runs, and what is left for them."""
    by_status: dict[Status, list[RequestState]] = {status: [] for status in Status}
    for state in states.values():
        by_status[state.status].append(state)
    waiting = sorted(by_status[Status.WAITING], key=lambda s: (s.preemptions == 0, s.arrival_step, s.request))
    idle = [s.request for s in by_status[Status.IDLE] if s.row is not None]
    cache = memory.cache
    return QueueView(
        step=step,
        waiting=tuple(_view_waiting(state, states, memory) for state in waiting[:LOOKED_AT]),
        running=tuple(_view_running(state, cache) for state in by_status[Status.RUNNING]),
        budget=limits.max_scheduled_tokens,
        free_rows=memory.table.free + len(idle),
        free_blocks=cache.pool.num_free + sum(cache.num_blocks_of(n) for n in idle),
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        chunk_size=limits.chunk_size,
        rows=limits.max_batch_size,
        window=None if cache.window is None else cache.window.tokens,
        smallest_piece=limits.smallest_piece,
    )


def leader_of(state: RequestState, states: States) -> RequestState | None:
    """The request whose reading of the same prompt `state` waits for, while that is still to come."""
    if state.leader is None or state.status is not Status.WAITING:
        return None
    number, turn_id = state.leader
    leader = states.get(number)
    if leader is None or leader.turn is None or leader.turn.turn_id != turn_id or leader.status not in BUSY:
        return None
    return leader if leader.turn.generated == 0 else None


def _view_waiting(state: RequestState, states: States, memory: Memory) -> RequestView:
    match = memory.cache.match_prefix(memory.findable(state), state.options.adapter, state.options.salt)
    leader = leader_of(state, states)
    follows = None if leader is None else leader.request
    return state.view(len(match.blocks), match.num_cached_tokens, follows, match.first_block)


def _view_running(state: RequestState, cache: PagedCache) -> RequestView:
    return state.view(cache.num_blocks_of(state.request), state.computed, past_blocks=cache.first_block(state.request))
