"""An engine's recorded steps as pandas frames, any moment rebuilt, and why a request was served or had to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError
from genai_lab.tracing import Recording
from genai_lab.tracing.engine_facts import GONE, PoolEvent

ROLE_COLUMNS = {"decoding": "decode", "prefilling": "prefill", "waiting": "wait", "preempted": "preempt"}
READS_AGAIN = "reads_again"
EVERYWHERE = slice(None)
MANY = 16  # requests that a sentence lists
FINISHES = {
    "eos": "it said that its answer ends",
    "stop_string": "a stop string appeared",
    "max_generated_tokens": "it reached its limit of new tokens",
    "max_session_tokens": "it reached the limit of its conversation",
    "cancelled": "it was cancelled",
    "failed": "it failed",
    "stopping_criterion": "a stopping criterion ended it",
}


@dataclass(frozen=True, slots=True)
class HolderState:
    """One request that held a row."""

    request: int
    row: int
    num_tokens: int  # in its row
    block_table: tuple[int, ...]
    first_block: int = 0  # place of the first of them in its text: as many fell out of its window


@dataclass(frozen=True, slots=True)
class EngineState:
    """The engine right after a step."""

    step: int
    num_waiting: int
    blocks_used: int
    blocks_cached: int
    blocks_free: int
    block_size: int
    holders: tuple[HolderState, ...]
    kept: tuple[int, ...] = ()  # blocks that nobody holds, whose content can still be found

    def owners(self) -> dict[int, tuple[int, ...]]:
        """Block -> requests whose table holds it; more than one: it is shared."""
        found: dict[int, tuple[int, ...]] = {}
        for holder in self.holders:
            for block in holder.block_table:
                found[block] = (*found.get(block, ()), holder.request)
        return found


def turn_frame(recording: Recording) -> pd.DataFrame:
    """One row per turn: times in milliseconds on the trace's clock, and what follows from them.

    queue_ms is from arrival to the first step that served it, ttft_ms from arrival to the first token,
    ttft_scheduled_ms from that first step; ms_per_token is over the tokens after the first.
    """
    columns = recording.tables["turns"]
    frame = pd.DataFrame({name: columns[name] for name in columns})
    for name in ("status", "finish"):
        frame[name] = _words(recording, columns[name])
    frame["queue_ms"] = frame["scheduled_ms"] - frame["arrived_ms"]
    frame["ttft_ms"] = frame["first_token_ms"] - frame["arrived_ms"]
    frame["ttft_scheduled_ms"] = frame["first_token_ms"] - frame["scheduled_ms"]
    later = (frame["generated_tokens"] - 1).where(frame["generated_tokens"] > 1)
    frame["ms_per_token"] = (frame["finished_ms"] - frame["first_token_ms"]) / later
    frame["cache_hit_rate"] = frame["cached_prompt_tokens"] / frame["prompt_tokens"]
    return frame


def step_frame(recording: Recording) -> pd.DataFrame:
    """One row per step: start_ms, dur_ms, run_ms (inside the model), tokens scheduled of the budget, how many requests
    got a token (decoding), read a prompt or what they had lost (prefilling), waited or were preempted, how many stand
    in another row than after the step before (moved_rows: the engine closes the gaps that ended ones left), and the
    pool's blocks."""
    columns = recording.tables["steps"]
    frame = pd.DataFrame({name: columns[name] for name in columns})
    decisions = recording.tables["decisions"]
    done = roles(recording)
    for name, role in ROLE_COLUMNS.items():
        steps = decisions["step"][done == role]
        frame[name] = _count(frame["step"], steps, np.ones(steps.size))
    frame["num_tokens"] = _count(frame["step"], decisions["step"], decisions["num_tokens"])
    moved = _moved_in(recording)
    frame["moved_rows"] = _count(frame["step"], moved, np.ones(moved.size))
    return frame


def roles(recording: Recording, where: NDArray[np.bool_] | slice = EVERYWHERE) -> NDArray[Any]:
    """What recorded decisions came to, [n] texts: their verdicts, but who reads its answer's tokens again, one by one,
    only reads."""
    decisions, words = recording.tables["decisions"], np.array(recording.words, object)
    found: NDArray[Any] = words[decisions["verdict"][where]]
    found[(found == "decode") & (words[decisions["reason"][where]] == READS_AGAIN)] = "prefill"
    return found


def block_frame(recording: Recording, step: int) -> pd.DataFrame:
    """One row per block of a table after a step: block, request, index in its table, tokens filled, holders."""
    state = state_at(recording, step)
    owners, size = state.owners(), state.block_size
    rows = [
        {
            "block": block,
            "request": holder.request,
            "index": index,
            "filled": min(size, max(0, holder.num_tokens - index * size)),
            "holders": len(owners[block]),
        }
        for holder in state.holders
        for index, block in enumerate(holder.block_table, holder.first_block)
    ]
    return pd.DataFrame(rows, columns=["block", "request", "index", "filled", "holders"])


