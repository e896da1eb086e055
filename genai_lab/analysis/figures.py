"""Figures of matplotlib, made and handed over in one way.

Receives a width as a person gave it. Returns figures that are shown once where they are the last line of a notebook's
cell: pyplot, which would show them a second time, lets them go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genai_lab.errors import ArgumentError
from genai_lab.kinds import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NARROWEST, WIDEST = 4, 100  # inches; narrower ones have no room for the words beside the axes


def checked_width(width: object) -> float:
    """A figure's width in inches.

    Raises:
        ArgumentTypeError: no number.
        ArgumentError: too narrow for the words, too wide for a picture, or nan.
    """
    allowed = f"inches, a number from {NARROWEST} to {WIDEST}"
    inches = number("width", width, allowed)
    if not NARROWEST <= inches <= WIDEST:
        raise ArgumentError(f"width is {inches:g}; allowed are {allowed}")
    return inches


def handed_over(figure: Figure) -> Figure:
    """The finished figure, laid out, which pyplot no longer keeps; it can be shown and saved as before."""
    import matplotlib.pyplot as plt

    figure.tight_layout()
    plt.close(figure)
    return figure
