"""The last run of a running decoder: told to stop while it goes on, and what went in and came out, for a caller.

A decoder inherits this and keeps the arrays of its last run; they are handed out as copies, by the graph's names. What
they mean, and how the next run follows from them, is the decoder's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, StateError
from genai_lab.models.bfloat16 import BITS, from_bits
from genai_lab.models.extras import RunExtras, unknown_input, unknown_output
from genai_lab.models.session import Arrays, Graph, TensorInfo


class Stoppable:
    """A decoder whose runs take the run options of `extras`."""

    extras: RunExtras

    @property
    def terminated(self) -> bool:
        """Whether the reading of a prompt in progress is told to stop. (A decode of a decoder-only model is over in
        milliseconds, and is stopped by the runtime option terminate_session only: looking at run options costs it a
        percent or more.)"""
        return bool(self.extras.options.terminate)

    @terminated.setter
    def terminated(self, value: bool) -> None:
        self.extras.options.terminate = value


class LastRun(Stoppable):
    """A decoder whose runs are fed arrays and give new ones."""

    graph: Graph
    _feeds: Arrays
    _outputs: Arrays

    def output(self, name: str, _length: int | None = None) -> NDArray[Any]:
        """A copy of one output of the last run, as the graph gave it."""
        if not self._outputs:
            raise StateError(unknown_output(name, ()))
        if name not in self._outputs:
            raise ArgumentError(unknown_output(name, list(self._outputs)))
        return np.array(in_numbers(self._outputs[name], self.graph.outputs[name]))

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last run."""
        if name not in self._feeds:
            raise ArgumentError(unknown_input(name, self._feeds))
        return np.array(in_numbers(self._feeds[name], self.graph.inputs[name]))


def in_numbers(value: NDArray[Any], info: TensorInfo) -> NDArray[Any]:
    """An array of a run; bfloat16 as float32."""
    return from_bits(value) if info.is_bfloat16 and value.dtype == BITS else value
