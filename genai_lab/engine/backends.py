"""Where the engine's keys and values live, and who runs the model over them: rows that are copied to and from a pool,
rows whose pages are the pool's, or the pool itself, for a graph that reads block tables.
"""

from __future__ import annotations

from genai_lab.engine.limits import EngineLimits, engine_limits
from genai_lab.engine.packed_runs import PackedRuns
from genai_lab.engine.runs import RowRuns, Runs
from genai_lab.errors import ArgumentError, CapacityError
from genai_lab.kvcache import KVLayout, SlotStore, VmStore
from genai_lab.kvcache.beside import ring_blocks
from genai_lab.kvcache.contiguous import memory_limit_bytes
from genai_lab.kvcache.stores import bytes_needed
from genai_lab.kvcache.vm import smallest_block
from genai_lab.models import Model
from genai_lab.models.packed import PackedExecutor, make_pool
from genai_lab.models.paged import PagedGraph
from genai_lab.models.rows import RowsExecutor

ROW_BACKENDS = ("slots", "vm")
POOL_BACKEND = "pool"
VM_BLOCK_SIZE = 32  # tokens: with 16, all beside the model takes 6 to 7 % of a step of eight rows, with 32 it takes 4 %

Given = dict[str, int | None]
"""Sizes by argument; None: not given."""


def backend_of(model: Model, given: str | None) -> str:
    """The backend of an engine that was given `given`; None takes what the graph needs.

    Raises:
        ArgumentError: an unknown backend, or one that the graph cannot be run with.
    """
    allowed = ROW_BACKENDS if model.paged is None else (POOL_BACKEND,)
    if given is None:
        return allowed[0]
    if given not in allowed:
        kind = "has rows of its own" if model.paged is None else "reads block tables"
        raise ArgumentError(
            f"kv_backend is {given!r}; for a model whose graph {kind}, allowed are "
            f"{', '.join(map(repr, allowed))}, or None"
        )
    return given


def limits_of(model: Model, backend: str, given: Given) -> EngineLimits:
    """The sizes of an engine: what was given, what the backend or the graph demands, defaults.

    Raises:
        ArgumentError: a size that is not the graph's, or none at all.
    """
    if model.paged is not None:
        return engine_limits(model.config, given | _sizes_of_paged(model, model.paged, given), packed=True)
    size = _block_size_of(backend, model.kv_layout, given["block_size"])
    return engine_limits(model.config, given | {"block_size": size})


def make_runs(backend: str, model: Model, limits: EngineLimits, exact: bool, sharing: bool) -> Runs:
    """The model over a new store of a backend, "slots" (everywhere; a prefix hit is copied), "vm" (Linux; a prefix hit
    is mapped, nothing is copied) or "pool" (nothing is copied). `sharing`: equal beginnings are.

    Raises:
        ArgumentError: "vm" where blocks cannot be mapped; the message says why.
        CapacityError: rows and pool can never fit into memory.
    """
    if model.paged is not None:
        _check_memory(limits, 0, model.paged.bytes_per_token * limits.num_blocks * limits.block_size)
        _check_rings(model.paged, limits)
        pool = make_pool(
            model.paged,
            limits.max_batch_size,
            limits.num_blocks,
            limits.block_size,
            most=limits.chunk_size,
            sharing=sharing,
        )
        return PackedRuns(PackedExecutor(model, model.paged, pool), pool, exact)
    store = _make_rows(backend, model.kv_layout, limits)
    return RowRuns(RowsExecutor(model, store.slab), store, exact)


