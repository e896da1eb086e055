"""A trace as its reader sees it: frames, numbers, files. Over a recorder that still listens, or a file that was
loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import pandas as pd

from genai_lab.analysis.candidates import candidate_frame
from genai_lab.analysis.engine_frames import EngineState, block_frame, state_at, step_frame, turn_frame, why
from genai_lab.analysis.frames import run_frame, stage_frame, token_frame
from genai_lab.analysis.plots import Plots
from genai_lab.analysis.speculation_frames import proposal_frame, round_frame
from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.kinds import whole
from genai_lab.paths import checked_path, whole_file
from genai_lab.tracing import Recorder, Recording, load_recording, save_recording, to_chrome_json
from genai_lab.tracing.texts import answer_text


class Trace:
    """Everything that was recorded.

    >>> import genai_lab                                  # doctest: +SKIP
    >>> with genai_lab.record() as trace:                 # doctest: +SKIP
    ...     generator.generate_next_token()
    >>> trace.tokens()[["text", "prob", "rank"]]          # doctest: +SKIP
    """

    def __init__(self, source: Recorder | Recording) -> None:
        if not isinstance(source, Recorder | Recording):
            raise ArgumentTypeError(
                f"Trace() is given {source!r:.60} ({type(source).__name__}); traces are made by genai_lab.record() or "
                "genai_lab.ask(), and read from a file by Trace.load(path)"
            )
        self._source = source
        self._cached: tuple[Any, Recording] | None = None

    @property
    def recorder(self) -> Recorder | None:
        """The recorder behind a live trace; None for one that was loaded."""
        return self._source if isinstance(self._source, Recorder) else None

    @property
    def recording(self) -> Recording:
        """The columns up to now."""
        if isinstance(self._source, Recording):
            return self._source
        state = (self._source.counts, [(run.status, run.prompt.size) for run in self._source.runs])
        if self._cached is None or self._cached[0] != state:
            self._cached = (state, self._source.snapshot())
        return self._cached[1]

    @property
    def dropped(self) -> dict[str, int]:
        """Rows that did not fit into the recorder's ring, by table."""
        return dict(self.recording.dropped)

    def tokens(self) -> pd.DataFrame:
        """One row per generated token. Its `index` counts from 0, pictures count tokens from 1: token 5 of a picture is
        index 4 here. See `analysis.frames.token_frame` for the columns."""
        return token_frame(self.recording)

    def stages(self) -> pd.DataFrame:
        """One row per measured stage. `token` is the index, from 0, of the token it served: token 5 of a picture is 4
        here. See `analysis.frames.stage_frame`."""
        return stage_frame(self.recording)

    def runs(self) -> pd.DataFrame:
        """One row per answer or branch; see `analysis.frames.run_frame`."""
        return run_frame(self.recording)

    def rounds(self) -> pd.DataFrame:
        """One row per round of speculation: what was proposed, accepted, handed out; see
        `analysis.speculation_frames.round_frame`. Empty when nobody speculated."""
        return round_frame(self.recording)

    def proposals(self) -> pd.DataFrame:
        """One row per proposed token: probabilities of draft and target, the number drawn, the verdict; see
        `analysis.speculation_frames.proposal_frame`."""
        return proposal_frame(self.recording)

    @property
    def plot(self) -> Plots:
        """Figures in matplotlib: `plot.timeline()` and `plot.pool(step)` of an engine's run, `plot.speculation()` of a
        generator that speculates."""
        return Plots(self.recording)

    def requests(self) -> pd.DataFrame:
        """One row per turn of an engine's requests; see `analysis.engine_frames.turn_frame`."""
        return turn_frame(self.recording)

    def steps(self) -> pd.DataFrame:
        """One row per step of an engine; see `analysis.engine_frames.step_frame`."""
        return step_frame(self.recording)

    def blocks(self, step: int) -> pd.DataFrame:
        """One row per block that a request's table held after a step; see `analysis.engine_frames.block_frame`."""
        return block_frame(self.recording, whole("step", step))

    def state_at(self, step: int) -> EngineState:
        """The engine right after a step: who held which row and which blocks."""
        return state_at(self.recording, whole("step", step))

    def why(self, request: int, step: int) -> str:
        """What an engine decided about a request in a step, in words with the numbers that were compared; of one that
        waits behind another, what was decided about that one too.

        Raises:
            ArgumentError: the step was not recorded.
        """
        return why(self.recording, whole("request", request), whole("step", step))

    def candidates(self, index: int, run: int = 0) -> pd.DataFrame:
        """What else could have been token `index` of the answer of `run`, before and after each processor and filter.

        Raises:
            ArgumentError: there is no such run or token.
        """
        run, index = self._run(run), whole("index", index)
        tokens = self.recording.tokens
        rows = ((tokens["run"] == run) & (tokens["index"] == index)).nonzero()[0]
        if rows.size == 0:
            count = int((tokens["run"] == run).sum())
            raise ArgumentError(
                f"index {index} of run {run} is not in the trace; run {run} has {count} recorded tokens"
                + (f", index 0 to {count - 1}" if count and not any(self.dropped.values()) else "")
            )
        return candidate_frame(self.recording, int(rows[0]))

    def text(self, run: int = 0) -> str:
        """The answer of a run as the tokenizer decodes it, special tokens left out; that of a branch begins with the
        tokens of its parent before the fork. Tokens that the recorder dropped are missing.

        Raises:
            ArgumentError: there is no such run; says which there are.
        """
        run, recording = self._run(run), self.recording
        return answer_text(recording, run)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace to an npz file; `load` reads it back. Never pickled.

        Raises:
            OutputError: the file cannot be written; what was there stays.
        """
        return save_recording(self.recording, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a trace file.

        Raises:
            TraceFileError: not a trace, damaged, or newer than this version.
        """
        return cls(load_recording(path))

    def to_chrome(self, path: str | os.PathLike[str]) -> Path:
        """Write Chrome trace event JSON; open it in ui.perfetto.dev or chrome://tracing. Raises as `save` does."""
        target = checked_path(path, "path", "the file to write")
        with whole_file(target) as partial:
            partial.write_text(to_chrome_json(self.recording), encoding="utf-8")
        return target

    def _run(self, run: object) -> int:
        """The number of a run that is in the trace."""
        number, count = whole("run", run), len(self.recording.runs)
        if not 0 <= number < count:
            raise ArgumentError(f"run {number} is not in the trace; {runs_in_words(count)}")
        return number

    def __repr__(self) -> str:
        recording = self.recording
        dropped = (f"{count:,} {table}" for table, count in recording.dropped.items() if count)
        lost = f" (dropped: {', '.join(dropped)})" if any(recording.dropped.values()) else ""
        runs = f"{len(recording.runs)} run(s)" if recording.runs else "no answer (beam search keeps none)"
        return (
            f"<genai_lab.Trace: {runs}, {len(recording.tokens['token'])} tokens, "
            f"{len(recording.stages['stage'])} stages{lost}>"
        )


def runs_in_words(count: int) -> str:
    """Which runs there are.

    >>> runs_in_words(0), runs_in_words(1), runs_in_words(3)
    ('it has no runs: no answer was recorded (beam search keeps none)', 'it has one run, 0', 'it has the runs 0 to 2')
    """
    if count == 0:
        return "it has no runs: no answer was recorded (beam search keeps none)"
    return "it has one run, 0" if count == 1 else f"it has the runs 0 to {count - 1}"
