"""Texts of single tokens for whoever reads a trace. Held by a trace in place of the model, so that weights can go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from genai_lab.config import Config
from genai_lab.errors import ModelFolderError, wrong_kind
from genai_lab.tracing import TokenText

if TYPE_CHECKING:
    from genai_lab.tokenizer import Tokenizer


class TokenTexts:
    """Token ids -> (text, is special). The tokenizer is read from the folder when it is first needed."""

    def __init__(self, config: Config) -> None:
        self._config = config

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer. Imported when it is needed: a run of token ids alone does without its memory."""
        from genai_lab.tokenizer import Tokenizer

        return Tokenizer(self._config)

    def __call__(self, ids: Sequence[int]) -> list[TokenText]:
        """Text of each id; ids in brackets for a folder without a tokenizer."""
        if not isinstance(ids, Iterable) or not all(isinstance(i, int | np.integer) for i in ids):
            raise wrong_kind("token_texts: ids", ids, "a list of token ids")
        try:
            tokenizer = self.tokenizer
        except ModelFolderError:
            return [TokenText(f"[{i}]", False) for i in ids]
        part = tokenizer.vocabulary.part_of_character
        return [
            TokenText(tokenizer.piece(i), tokenizer.is_special(i), part(i))
            if i >= 0
            else TokenText(image_text(i), True)
            for i in ids
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids in a row, as the tokenizer decodes them; ids in brackets for a folder without one."""
        try:
            return self.tokenizer.decode([i for i in ids if i >= 0])
        except ModelFolderError:
            return "".join(f"[{i}]" for i in ids)


def image_text(token: int) -> str:
    """What a negative id, which stands for an image, looks like.

    >>> image_text(-1)
    '<image 1>'
    """
    return f"<image {-token}>"
