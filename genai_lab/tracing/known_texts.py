"""What a recorder knows of its tokens as text: each id's text, asked once, and the text of each answer.

Receives ids, runs, and whoever can describe them (`describe`, a tokenizer's face). It knows no ring and no columns but
those it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.tracing.recording import Recording, RunFacts
from genai_lab.tracing.texts import answer_rows
from genai_lab.tracing.tracer import Decodes, Describe, TokenText


class KnownTexts:
    """Texts by token id; they only grow."""

    def __init__(self) -> None:
        self.describe: Describe | None = None  # of the last run that opened
        self._texts: dict[int, tuple[str, bool]] = {}  # id -> text, is special
        self._raw: dict[int, bytes] = {}  # of those that are not whole characters
        self._prompt_ids: set[int] = set()
        self._read_prompts: dict[int, int] = {}  # run -> tokens of its prompt that are among those ids

    def take_over(self, recording: Recording) -> None:
        """Know what a recording knows."""
        self._texts, self._raw = dict(recording.texts), dict(recording.raw)

    def of(self, runs: Sequence[RunFacts], *columns: NDArray[Any]) -> dict[int, tuple[str, bool]]:
        """Texts of every id that the columns and the runs mention."""
        ids = {i for column in columns for i in np.unique(column).tolist()}
        for facts in runs:
            if self._read_prompts.get(facts.run) != facts.prompt.size:  # a live picture asks 30 times a second
                self._read_prompts[facts.run] = facts.prompt.size
                self._prompt_ids.update(np.unique(facts.prompt).tolist())
            if facts.forced is not None:
                ids.add(facts.forced)
        ids |= self._prompt_ids
        self._ask(sorted(ids - self._texts.keys()))
        return {i: self._texts[i] for i in sorted(ids) if i in self._texts}

    def raw_of(self, texts: Mapping[int, object]) -> dict[int, bytes]:
        """The bytes of those that are not whole characters."""
        return {i: self._raw[i] for i in texts if i in self._raw}

    def answers(self, runs: Sequence[RunFacts], tokens: Mapping[str, NDArray[Any]]) -> list[RunFacts]:
        """The runs, each with the text of its answer, of which `tokens` are the columns."""
        describe = self.describe
        if not isinstance(describe, Decodes):
            return list(runs)
        rows = [answer_rows(tokens, runs, run.run) for run in runs]
        return [
            replace(run, text=describe.decode(tokens["token"][mine].tolist()))
            for run, mine in zip(runs, rows, strict=True)
        ]

    def _ask(self, missing: list[int]) -> None:
        if missing and self.describe is not None:
            for token, told in zip(missing, self.describe(missing), strict=True):
                text = TokenText(*told)
                self._texts[token] = (text.text, text.special)
                if text.raw is not None:
                    self._raw[token] = text.raw
