"""The moment before a step, as a policy sees it. Looking changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    views = [_view_waiting(state, states, memory) for state in waiting[:LOOKED_AT]]
    views += [_view_running(state, cache) for state in by_status[Status.RUNNING]]
    views = _with_beginnings(views, states, memory)
    return QueueView(
        step=step,
        waiting=tuple(view for view in views if view.status is Status.WAITING),
        running=tuple(view for view in views if view.status is Status.RUNNING),
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


def _with_beginnings(views: list[RequestView], states: States, memory: Memory) -> list[RequestView]:
    """The views, with a common number for those that need the same block next."""
    first: dict[tuple[str, str, bytes], int] = {}
    groups: dict[int, int] = {}  # request -> the first that needs the same block
    for view in views if memory.cache.adopts_any_block else ():
        needed = _next_block(view, states[view.request], memory)
        if needed is not None:
            groups[view.request] = first.setdefault(needed, view.request)
    shared = {leader for request, leader in groups.items() if request != leader}
    return [replace(v, beginning=groups[v.request]) if groups.get(v.request) in shared else v for v in views]


def _next_block(view: RequestView, state: RequestState, memory: Memory) -> tuple[str, str, bytes] | None:
    """What the prefix cache would know the next block of a prompt by; None when it is not full, or an answer's."""
    if view.is_decode:
        return None
    size, tokens = memory.cache.block_size, memory.findable(state)
    stop = (view.num_computed // size + 1) * size
    return (state.options.adapter, state.options.salt, tokens[:stop].tobytes()) if stop <= tokens.size else None