def state_at(recording: Recording, step: int) -> EngineState:
    """The engine right after `step`, put together from the recorded changes.

    Raises:
        ArgumentError: that step was not recorded, or was dropped from the ring.
    """
    steps, holders, tables = (recording.tables[name] for name in ("steps", "holders", "tables"))
    row = _step_row(recording, step)
    now = holders["step"] == step
    found = []
    columns = (holders[name][now].tolist() for name in ("request", "row", "num_tokens", "num_blocks"))
    for request, place, tokens, blocks in zip(*columns, strict=True):
        mine = (tables["request"] == request) & (tables["step"] <= step)
        table = np.zeros(blocks, np.int64)
        for index, block in zip(tables["index"][mine], tables["block"][mine], strict=True):
            if index < blocks:
                table[index] = block
        held = table[table != GONE]
        found.append(HolderState(request, place, tokens, tuple(held.tolist()), blocks - held.size))
    counts = {name: int(steps[name][row]) for name in ("num_waiting", "blocks_used", "blocks_cached", "blocks_free")}
    size, taken = int(steps["block_size"][row]), {block for holder in found for block in holder.block_table}
    kept = tuple(sorted(_kept(recording, step) - taken))
    return EngineState(step=step, **counts, block_size=size, holders=tuple(found), kept=kept)


def _kept(recording: Recording, step: int) -> set[int]:
    """Blocks whose last event, up to a step, was that they were let go with their content."""
    pool = recording.tables["pool"]
    past = pool["step"] <= step
    last = dict(zip(pool["block"][past].tolist(), pool["event"][past].tolist(), strict=True))
    return {block for block, event in last.items() if recording.words[event] == PoolEvent.KEPT}


def why(recording: Recording, request: int, step: int) -> str:
    """What was decided about `request` in `step`, in words with the numbers that were compared; of one that waits
    behind another, what was decided about that one too.

    Raises:
        ArgumentError: the step was not recorded.
    """
    row = _step_row(recording, step)
    decided = _decision_row(recording, request, step)
    if decided is None:
        return f"Nothing was decided about request {request} in step {step}: {_where(recording, request, row)}"
    (role,) = roles(recording, slice(decided, decided + 1))
    words, operands = _decided(recording, decided)
    head = operands.get("head")
    first = None if head is None else _decision_row(recording, head, step)
    behind = "" if first is None else f" As for request {head}: {_decided(recording, first)[0]}"
    return f"Step {step}, request {request}: {role}. {words}{behind}"


def _decision_row(recording: Recording, request: int, step: int) -> int | None:
    decisions = recording.tables["decisions"]
    rows = np.flatnonzero((decisions["step"] == step) & (decisions["request"] == request))
    return int(rows[0]) if rows.size else None


def _decided(recording: Recording, row: int) -> tuple[str, dict[str, int]]:
    """The sentence of a decision, and its numbers."""
    operands = recording.tables["operands"]
    mine = operands["decision"] == row
    names = (recording.words[n] for n in operands["name"][mine])
    values = dict(zip(names, operands["value"][mine].tolist(), strict=True))
    return _fill(recording.words[int(recording.tables["decisions"]["template"][row])], values), values


def _where(recording: Recording, request: int, row: int) -> str:
    """What became of a request about which the step in `row` of the steps decided nothing."""
    turns, steps = recording.tables["turns"], recording.tables["steps"]
    mine = turns["request"] == request
    if not mine.any():
        known = np.unique(turns["request"]).tolist()
        shown = ", ".join(map(str, known[:MANY])) + (f" and {len(known) - MANY} more" if len(known) > MANY else "")
        return (
            f"it was never asked, or waited all the time behind so many that the policy gave it no word. Requests that "
            f"were served: {shown or 'none'}."
        )
    end = steps["start_ms"][row] + steps["dur_ms"][row]
    arrived, finished = turns["arrived_ms"][mine], turns["finished_ms"][mine]
    if not (arrived <= end).any():
        return "it had not been asked yet."
    over = np.flatnonzero(finished <= end)
    if over.size < np.count_nonzero(arrived <= end):
        return "it waited behind so many that the policy gave it no word."
    last = over[-1]
    finish = recording.words[int(turns["finish"][mine][last])]
    place = max(0, int(np.searchsorted(steps["start_ms"], finished[last], side="right")) - 1)
    return f"its turn had ended in step {int(steps['step'][place])}: {FINISHES.get(finish, finish)}."


def _fill(template: str, values: dict[str, int]) -> str:
    """Put the numbers in by plain replacement: a file's text is never a format string."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", f"{value:,}")
    return template.replace("{{", "{").replace("}}", "}")


def _step_row(recording: Recording, step: int) -> int:
    steps = recording.tables["steps"]["step"]
    rows = np.flatnonzero(steps == step)
    if rows.size == 0:
        known = f"{int(steps.min())} to {int(steps.max())}" if steps.size else "none, no engine ran here"
        raise ArgumentError(f"step {step} is not in the trace; recorded steps are {known}")
    return int(rows[0])


def _words(recording: Recording, numbers: NDArray[Any]) -> list[str]:
    return [recording.words[int(n)] for n in numbers]


def _moved_in(recording: Recording) -> NDArray[Any]:
    """The step, once for each request that stands in another row after it than after the step before."""
    holders = pd.DataFrame({name: recording.tables["holders"][name] for name in ("step", "request", "row")})
    holders = holders.astype("int64").sort_values(["request", "step"])
    last = holders.groupby("request").shift()
    moved = holders[(last["step"] == holders["step"] - 1) & (last["row"] != holders["row"])]
    return np.asarray(moved["step"])


def _count(steps: pd.Series[int], where: NDArray[Any], what: NDArray[Any]) -> NDArray[np.int64]:
    sums = pd.Series(what, dtype="int64").groupby(np.asarray(where)).sum()
    return np.asarray(steps.map(sums).fillna(0).astype("int64"))
