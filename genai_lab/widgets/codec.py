"""Recordings -> chunks: the bytes that the browser side reads (widgets/PROTOCOL.md is the contract).

Receives a `tracing.Recording`. Returns compressed bytes. It knows neither widgets nor where the bytes go.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing import Recording, RunFacts
from genai_lab.tracing.recording import Columns
from genai_lab.tracing.texts import Names, names_of
from genai_lab.widgets.compact import on_clock, pack, rounded_counts
from genai_lab.widgets.engine_codec import ENGINE_TABLES, EngineEncoder

FORMAT = "genai_lab.chunk"
VERSION = 1
FORBIDDEN_BELOW = -1e37  # a logit below this was forbidden by a processor
DELTA_STEPS = 1024  # of top_delta, per unit of logit
TEXT_RANKS = 24  # candidates whose text is sent; no picture names those behind
QUESTION_CHARACTERS = 160
MAX_PROCESSORS, MAX_NAME = 64, 40  # whose order is sent; characters of a name
PROMPT_CHARACTERS = 4000
TABLES = ("tokens", "changed", "seen", "stages", *ENGINE_TABLES)
SETTINGS = (
    "mode",
    "mode_reason",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "min_length",
    "no_repeat_ngram_size",
    "random_seed",
    "max_length",
)


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows of each table there are, or where a chunk begins."""

    tokens: int = 0
    changed: int = 0
    seen: int = 0
    stages: int = 0
    steps: int = 0  # of an engine, like all that follow
    decisions: int = 0
    operands: int = 0
    holders: int = 0
    tables: int = 0
    admissions: int = 0
    admission_operands: int = 0
    pool: int = 0

    def __add__(self, other: Rows) -> Rows:
        return Rows(*(getattr(self, name) + getattr(other, name) for name in TABLES))


