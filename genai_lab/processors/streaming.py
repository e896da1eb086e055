"""Speech that is written down while it is heard: not here. The class and its methods exist, and say so."""

from __future__ import annotations

from typing import NoReturn

from numpy.typing import ArrayLike

from genai_lab.errors import ArgumentTypeError, StateError

TYPES = ("streaming_enc_dec_asr", "nemotron_speech")
"""Types of models that onnxruntime-genai 0.18 streams sound into."""
WHY_NOT = (
    "genai_lab is a workbench for text: mel spectrograms, voice detection and recurrent speech decoders are not in it. "
    "Use onnxruntime-genai for this model"
)


def no_streaming(model_type: str) -> StateError:
    """The error for any model, naming what it would need."""
    if model_type in TYPES:
        return StateError(f"CreateStreamingProcessor: model type {model_type!r} cannot be streamed here. {WHY_NOT}")
    return StateError(
        f"CreateStreamingProcessor: unsupported model type {model_type!r}. StreamingProcessor supports "
        f"{' and '.join(map(repr, TYPES))} in onnxruntime-genai, and none here. {WHY_NOT}"
    )


class StreamingProcessor:
    """Would turn sound into a speech model's inputs, piece by piece (og class StreamingProcessor). Making one is always
    an error that says why.

    Raises:
        StateError: always; names the model's type.
        ArgumentTypeError: not a model.
    """

    def __init__(self, model: object) -> None:
        kind = getattr(model, "type", None)
        if not isinstance(kind, str):
            raise ArgumentTypeError(
                f"StreamingProcessor: model is {type(model).__name__}; a genai_lab.Model is allowed"
            )
        raise no_streaming(kind)

    def process(self, audio_chunk: ArrayLike) -> NoReturn:
        """Not here, see the class."""
        raise StateError(WHY_NOT)

    def flush(self) -> NoReturn:
        """Not here, see the class."""
        raise StateError(WHY_NOT)

    def get_option(self, key: str) -> NoReturn:
        """Not here, see the class."""
        raise StateError(WHY_NOT)

    def set_option(self, key: str, value: str) -> NoReturn:
        """Not here, see the class."""
        raise StateError(WHY_NOT)
