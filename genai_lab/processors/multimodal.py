"""A prompt, with or without images and sounds -> the tensors that a model for both is given. Text only, here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError
from genai_lab.types import NamedTensors, Tensor

WHY_NOT = (
    "genai_lab is a workbench for text: it does not decode images or sounds. Leave {what} out for text alone, or make "
    "the tensors elsewhere, with the model's own processor, and give them by generator.set_inputs(named_tensors)"
)


class TextSide(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> NDArray[np.int32]: ...
    def encode_batch(self, texts: Sequence[str]) -> Tensor: ...
    def decode(self, ids: Any) -> str: ...
    def create_stream(self) -> Any: ...


class MultiModalProcessor:
    """Prepares a prompt for a model that also takes images or sounds (og class MultiModalProcessor);
    `Model.create_multimodal_processor` makes it. Text is prepared; images and sounds are refused, with the reason.

    >>> processor = model.create_multimodal_processor()               # doctest: +SKIP
    >>> generator.set_inputs(processor("Hello"))                      # doctest: +SKIP
    """

    def __init__(self, tokenizer: TextSide) -> None:
        if not hasattr(tokenizer, "encode_batch"):
            raise ArgumentTypeError(
                f"MultiModalProcessor: no constructor is defined for {type(tokenizer).__name__}; call "
                "model.create_multimodal_processor()"
            )
        self._tokenizer = tokenizer

    def __call__(self, prompt: str | Sequence[str] | None = None, **kwargs: Any) -> NamedTensors:
        """The inputs of a prompt, or of several: "input_ids", int32 [prompts, longest].

        Args:
            prompt: text, or a list of texts.
            kwargs: images, audios: None, or what `Images.open` and `Audios.open` gave, which is refused.

        Raises:
            StateError: there are images or sounds.
            ArgumentError, ArgumentTypeError: no text, or an unknown argument.
        """
        unknown = set(kwargs) - {"images", "audios"}
        if unknown:
            raise ArgumentTypeError(f"{min(unknown)!r} is no argument; allowed are prompt, images and audios")
        given = [name for name, value in kwargs.items() if value is not None]
        if given:
            raise StateError(f"processor(..., {given[0]}=...): " + WHY_NOT.format(what=given[0]))
        if prompt is None:
            raise ArgumentError("prompt is None, and there is nothing else; text, or a list of texts, is allowed")
        inputs = NamedTensors()
        if isinstance(prompt, str):
            inputs["input_ids"] = self._tokenizer.encode(prompt)[None]
        else:
            inputs["input_ids"] = self._tokenizer.encode_batch(prompt)
        return inputs

    def create_stream(self) -> Any:
        """A stream that turns token ids into text one by one, a `TokenizerStream`."""
        return self._tokenizer.create_stream()

    def decode(self, tokens: ArrayLike) -> str:
        """The text of token ids, [n]."""
        return self._tokenizer.decode(tokens)


def not_multimodal(model_type: str) -> StateError:
    """The error for a model of text alone."""
    return StateError(
        f"MultiModalProcessor cannot be created. {model_type} is not a registered multi-modal model type. Use "
        "Tokenizer(model) for text"
    )
