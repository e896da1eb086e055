"""The moment before a step, as a policy sees it. Looking changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genai_lab.engine.limits import EngineLimits
from genai_lab.engine.memory import Memory
from genai_lab.engine.plan import QueueView, RequestView, Status
from genai_lab.engine.request import RequestState
from genai_lab.kvcache import PagedCache
from genai_lab.kvcache.waiting import NextBlock, WaitingPrefix

BUSY = (Status.WAITING, Status.RUNNING)
STATUSES = tuple(Status)
LOOKED_AT = 256  # of a longer queue so many are looked at: half of them by arrival, half by priority

States = Mapping[int, RequestState]


def queue_view(states: States, memory: Memory, limits: EngineLimits, step: int) -> QueueView:
    """Who waits, who runs, and what is left for them."""
    by_status: dict[Status, list[RequestState]] = {status: [] for status in STATUSES}
    for state in states.values():
        by_status[state.status].append(state)
    waiting = _shortlist(sorted(by_status[Status.WAITING], key=_place_in_line))
    idle = [s.request for s in by_status[Status.IDLE] if s.row is not None]
    cache, running = memory.cache, by_status[Status.RUNNING]
    running_views = tuple(_view_running(state, cache) for state in running)
    reading = [state for state, view in zip(running, running_views, strict=True) if not view.is_decode]
    prefixes = [_prefix_of(state, memory) for state in waiting]
    cache.keep_waiting(state.request for state in waiting)
    beginnings = _beginnings(waiting, prefixes, reading, memory)
    if beginnings:
        running_views = tuple(view._replace(beginning=beginnings.get(view.request)) for view in running_views)
    return QueueView(
        step=step,
        waiting=tuple(
            _view_waiting(state, prefix, states, beginnings) for state, prefix in zip(waiting, prefixes, strict=True)
        ),
        running=running_views,
        budget=limits.max_scheduled_tokens,
        free_rows=memory.table.free + len(idle),
        free_blocks=cache.pool.num_free + sum(cache.num_blocks_of(n) for n in idle),
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        chunk_size=limits.chunk_size,
        rows=limits.max_batch_size,
        window=None if cache.window is None else cache.window.tokens,
        smallest_piece=limits.smallest_piece,
        unseen=len(by_status[Status.WAITING]) - len(waiting),
    )


def _place_in_line(state: RequestState) -> tuple[bool, int, int]:
    return state.preemptions == 0, state.arrival_step, state.request


def _shortlist(waiting: list[RequestState]) -> list[RequestState]:
    """Those of a queue, in its order, whom a step can be about: no step admits more than a few."""
    if len(waiting) <= LOOKED_AT:
        return waiting
    urgent = sorted(waiting, key=lambda s: (s.preemptions == 0, s.options.priority, s.arrival_step, s.request))
    chosen = {state.request for state in (*waiting[: LOOKED_AT // 2], *urgent[: LOOKED_AT // 2])}
    return [state for state in waiting if state.request in chosen]


def leader_of(state: RequestState, states: States) -> RequestState | None:
    """The request whose reading of the same prompt `state` waits for, while that is still to come."""
    if state.leader is None or state.status is not Status.WAITING:
        return None
    number, turn_id = state.leader
    leader = states.get(number)
    if leader is None or leader.turn is None or leader.turn.turn_id != turn_id or leader.status not in BUSY:
        return None
    return leader if leader.turn.generated == 0 else None


def _prefix_of(state: RequestState, memory: Memory) -> WaitingPrefix:
    """What a waiting request would take over. Turn ids are never given twice, so id and lengths tell its tokens."""
    tokens = memory.findable(state)
    version = (state.last_turn, len(state.sequence), len(tokens))
    return memory.cache.waiting_prefix(state.request, version, tokens, state.options.adapter, state.options.salt)


def _view_waiting(
    state: RequestState, prefix: WaitingPrefix, states: States, beginnings: Mapping[int, int]
) -> RequestView:
    leader = leader_of(state, states)
    follows = None if leader is None else leader.request
    beginning = beginnings.get(state.request)
    return state.view(prefix.num_blocks, prefix.num_cached_tokens, follows, prefix.first_block, beginning)


def _view_running(state: RequestState, cache: PagedCache) -> RequestView:
    past = 0 if cache.window is None else cache.first_block(state.request)
    return state.view(cache.num_blocks_of(state.request), state.computed, past_blocks=past)


def _beginnings(
    waiting: Sequence[RequestState], prefixes: Sequence[WaitingPrefix], reading: Sequence[RequestState], memory: Memory
) -> dict[int, int]:
    """A common number, by request, for those that need the same block next: that of the first of them. `reading`: who
    holds a row and reads a prompt."""
    if not memory.cache.adopts_any_block or (not waiting and not reading):
        return {}
    first: dict[NextBlock, int] = {}
    groups: dict[int, int] = {}  # request -> the first that needs the same block
    for state, prefix in zip(waiting, prefixes, strict=True):
        if prefix.next_block is not None and not state.next_run(prefix.num_cached_tokens)[0]:
            groups[state.request] = first.setdefault(prefix.next_block, state.request)
    for state in reading:
        needed = _next_block(state, memory)
        if needed is not None:
            groups[state.request] = first.setdefault(needed, state.request)
    shared = {leader for request, leader in groups.items() if request != leader}
    return {request: leader for request, leader in groups.items() if leader in shared}


def _next_block(state: RequestState, memory: Memory) -> NextBlock | None:
    """What the prefix cache would know the next block of a prompt that is being read by; None when it is not full."""
    size, tokens = memory.cache.block_size, memory.findable(state)
    stop = (state.computed // size + 1) * size
    return (state.options.adapter, state.options.salt, tokens[:stop].tobytes()) if stop <= tokens.size else None
