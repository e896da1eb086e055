"""Pictures for paper: matplotlib figures made from the recorded frames. The widgets' visual grammar: a request keeps
its hue, states have shapes, time has no owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from genai_lab.analysis.engine_frames import block_frame, roles, step_frame
from genai_lab.analysis.figures import checked_width, handed_over
from genai_lab.analysis.speculation_plot import draw_speculation
from genai_lab.errors import ArgumentError
from genai_lab.kinds import whole
from genai_lab.tracing import Recording

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OWNERS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#1B1F24")  # Okabe-Ito, no grey
INK, QUIET, LINE = "#1B1F24", "#626C79", "#DFE3E8"
COLUMNS = 24  # blocks in a row of the pool


def owner_colour(request: int) -> str:
    """The request's hue; more than eight reuse them in order, so their numbers are printed too."""
    return OWNERS[request % len(OWNERS)]


class Plots:
    """Figures of one recording: `trace.plot.timeline()`, `trace.plot.pool()`, `trace.plot.speculation()`.

    Each is a matplotlib Figure: shown where it is the last line of a cell, written by `figure.savefig(path)`. pyplot
    does not keep it, so `plt.show()` shows nothing.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def timeline(self, *, width: float = 10.0) -> Figure:
        """Requests by steps: who waited, read its prompt, decoded or was preempted; the tokens of each step beneath.

        Args:
            width: of the figure, in inches, 4 to 100.

        Raises:
            ArgumentError, ArgumentTypeError: no engine ran while this was recorded, or a width that is not allowed.
        """
        import matplotlib.pyplot as plt

        width, steps = checked_width(width), self._steps()
        requests = sorted({int(r) for r in self._recording.tables["decisions"]["request"]})
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(width, 1.6 + 0.34 * len(requests)), sharex=True, height_ratios=[max(2, len(requests)), 2]
        )
        for line, request in enumerate(requests):
            self._draw_request(above, line, request)
        above.set_yticks(range(len(requests)), [f"request {request}" for request in requests])
        above.invert_yaxis()
        above.set_title("Who is served in which step?", loc="left", fontweight="bold")
        self._draw_budget(below, requests)
        below.set_xlabel("step")
        below.set_ylabel("tokens")
        below.axhline(int(steps["budget"].iloc[0]), color=INK, linewidth=0.8, linestyle=":")
        for axes in (above, below):
            _quiet(axes)
        above.legend(handles=_legend(), loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)
        return handed_over(figure)

    def pool(self, step: int | None = None, *, width: float = 10.0) -> Figure:
        """The block pool after a step: each block in its owner's hue, as full as it is.

        Args:
            step: as `trace.state_at` takes it; None: the fullest one.
            width: of the figure, in inches, 4 to 100.

        Raises:
            ArgumentError, ArgumentTypeError: no engine ran, that step was not recorded, or a width that is not allowed.
        """
        import matplotlib.pyplot as plt
        from matplotlib.patches import Rectangle

        width, steps = checked_width(width), self._steps()
        fullest = int(steps["step"].iloc[int(steps["blocks_used"].argmax())])
        chosen = fullest if step is None else whole("step", step)
        blocks = block_frame(self._recording, chosen)
        counts = steps[steps["step"] == chosen].iloc[0]
        size = int(counts["block_size"])
        total = int(counts["blocks_used"] + counts["blocks_cached"] + counts["blocks_free"])
        lines = -(-total // COLUMNS)
        figure, axes = plt.subplots(figsize=(width, 1.0 + width / COLUMNS * lines))
        for block in range(total):
            axes.add_patch(Rectangle(_place(block), 0.86, 0.86, fill=False, edgecolor=LINE, linewidth=0.8))
        for row in blocks.drop_duplicates("block").itertuples():
            _draw_block(axes, int(row.block), int(row.request), int(row.filled) / size, int(row.holders))
        axes.set(xlim=(-0.1, COLUMNS), ylim=(lines, -0.1), aspect="equal", xticks=[], yticks=[])
        used, kept = int(counts["blocks_used"]), int(counts["blocks_cached"])
        axes.set_title(
            f"Where does the memory of each answer live? "
            f"Step {chosen}: {used} of {total} blocks in use, {kept} free but kept",
            loc="left",
            fontweight="bold",
            fontsize=10,
        )
        axes.set_frame_on(False)
        return handed_over(figure)

    def speculation(self, run: int | None = None, *, width: float = 10.0) -> Figure:
        """Rounds of speculation side by side: accepted tokens, the one that the target added, and what was proposed in
        vain.

        Args:
            run: of one answer; None: of all.
            width: of the figure, in inches, 4 to 100.

        Raises:
            ArgumentError, ArgumentTypeError: nobody speculated while this was recorded, or a width that is not allowed.
        """
        return draw_speculation(self._recording, None if run is None else whole("run", run), checked_width(width))

    def _steps(self) -> Any:
        steps = step_frame(self._recording)
        if steps.empty:
            raise ArgumentError(
                "this trace has no engine steps; record an Engine: with genai_lab.record() as trace: ..."
            )
        return steps

    def _of(self, request: int) -> Mapping[str, np.ndarray]:
        decisions = self._recording.tables["decisions"]
        mine = decisions["request"] == request
        return {
            "step": decisions["step"][mine],
            "role": roles(self._recording, mine),
            "tokens": decisions["num_tokens"][mine],
        }

    def _draw_request(self, axes: Axes, line: int, request: int) -> None:
        facts, colour = self._of(request), owner_colour(request)
        for role, height in (("prefill", 0.72), ("decode", 0.26)):
            at = facts["step"][facts["role"] == role]
            axes.bar(at, height, width=0.9, bottom=line - height / 2, color=colour, edgecolor=INK, linewidth=0.3)
        waits = facts["step"][facts["role"] == "wait"]
        axes.scatter(waits, np.full(waits.size, line), marker="_", s=14, color=QUIET, linewidths=1.0)
        lost = facts["step"][facts["role"] == "preempt"]
        axes.scatter(lost, np.full(lost.size, line), marker="x", s=34, color=INK, zorder=3)

    def _draw_budget(self, axes: Axes, requests: list[int]) -> None:
        steps = self._recording.tables["steps"]["step"]
        place = {int(step): i for i, step in enumerate(steps)}
        bottom = np.zeros(steps.size)
        for request in requests:
            facts, tokens = self._of(request), np.zeros(steps.size)
            for step, count in zip(facts["step"], facts["tokens"], strict=True):
                tokens[place[int(step)]] = count
            axes.bar(steps, tokens, width=0.9, bottom=bottom, color=owner_colour(request))
            bottom += tokens


def _place(block: int) -> tuple[float, float]:
    return (block % COLUMNS, block // COLUMNS)


def _draw_block(axes: Axes, block: int, request: int, filled: float, holders: int) -> None:
    from matplotlib.patches import Rectangle

    x, y = _place(block)
    axes.add_patch(
        Rectangle((x, y + 0.86 * (1 - filled)), 0.86, 0.86 * filled, color=owner_colour(request), linewidth=0)
    )
    axes.add_patch(Rectangle((x, y), 0.86, 0.86, fill=False, edgecolor=INK, linewidth=2.0 if holders > 1 else 0.6))
    label = f"\u00d7{holders}" if holders > 1 else str(request)
    axes.text(x + 0.43, y + 0.43, label, ha="center", va="center", fontsize=7, color=INK)


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(facecolor=QUIET, edgecolor=INK, label="reads (high)"),
        Patch(facecolor=QUIET, edgecolor=INK, label="decodes (low)"),
        Line2D([], [], marker="_", linestyle="", color=QUIET, label="waits"),
        Line2D([], [], marker="x", linestyle="", color=INK, label="preempted"),
    ]


def _quiet(axes: Axes) -> None:
    """Left and bottom lines only."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
    axes.tick_params(colors=QUIET, labelsize=8)
