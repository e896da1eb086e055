"""A figure of the rounds of speculation: how many tokens each run of the target gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from genai_lab.analysis.figures import handed_over
from genai_lab.analysis.speculation_frames import round_frame
from genai_lab.errors import ArgumentError
from genai_lab.tracing import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCEPTED, OWN, VAIN = "#009E73", "#F0E442", "#FFFFFF"  # Okabe-Ito: green, yellow; what came to nothing is empty
INK, QUIET, LINE = "#1B1F24", "#626C79", "#DFE3E8"
PROPOSED_BY = {"draft": "a smaller model", "ngram": "the text itself", "mtp": "a head on the model's hidden states"}


def draw_speculation(recording: Recording, run: int | None, width: float) -> Figure:
    """One bar per round: accepted tokens, on them the target's own one, behind both what was proposed in vain.

    Raises:
        ArgumentError: there are no rounds.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    rounds = round_frame(recording)
    if run is not None:
        rounds = rounds[rounds["run"] == run]
    if rounds.empty:
        where = "this trace" if run is None else f"run {run} of this trace"
        raise ArgumentError(
            f"{where} has no rounds of speculation; record a generator whose model has a draft "
            '(genai_lab.load("tiny-speculative")) or with set_speculative_options(ngram_size=3)'
        )
    figure, axes = plt.subplots(figsize=(width, 3.2))
    at = np.arange(1, len(rounds) + 1)
    accepted, proposed = rounds["accepted"].to_numpy(int), rounds["proposed"].to_numpy(int)
    edge: dict[str, Any] = {"width": 0.8, "edgecolor": INK, "linewidth": 0.5 if len(rounds) <= 80 else 0.0}
    axes.bar(at, proposed, **edge | {"color": VAIN, "edgecolor": QUIET, "linestyle": ":"}, label="proposed in vain")
    axes.bar(at, accepted, **edge, color=ACCEPTED, label="proposed and accepted")
    axes.bar(at, 1, bottom=accepted, **edge, color=OWN, label="added by the model: correction or bonus")
    mean = float((accepted + 1).mean())
    axes.axhline(mean, color=INK, linewidth=0.8, linestyle="--")
    axes.set_title("How many tokens did each run of the model give?", loc="left", fontweight="bold", fontsize=10)
    by = " and ".join(PROPOSED_BY[name] for name in dict.fromkeys(rounds["by"]))
    axes.set_xlabel(
        f"round; tokens proposed by {by}. On average {mean:.2f} tokens a round (dashed), where plain decoding gives 1",
        color=QUIET,
        fontsize=8,
    )
    axes.set_ylabel("tokens", color=QUIET, fontsize=8)
    axes.set_xlim(0.4, len(rounds) + 0.6)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
    axes.tick_params(colors=QUIET, labelsize=8)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)
    return handed_over(figure)
