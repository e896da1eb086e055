"""An engine's tables -> the protocol's columns (widgets/PROTOCOL.md, "Tables of an engine").

Receives a `tracing.Recording` that begins at some step. Returns columns whose steps are rows of the `steps` table, and
entries of the header. It knows neither chunks nor widgets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing import Recording
from genai_lab.tracing.recording import Columns
from genai_lab.widgets.compact import on_clock

ENGINE_TABLES = ("steps", "decisions", "operands", "holders", "tables", "admissions", "admission_operands", "pool")
PROMPT_TOKENS = 8192  # of one turn; a picture of blocks names no text beyond
_WORDS = {
    "decisions": ("verdict", "reason", "template"),
    "operands": ("name",),
    "admissions": ("template",),
    "admission_operands": ("name",),
    "pool": ("event", "policy"),
}
_OWNED = {"operands": ("decision", "decisions"), "admission_operands": ("admission", "admissions")}


class EngineEncoder:
    """Columns of one recorder's recordings, whose words and turns are numbered alike."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}
        self._turns: dict[tuple[int, int], dict[str, Any]] = {}
        self._told = 0  # words
        self._prompts: set[int] = set()

    def forget(self) -> None:
        """The next one who is told has nothing."""
        self._turns.clear()
        self._told = 0
        self._prompts.clear()

    def columns(self, recording: Recording, sent: dict[str, int]) -> dict[str, Columns]:
        """The protocol's columns by table. `sent`: rows of each table before these."""
        renumber = self._renumber(recording.words)
        made: dict[str, Columns] = {}
        steps = recording.tables["steps"]["step"]
        for table in ENGINE_TABLES:
            columns = dict(recording.tables[table])
            for name in _WORDS.get(table, ()):
                columns[name] = renumber[columns[name]]
            if table in _OWNED:
                name, owner = _OWNED[table]
                columns[name] = (columns[name].astype(np.int64) + sent[owner]).astype("<u4")
                columns["value"] = columns["value"].astype("<f8")
            elif table != "steps":
                columns["step"] = _rows_of(columns["step"], steps, sent["steps"])
            made[table] = columns
        for name in ("start_ms", "dur_ms", "run_ms"):
            made["steps"][name] = on_clock(made["steps"][name])
        return made

    def turns(self, recording: Recording) -> list[dict[str, Any]]:
        """Every turn that changed since the last time, whole."""
        columns = recording.tables["turns"]
        names = list(columns)
        found = []
        for values in zip(*(columns[name].tolist() for name in names), strict=True):
            turn = {name: _plain(value) for name, value in zip(names, values, strict=True)}
            turn["run"] = turn["run"] if turn["run"] >= 0 else None
            turn["status"], turn["finish"] = (recording.words[turn[name]] for name in ("status", "finish"))
            key = (turn["request"], turn["turn"])
            if self._turns.get(key) != turn:
                self._turns[key] = turn
                found.append(turn)
        return found

    def header(self, recording: Recording) -> dict[str, Any]:
        """The engine's entries of a chunk's header; empty when there is nothing new. Call it after `columns`."""
        turns, grown = self.turns(recording), len(self.words) > self._told
        self._told = len(self.words)
        return ({"turns": turns} if turns else {}) | ({"words": list(self.words)} if grown else {})

    def prompts(self, recording: Recording) -> list[tuple[int, list[int]]]:
        """Run and the token ids it began with, of turns that were not told yet."""
        runs = {run for run in recording.tables["turns"]["run"].tolist() if 0 <= run < len(recording.runs)}
        new = sorted(runs - self._prompts)
        self._prompts.update(new)
        return [(run, recording.runs[run].prompt[:PROMPT_TOKENS].tolist()) for run in new]

    def _renumber(self, words: list[str]) -> NDArray[np.uint16]:
        """For each number of the recording's words, the number that it has in chunks."""
        for word in words:
            if word not in self._numbers:
                self._numbers[word] = len(self.words)
                self.words.append(word)
        return np.array([self._numbers[word] for word in words] or [0], np.uint16)


def _rows_of(numbers: NDArray[Any], steps: NDArray[Any], sent: int) -> NDArray[np.uint32]:
    """Step numbers, in the steps' order, as rows of the steps table, whose first `sent` rows were sent before."""
    if steps.size < 2 or (np.diff(steps.astype(np.int64)) > 0).all():
        return (np.searchsorted(steps, numbers) + sent).astype(np.uint32)
    rows, row = np.empty(numbers.size, np.uint32), 0  # a second engine's numbers begin anew
    known = steps.tolist()
    for place, number in enumerate(numbers.tolist()):
        row = known.index(number, row)
        rows[place] = row + sent
    return rows


def _plain(value: Any) -> Any:
    """A number as JSON can hold it, a time to a microsecond."""
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    return value