class Numbered:
    """Names that a column counts in. Numbers given out once stay, so rows that were sent keep their meaning."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def renumber(self, column: NDArray[Any], names: list[str]) -> NDArray[np.uint8]:
        """The column with its numbers, which count in `names`, replaced by those in `known`."""
        self.known += [name for name in names if name not in self.known]
        numbers: NDArray[np.uint8] = np.array([self.known.index(name) for name in names] or [0], np.uint8)
        return np.take(numbers, column)


class ChunkEncoder:
    """Turns one recorder's recordings into chunks, whose rows and names are numbered alike.

    Args:
        base: tokens that the recorder had dropped before the first one to be sent.
    """

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.next = Rows()  # the first row of each table that was not sent yet
        self.seq = 0  # of the next chunk
        self._texts: set[int] = set()
        self._runs: dict[int, tuple[Any, ...]] = {}  # what was told of each
        self._stages, self._processors = Numbered(), Numbered()
        self._engine = EngineEncoder()

    def everything(self, recording: Recording, running: Collection[int] = ()) -> bytes:
        """A chunk for somebody who has nothing. `recording` holds every row; `running`: runs being written now."""
        self.next = Rows()
        self._texts.clear()
        self._runs.clear()
        self._engine.forget()
        return self.news(recording, running, level=9)

    def news(self, recording: Recording, running: Collection[int] = (), level: int = 6) -> bytes:
        """A chunk for somebody who has every row before `next`. `recording` begins there."""
        columns, count = self._columns(recording)
        header = self._header(recording, running)
        self.next += count
        self.seq += 1
        return pack(header, columns, level)

    def _columns(self, recording: Recording) -> tuple[Columns, Rows]:
        tokens, tables = recording.tokens, recording.tables
        first_row = self.next.tokens + self.base
        highest = tokens["top_logits"][:, 0]
        changed = changed_columns(of_rows(tables["changed"], first_row, len(highest)), highest, self.next.tokens)
        changed["by"] = self._processors.renumber(changed["by"], recording.processor_names)
        seen = of_rows(tables["seen"], first_row, len(highest))
        seen["row"] = (seen["row"] + self.next.tokens).astype("<u4")
        stages = stage_columns(recording.stages)
        stages["stage"] = self._stages.renumber(stages["stage"], recording.stage_names)
        made = {"tokens": token_columns(tokens), "changed": changed, "seen": seen, "stages": stages}
        made |= self._engine.columns(recording, {table: getattr(self.next, table) for table in ENGINE_TABLES})
        count = {table: len(next(iter(columns.values()))) for table, columns in made.items()}
        flat = {f"{t}.{name}": column for t in TABLES if count[t] for name, column in made[t].items()}
        return flat, Rows(**count)

    def _header(self, recording: Recording, running: Collection[int]) -> dict[str, Any]:
        new_runs = list(self._new_runs(recording, running))
        prompts = self._engine.prompts(recording)
        texts = list(self._new_texts(recording, {token for _, tokens in prompts for token in tokens}))
        return {
            "format": FORMAT,
            "version": VERSION,
            "seq": self.seq,
            "first": {name: getattr(self.next, name) for name in TABLES},
            "model": {key: recording.model.get(key) for key in ("name", "vocab_size", "kv_bytes_per_token")},
            "origin": {
                "machine": machine_words(recording),
                "recorded_at": recording.origin.get("recorded_at"),
                "dropped": {table: recording.dropped.get(table, 0) for table in ("tokens", "stages", "steps")},
            },
            "runs": new_runs,
            "texts": texts,
            "stage_names": list(self._stages.known),
            "processor_names": list(self._processors.known),
            **({"prompts": prompts} if prompts else {}),
            **self._engine.header(recording),
        }

    def _new_runs(self, recording: Recording, running: Collection[int]) -> Iterable[dict[str, Any]]:
        """Entries of runs that are new or changed. What cannot have changed is not described again."""
        names = names_of(recording)
        for run in recording.runs:
            state = (run.status, run.finish, run.error, run.prompt.size, run.cached_tokens, run.run in running)
            if self._runs.get(run.run) != state:
                self._runs[run.run] = state
                yield describe_run(run, names, run.run in running)

    def _new_texts(
        self, recording: Recording, prompts: Collection[int]
    ) -> Iterable[tuple[int, str, int] | tuple[int, str, int, str]]:
        mentioned = np.union1d(recording.tokens["top_ids"][:, :TEXT_RANKS], recording.tokens["token"])
        mentioned = np.union1d(mentioned, let_through(recording, self.next.tokens + self.base))
        forced = [run.forced for run in recording.runs if run.forced is not None] + list(prompts)
        for token in np.union1d(mentioned, np.array(forced, np.int64)).tolist():
            if token not in self._texts and token in recording.texts:
                self._texts.add(token)
                text, special = recording.texts[token]
                raw = recording.raw.get(token)
                yield (token, text, int(special)) if raw is None else (token, text, int(special), raw.hex())


def encode_recording(recording: Recording, running: Collection[int] = ()) -> bytes:
    """One chunk with everything that a recording holds."""
    return ChunkEncoder(recording.dropped["tokens"]).everything(recording, running)


def token_columns(tokens: Columns) -> Columns:
    """The protocol's token columns (without their prefix), [n] or [n, k]."""
    top = tokens["top_logits"]
    with np.errstate(invalid="ignore"):  # a row whose every logit is -inf
        delta = np.nan_to_num((top[:, :1] - top) * DELTA_STEPS, nan=0.0, posinf=65535.0)
    same = ("run", "index", "position", "token", "final_prob")
    forced = tokens["forced"] == 1  # the model was not asked; under the grammar the token was certain
    certain = {"prob": 1.0, "rank": 1, "entropy": 0.0}
    tail = ("log_z", "tail_lo", "tail_hi", "tail_seen")
    return {
        **{name: tokens[name] for name in same},
        **{name: np.where(forced, value, tokens[name]).astype(tokens[name].dtype) for name, value in certain.items()},
        "top_logit": top[:, 0],
        "start_ms": on_clock(tokens["start_ms"]),
        "end_ms": on_clock(tokens["end_ms"]),
        "top_ids": tokens["top_ids"],
        "top_delta": np.rint(np.clip(delta, 0, 65535)).astype("<u2"),
        **{name: tokens[name] for name in tail},
        "tail_count": rounded_counts(tokens["tail_count"]),
        **{name: tokens[name] for name in ("exact", "allowed", "allowed_mass", "forced", "origin")},
    }


def let_through(recording: Recording, first_row: int) -> NDArray[np.uint32]:
    """Ids that pictures name although others are more likely: what a grammar left, or a processor lifted."""
    tokens, found = recording.tokens, [np.empty(0, np.uint32)]
    changed = of_rows(recording.tables["changed"], first_row, len(tokens["token"]))
    for row in np.flatnonzero((tokens["allowed"] > 0) | (tokens["exact"] < tokens["top_ids"].shape[1])):
        mine = (changed["row"] == row) & (changed["logit"] < FORBIDDEN_BELOW)
        ids = tokens["top_ids"][row]
        found.append(ids[~np.isin(ids, changed["id"][mine])][:TEXT_RANKS])
    return np.concatenate(found)


