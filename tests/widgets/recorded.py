"""Recordings made without a model: random logits told to a real Recorder, as a run would tell it."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing import Change, Recorder, TokenFact

WORDS = ("the", " quick", " brown", " fox", "\n", " <script>alert(1)</script>", " é", " 日本", "&amp;", " 'quoted\"")
STAGES = ("prepare_inputs", "run_decode", "read_logits", "select")
MILLISECOND = 1_000_000


def describe(ids: Sequence[int]) -> list[tuple[str, bool]]:
    """Ten words, then made-up ones; id 11 is special."""
    return [(WORDS[i] if i < len(WORDS) else f" w{i}", i == 11) for i in ids]


class ScriptedRun:
    """One run of a recorder, token by token.

    Args:
        recorder: told everything.
        vocabulary: length of a row of logits.
        seed: of the logits.
    """

    def __init__(self, recorder: Recorder, vocabulary: int = 500, seed: int = 0, **facts: object) -> None:
        self.recorder, self.vocabulary = recorder, vocabulary
        self.random = np.random.default_rng(seed)
        self.prior = -2 * np.log1p(np.arange(vocabulary))  # small ids are frequent words
        self.sequence = [1, 2, 3]
        self.index = 0 if facts.get("forced") is None else 1  # the recorder adds a forced token by itself
        self.clock = perf_counter_ns()
        known = {"prompt": np.array(self.sequence, np.int32), "settings": settings(), "model": model(vocabulary)}
        self.run = recorder.open_run(**(known | {"describe": describe} | facts))  # type: ignore[arg-type]

    def write(self, tokens: int = 1, *, penalty: float | None = None) -> ScriptedRun:
        """Tokens drawn from random logits, each with its stages and, with `penalty`, one processor."""
        for _ in range(tokens):
            logits = (self.prior + self.random.standard_normal(self.vocabulary) * 2).astype(np.float32)
            self._put(logits, penalty)
        return self

    def _put(self, logits: NDArray[np.float32], penalty: float | None) -> None:
        start = self.clock
        for name in STAGES:
            self.recorder.stage(self.run, self.index, name, self.clock, self.clock + MILLISECOND // 4)
            self.clock += MILLISECOND // 4
        seen = np.unique(np.array(self.sequence, np.int32))
        changes = () if penalty is None else (penalized(logits, seen, penalty),)
        scores = logits.copy()
        for change in changes:
            scores[change.ids] = change.logits
        token = int(np.argmax(scores))
        fact = TokenFact(
            run=self.run,
            index=self.index,
            position=len(self.sequence),
            token=token,
            start_ns=start,
            end_ns=self.clock,
            final_prob=1.0,
            kept=(1, 1, 1),
            changes=changes,
            seen=seen,
        )
        self.recorder.token(fact, logits)
        self.sequence.append(token)
        self.index += 1


def penalized(logits: NDArray[np.float32], seen: NDArray[np.int32], penalty: float) -> Change:
    """The repetition penalty's change; the first seen token is forbidden altogether, so that both kinds are there."""
    scores = np.where(logits[seen] < 0, logits[seen] * penalty, logits[seen] / penalty).astype(np.float32)
    scores[0] = np.finfo(np.float32).min
    return Change("repetition_penalty", seen, scores)


def settings() -> dict[str, object]:
    return {
        "mode": "greedy",
        "mode_reason": "do_sample is False",
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 0.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "min_length": 0,
        "no_repeat_ngram_size": 0,
        "random_seed": -1,
        "max_length": 64,
    }


def model(vocabulary: int) -> dict[str, object]:
    return {"name": "scripted", "vocab_size": vocabulary, "kv_bytes_per_token": 256, "threads": 2}
