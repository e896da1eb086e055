"""Several sequences of a model that sees or hears, whose first prompts come with images or sounds of all of them.

As in onnxruntime-genai the features of all rows go to the embedding graph together, and the rows' prompts are read in
one run. Later tokens have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_lab.errors import StateError
from genai_lab.models.batch import Reading
from genai_lab.models.embedding import Embedded
from genai_lab.models.encoders import Staged
from genai_lab.models.extras import RunExtras
from genai_lab.models.growing import GrowingState
from genai_lab.models.media_cuts import QWEN_VL
from genai_lab.models.model import Model
from genai_lab.models.places import Encoding
from genai_lab.models.seeing import look
from genai_lab.models.session import Arrays


class SeeingRows(GrowingState):
    """The past of `rows` sequences, the first prompts of which may have images or sounds.

    Args:
        model: a loaded model with encoders.
        rows: sequences.
        capacity: tokens per row, prompt included.
    """

    graph: Embedded

    def __init__(self, model: Model, rows: int, capacity: int) -> None:
        self._staged = Staged(model.encoders)
        self._waiting: Arrays = {}  # features of the prompts that are read next
        self._seen: Arrays = {}  # of the run that is going on, or the last one
        super().__init__(model, rows, capacity, RunExtras(model.graph, model.config, staged=self._staged))

    def encode(self, _tokens: NDArray[np.int32], _start: int) -> Sequence[Encoding]:
        """Run the graphs for images and sounds over what was set.

        Raises:
            StateError: the tensors do not go with one another, or the model's places have three numbers.
        """
        self._waiting, runs = look(self.graph, self._staged.take(), self.extras)
        if self._waiting and self.model.config.model.type in QWEN_VL:
            raise StateError(
                f"images in a batch: the places of {self.model.type}'s tokens in pictures are known for one sequence "
                "only; set batch_size=1, one generator for each prompt"
            )
        return runs

    def forget(self, length: int) -> None:
        """What `encode` made belongs to no text."""
        self._waiting = {}

    def read_rows(self, prompts: Sequence[NDArray[np.int32]], chunk_size: int | None) -> list[Reading]:
        """Read every row's prompt, all in one run.

        Raises:
            StateError: there are features, and the rows cannot be read in one run.
        """
        self._seen, self._waiting = self._waiting, {}
        apart = len({prompt.size for prompt in prompts}) > 1 and (self.fixed_names or self._counts_from_front())
        if self._seen and apart:
            raise StateError(
                "images in a batch: the attention of this model cannot tell padding in one run, so its prompts must "
                "have one length; make one generator for each prompt"
            )
        return super().read_rows(prompts, chunk_size)

    def decode(self, tokens: NDArray[np.int32]) -> None:
        """Read one more token in every row, `tokens` [rows]."""
        self._seen = {}
        super().decode(tokens)

    def input(self, name: str) -> NDArray[Any]:
        """A copy of one input of the last run, of the embedding graph or the decoder."""
        if name in self.graph.encoders and self._feeds:
            return np.array(self._seen.get(name, self.graph.no_features(name)))
        return super().input(name)

    def _inputs_of(self, ids: NDArray[np.int32], mask: NDArray[np.bool_]) -> Arrays:
        return super()._inputs_of(ids, mask) | self._seen