def stage_columns(stages: Columns) -> Columns:
    """The protocol's stage columns, `stage` still counting in the recording's own names. Stages of no run are left
    out."""
    owned = stages["run"] >= 0
    return {
        "run": stages["run"][owned].astype("<u2"),
        "token": stages["token"][owned],
        "stage": stages["stage"][owned],
        "start_ms": on_clock(stages["start_ms"][owned]),
        "dur_ms": on_clock(stages["dur_ms"][owned]),
        "n": stages["n"][owned],
    }


def of_rows(table: Columns, first_row: int, count: int) -> Columns:
    """A side table's rows that belong to `count` tokens from absolute row `first_row` on; `row` counted from there."""
    row = table["row"].astype(np.int64) - first_row
    mine = (row >= 0) & (row < count)
    return {name: column[mine] for name, column in (table | {"row": row}).items()}


def changed_columns(changed: Columns, highest: NDArray[np.float32], sent: int) -> Columns:
    """What processors changed. `highest` [n]: highest raw logit of each token row; `sent`: token rows before these."""
    logit, row = changed["logit"], changed["row"]
    delta = np.where(logit < FORBIDDEN_BELOW, np.float32(np.inf), highest[row] - logit).astype("<f4")
    return {"row": (row + sent).astype("<u4"), "id": changed["id"], "by": changed["by"], "delta": delta}


def describe_run(run: RunFacts, names: Names, running: bool) -> dict[str, Any]:
    """A run's entry of the header. A run that nobody is writing any more is done, even if it was left open."""
    prompt_text = names.joined(run.prompt[-PROMPT_CHARACTERS:].tolist(), special=True)
    settings: dict[str, Any] = {name: plain(run.settings.get(name)) for name in SETTINGS}
    order, sampler = run.settings.get("logits_processors"), run.settings.get("sampler")
    if isinstance(sampler, str):
        settings["sampler"] = sampler[:MAX_NAME]
    if isinstance(order, list) and all(isinstance(name, str) for name in order):
        settings["processors"] = [name[:MAX_NAME] for name in order[:MAX_PROCESSORS]]
    if settings["random_seed"] == -1:
        settings["random_seed"] = None
    return {
        "run": run.run,
        "parent": run.parent,
        "fork": run.fork,
        "forced": run.forced,
        "status": "done" if run.status == "running" and not running else run.status,
        "finish": run.finish if run.finish in ("eos", "length", "stopped") else None,
        "error": run.error,
        "prompt_tokens": int(run.prompt.size),
        "cached_tokens": run.cached_tokens,
        "question": question_of(run, names),
        "prompt_text": tail(prompt_text, PROMPT_CHARACTERS),
        "settings": settings,
        "start_ms": run.start_ms,
    }


def question_of(run: RunFacts, names: Names) -> str:
    """What a run answers: the last user message when it is known, else the last turn of the prompt, as far as its marks
    tell turns apart."""
    if run.question:
        return run.question
    tokens: list[list[int]] = [[]]
    for token in run.prompt[-PROMPT_CHARACTERS:].tolist():
        if names.texts.get(token, ("", False))[1]:
            tokens.append([])
        else:
            tokens[-1].append(token)
    turns = [names.joined(turn).strip() for turn in tokens]
    return tail(last_turn([turn for turn in turns if turn]), QUESTION_CHARACTERS)


def last_turn(turns: Sequence[str]) -> str:
    """The last thing said, without the name of who said it (a line of its own) or of who is to answer (a turn).

    >>> last_turn(["system: be brief", "Why?", "assistant"]), last_turn(["Once upon a time"]), last_turn([])
    ('Why?', 'Once upon a time', '')
    """
    if not turns:
        return ""
    if len(turns) == 1:
        return turns[0]
    said = turns[-2] if len(turns[-1].split()) == 1 else turns[-1]
    name, _, text = said.partition("\n")
    return text.strip() if text and len(name.split()) == 1 else said


def plain(value: Any) -> str | int | float | None:
    """A setting as JSON can hold it; anything else (only a damaged file has it) is nothing."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float) else None


def tail(text: str, length: int) -> str:
    """The end of a text, with an ellipsis when something was left out."""
    return text if len(text) <= length else "…" + text[1 - length :]


def machine_words(recording: Recording) -> str:
    """Where it was recorded: "2 CPU threads, onnxruntime 1.32.0", as far as the recording says."""
    threads, version = recording.model.get("threads"), recording.model.get("onnxruntime")
    words = [f"{threads} CPU thread{'' if threads == 1 else 's'}"] if threads else []
    return ", ".join([*words, f"onnxruntime {version}"] if version else words)
