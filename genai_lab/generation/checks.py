"""What a generator refuses, and in which words. Receives a search and arguments; changes nothing.

The words that onnxruntime-genai's own tests look for are kept: "no prior state", "already at max_length", "Terminated
state".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from genai_lab.config import SearchOptions
from genai_lab.decoding import Hooks
from genai_lab.errors import ArgumentError, ArgumentTypeError, GenaiLabError, StateError
from genai_lab.generation.params import GeneratorParams
from genai_lab.models import Model, RunExtras
from genai_lab.types import FinishReason

TERMINATED = (
    'Session in Terminated state: the runtime option terminate_session is "1". Go on after '
    'generator.set_runtime_option("terminate_session", "0")'
)


class Checked(Protocol):
    """What is looked at."""

    options: SearchOptions

    @property
    def token_count(self) -> int: ...
    @property
    def finish(self) -> FinishReason | None: ...
    @property
    def extras(self) -> RunExtras: ...


@contextmanager
def running(search: Checked) -> Iterator[None]:
    """Around whatever may run the model: what onnxruntime raises there is a StateError, and so is a run that was told
    to stop.

    Raises:
        StateError: the generator is told to stop, or was while the model ran; or onnxruntime cannot run the graph.
    """
    if search.extras.terminated:
        raise StateError(TERMINATED)
    try:
        yield
    except Exception as error:
        if search.extras.terminated and not isinstance(error, GenaiLabError):
            raise StateError(TERMINATED) from error
        if _is_onnxruntimes(error):
            raise StateError(f"onnxruntime cannot run the model: {error}") from error
        raise


def _is_onnxruntimes(error: Exception) -> bool:
    """Its own exceptions derive from Exception alone; what a run with a binding raises is a bare RuntimeError."""
    own = type(error).__module__.startswith("onnxruntime")
    return own or (type(error) is RuntimeError and str(error).startswith("Error in execution"))


def check_not_empty(search: Checked, call: str) -> None:
    """Raises StateError when there are no tokens to go on from."""
    if search.token_count == 0:
        raise StateError(
            f"{call} called with no prior state: nothing was appended yet; call "
            "append_tokens(tokenizer.encode(prompt)) first"
        )


def check_goes_on(search: Checked) -> None:
    """Raises StateError when there is no next token."""
    if search.token_count >= search.options.max_length:
        raise StateError(
            f"generate_next_token called with sequence length already at max_length ({search.options.max_length}); "
            "set a larger max_length before you begin, or rewind"
        )
    if search.finish is not None:
        raise StateError(
            f"generate_next_token: the sequence is done ({search.finish.name}); append tokens or rewind to go on"
        )


def check_for_beams(hooks: Hooks) -> None:
    """Beam search selects by itself and ends by itself."""
    given = "a sampler" if hooks.sampler is not None else "a stopping criterion" if hooks.stopping else None
    if given is not None:
        raise ArgumentError(f"{given} of your own does not go with num_beams above 1; leave it out, or set num_beams=1")


def check_arguments(model: object, params: object) -> None:
    """Raises what is wrong with a Generator's arguments."""
    if not isinstance(model, Model) or not isinstance(params, GeneratorParams):
        raise ArgumentTypeError(
            f"Generator() takes a Model and GeneratorParams, got {type(model).__name__} and {type(params).__name__}"
        )
    params.options.check_together()
