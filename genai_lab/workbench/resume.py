"""A recording from a file -> a recorder that holds it and goes on, so that a loaded trace can be continued."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from genai_lab.tracing import Change, Digest, Recorder, Recording, TokenFact
from genai_lab.tracing.recorder import Entry

_FIELDS = ("log_z", "entropy", "prob", "rank", "tail_lo", "tail_hi", "tail_count", "tail_seen")


def resume(recording: Recording) -> Recorder:
    """A recorder with everything that `recording` holds. Its clock goes on where the recording ended.

    Rows that the recording had dropped stay dropped. Of what processors changed and what the sequence held, the
    recorded candidates are kept, as in the recording itself.
    """
    recorder = _Resumed(max_tokens=max(8192, 2 * len(recording.tokens["token"])))
    ends = [float(c.max()) for c in (recording.tokens["end_ms"], recording.stages["start_ms"]) if c.size]
    recorder.origin_ns = time.perf_counter_ns() - round(max(ends, default=0.0) * 1e6)
    recorder.fill(recording)
    return recorder


class _Resumed(Recorder):
    """Gets at the recorder's insides once, to fill them."""

    def fill(self, recording: Recording) -> None:
        self.recorded_at = str(recording.origin.get("recorded_at", self.recorded_at))
        self.runs = [replace(run, status="done" if run.status == "running" else run.status) for run in recording.runs]
        self.model, self._texts = dict(recording.model), dict(recording.texts)
        stages = recording.stages
        for row in range(len(stages["stage"])):
            start = self.origin_ns + round(float(stages["start_ms"][row]) * 1e6)
            end = start + round(float(stages["dur_ms"][row]) * 1e6)
            name = recording.stage_names[int(stages["stage"][row])]
            run, token, n = (int(stages[column][row]) for column in ("run", "token", "n"))
            self._stages.append((start, end, name, run, token, n))
        self._stage_count = len(self._stages)
        for row in range(len(recording.tokens["token"])):
            entry = Entry(_fact(recording, row, self.origin_ns))
            entry.digest = _digest(recording, row)
            self._tokens.append(entry)
        self._token_count = len(self._tokens)


def _fact(recording: Recording, row: int, origin_ns: int) -> TokenFact:
    tokens, seen = recording.tokens, recording.tables["seen"]
    absolute = row + recording.dropped["tokens"]
    slots = seen["slot"][seen["row"] == absolute]
    run, index, position, token = (int(tokens[name][row]) for name in ("run", "index", "position", "token"))
    top_k, top_p, min_p = tokens["kept"][row].tolist()
    return TokenFact(
        run=run,
        index=index,
        position=position,
        token=token,
        start_ns=origin_ns + round(float(tokens["start_ms"][row]) * 1e6),
        end_ns=origin_ns + round(float(tokens["end_ms"][row]) * 1e6),
        final_prob=float(tokens["final_prob"][row]),
        kept=(top_k, top_p, min_p),
        changes=tuple(_changes(recording, absolute)),
        seen=tokens["top_ids"][row][slots].astype(np.int32),
    )


def _changes(recording: Recording, absolute: int) -> list[Change]:
    changed = recording.tables["changed"]
    mine = changed["row"] == absolute
    by, ids, logits = changed["by"][mine], changed["id"][mine].astype(np.int32), changed["logit"][mine]
    return [
        Change(recording.processor_names[number], ids[by == number], logits[by == number])
        for number in dict.fromkeys(by.tolist())
    ]


def _digest(recording: Recording, row: int) -> Digest:
    tokens = recording.tokens
    valid = np.isfinite(tokens["top_logits"][row])
    values = {name: tokens[name][row] for name in _FIELDS}
    return Digest(
        top_ids=tokens["top_ids"][row][valid].astype(np.int32),
        top_logits=tokens["top_logits"][row][valid],
        **{name: value if np.ndim(value) else value.item() for name, value in values.items()},
    )