def _make_rows(backend: str, layout: KVLayout, limits: EngineLimits) -> SlotStore | VmStore:
    rows, tokens = limits.max_batch_size, limits.max_session_tokens
    of_rows, of_pool = bytes_needed(layout, rows, tokens + 1, limits.num_blocks, limits.block_size)
    # the rows of "vm" are addresses without memory: their pages are the pool's
    _check_memory(limits, 0 if backend == "vm" else of_rows, of_pool)
    # one position more than a conversation can have: an idle row's unread token goes there
    if backend == "slots":
        return SlotStore(layout, rows, tokens + 1, limits.num_blocks, limits.block_size)
    # a whole block more than a conversation can have: an idle row's unread token goes past its last block
    whole = (-(-tokens // limits.block_size) + 1) * limits.block_size
    return VmStore(layout, rows, whole, limits.num_blocks, limits.block_size)


def _block_size_of(backend: str, layout: KVLayout, given: int | None) -> int | None:
    """With "vm" a block of one head must fill whole memory pages, so that small tokens need larger blocks: 16 tokens of
    64 numbers in float32 are one page, in 8 bits it takes 64 tokens. A block costs the same system calls however large
    it is."""
    if given is not None or backend != "vm" or not VmStore.is_available().available:
        return given
    smallest = smallest_block(layout)
    return -(-VM_BLOCK_SIZE // smallest) * smallest


def _sizes_of_paged(model: Model, paged: PagedGraph, given: Given) -> Given:
    """What the graph says, else what was given, else what the folder says."""
    folder = model.config.engine.dynamic_batching
    found: Given = {}
    for name in ("block_size", "num_blocks"):
        of_graph, own = getattr(paged, name), given[name]
        if of_graph is not None and own is not None and own != of_graph:
            raise ArgumentError(
                f"Engine: {name} is {own}; the graph {model.graph.filename!r} was made for {name}={of_graph}, which is "
                f"all that is allowed. Leave it out"
            )
        found[name] = of_graph or (getattr(folder, name, None) if own is None else own)
    if given["max_scheduled_tokens"] is None:
        found["max_scheduled_tokens"] = getattr(folder, "max_scheduled_tokens", None)
    if given["chunk_size"] is None:
        found["chunk_size"] = model.config.search_options().chunk_size
    return found


def _check_rings(paged: PagedGraph, limits: EngineLimits) -> None:
    """A graph that was made for so many blocks of rings fits only these rows, block size and largest piece."""
    if paged.num_ring_blocks is None:
        return
    each = ring_blocks(paged.window, limits.chunk_size, limits.block_size)
    if each * limits.max_batch_size != paged.num_ring_blocks:
        raise ArgumentError(
            f"Engine: max_batch_size is {limits.max_batch_size} and chunk_size is {limits.chunk_size}, so that the "
            f"layers with a window of {paged.window} tokens need {limits.max_batch_size} rings of {each} blocks; the "
            f"graph was made for {paged.num_ring_blocks} blocks. Give the sizes for which it was made, or leave them "
            "to genai_config.json"
        )


def prefix_caching_of(model: Model, given: bool | None) -> bool:
    """Whether blocks of equal beginnings are shared: `given`, else as the folder says, else where it is possible.

    Raises:
        ArgumentError: it is asked for and not possible.
    """
    paged = model.paged
    possible = paged is None or paged.shares_prefixes
    folder = (
        None
        if paged is None or model.config.engine.dynamic_batching is None
        else (model.config.engine.dynamic_batching.prefix_caching)
    )
    if not possible and (given or (given is None and folder)):
        raise ArgumentError(
            f"Engine: prefix_caching is {given if given is not None else 'on in genai_config.json'}, but "
            f"{model.graph.filename!r} keeps the last tokens of a layer with a window in rings, which no two texts "
            "share. False or None is allowed"
        )
    wanted = folder if given is None else given
    return possible if wanted is None else wanted


def _check_memory(limits: EngineLimits, of_rows: int, of_pool: int) -> None:
    """Refuse what the store would refuse, with the names of the engine's own arguments."""
    limit = memory_limit_bytes()
    if limit is not None and of_rows + of_pool > limit:
        raise CapacityError(
            f"Engine: num_blocks={limits.num_blocks:,} blocks of block_size={limits.block_size:,} tokens need "
            f"{_gib(of_pool)}, max_batch_size={limits.max_batch_size:,} rows of "
            f"max_session_tokens={limits.max_session_tokens:,} tokens {_gib(of_rows)}; this machine has "
            f"{_gib(limit)}. Make smaller whichever of them is large"
        )


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:,.1f} GiB"
