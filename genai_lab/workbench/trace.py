"""The trace of the notebook: analysis' Trace, shown by the linked widgets."""

from __future__ import annotations

from genai_lab import analysis


class Trace(analysis.Trace):
    """Everything that was recorded; displays as linked widgets."""
