"""What a caller adds to a generator's runs: inputs of the graph that follow from no token, run options, adapters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from genai_lab.errors import ArgumentError, ArgumentTypeError, StateError
from genai_lab.models.bfloat16 import to_bits
from genai_lab.models.encoders import Staged
from genai_lab.models.graph import fixed_names, past_names, token_inputs
from genai_lab.models.session import Graph, Weights

PRESET = ("num_logits_to_keep", "onnx::Neg_67")
"""Inputs that exporters leave in a graph and that mean "logits of every position" when they are 0."""


class RunExtras:
    """The extra inputs and the run options of one generator.

    Args:
        session: the graph.
        config: its config; `run_options` of the decoder section are taken over.
        managed: inputs that come from elsewhere in the model, beside those that follow from the tokens and the cache.
        preset: inputs with a value of their own that other graphs of the model have.
        staged: takes what is an image's or a sound's; None: these runs see and hear nothing.
    """

    def __init__(
        self,
        session: Graph,
        config: Any,
        managed: Collection[str] = (),
        preset: Collection[str] = (),
        staged: Staged | None = None,
    ) -> None:
        self.staged = staged
        self._session = session
        self._managed = {
            *token_inputs(config).values(),
            *past_names(session, config),
            *fixed_names(session, config),
            *managed,
        }
        self._of_media = {
            name
            for section in (config.model.vision, config.model.speech)
            for name in (section or {}).get("inputs", {}).values()
        }
        self.inputs: dict[str, NDArray[Any]] = {}
        self.options = ort.RunOptions()
        self.has_options = False  # a run without them is a little cheaper
        self.terminated = False  # what the option terminate_session says
        self.weights: Weights = {}  # of the active adapters, for inputs that have a value of their own
        self._preset = {*session.preset, *preset}
        self.version = 0  # grows when an input changes
        self.beside: RunExtras | None = None  # of a draft's runs, which take the inputs and options of these, too
        for key, value in config.model.decoder.run_options.items():
            self.set_option(key, value)
        for name in PRESET:
            if name in session.inputs:
                self.set_input(name, np.zeros(session.rank(name) * (1,), np.int64))

    def follows(self, name: str) -> bool:
        """Whether the graph's input `name` follows from the tokens, or is the cache, so that nobody may give it."""
        return name in self._managed

    def set_input(self, name: str, value: NDArray[Any]) -> None:
        """Give the graph's input `name` in every run from now on. A name that the graph does not have is kept and does
        nothing, as in onnxruntime-genai.

        Raises:
            ArgumentTypeError: not an array, or not of the type that the graph wants.
            ArgumentError: the input follows from the tokens, or is the cache.
        """
        if not isinstance(value, np.ndarray):
            raise ArgumentTypeError(
                f"set_model_input({name!r}, ...): got {type(value).__name__}, a numpy array is allowed; wrap it: "
                "np.asarray(...)"
            )
        if self.staged is not None and self.staged.graph_name(name) is not None:
            self.staged.set(name, value)
            if name not in self._session.inputs:
                return
        elif name in self._of_media and name not in self._session.inputs:
            raise StateError(
                f"set_model_input({name!r}, ...): it belongs to the graph for images and sounds, which runs before an "
                "embedding graph and a decoder, with no beams and no speculation; set num_beams=1, or give text alone"
            )
        if name in self._managed:
            raise ArgumentError(
                f"set_model_input({name!r}, ...): this input follows from the tokens; call append_tokens(...). Inputs "
                "that nothing else gives are allowed"
            )
        info = self._session.inputs.get(name)
        if info is not None and info.is_bfloat16 and value.dtype.kind == "f":
            value = to_bits(value)
        if info is not None and not np.can_cast(value.dtype, info.dtype, "same_kind"):
            raise ArgumentTypeError(
                f"set_model_input({name!r}, ...): got {value.dtype}, the graph wants {info.dtype}; convert it: "
                f"array.astype(np.{info.dtype})"
            )
        if self.beside is not None:
            self.beside.set_input(name, value)
        self.inputs[name] = np.ascontiguousarray(value, value.dtype if info is None else info.dtype)
        self.version += 1

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Around setting several: when one of them fails, no image or sound of theirs waits for a prompt."""
        before = None if self.staged is None else dict(self.staged.given)
        try:
            yield
        except Exception:
            if self.staged is not None and before is not None:
                self.staged.given = before
            raise

    def set_option(self, key: str, value: str) -> None:
        """Set a run option: "terminate_session" "1" stops a run in progress and refuses others until it is "0"; other
        keys are onnxruntime's run config entries."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentTypeError(
                f"set_runtime_option: got {type(key).__name__} and {type(value).__name__}, two strings are allowed"
            )
        if key == "enable_profiling" and value != "0":
            raise StateError(
                'set_runtime_option("enable_profiling", ...): onnxruntime for Python cannot profile single '
                "runs. Record the generation instead: with genai_lab.record() as trace: ..., then trace.stages()"
            )
        if self.beside is not None:
            self.beside.set_option(key, value)
        if key != "terminate_session":
            try:
                self.options.add_run_config_entry(key, value)
            except RuntimeError as error:
                raise ArgumentError(
                    f"set_runtime_option({key!r:.60}, {value!r:.60}): onnxruntime refuses it ({error}); a key of 1 to "
                    "1024 characters, and a value of at most 8192, are allowed"
                ) from error
            self.has_options = True
        elif value in ("0", "1"):
            self.options.terminate = self.terminated = value == "1"
            self.has_options = True
        else:
            raise ArgumentError(f'set_runtime_option("terminate_session", {value!r}): "0" and "1" are allowed')

    def add_adapter(self, weights: Weights) -> None:
        """Run with an adapter's weights from now on.

        (Not by onnxruntime's run options: they want every weight in every graph that is run, and do nothing in a run
        with a binding.)

        Raises:
            ArgumentError: the model has no input for one of them.
        """
        unknown = [name for name in weights if name not in self._preset and name not in self._session.inputs]
        if unknown:
            known = ", ".join(sorted(self._preset)[:4]) or "none"
            raise ArgumentError(
                f"Invalid input name: {unknown[0]}. The adapter has weights for it, and this model has no such input; "
                f"inputs that adapters may set here: {known}. Use an adapter that was exported for this model"
            )
        self.weights = self.weights | weights
        self.version += 1

    def check_complete(self) -> None:
        """Raises StateError when the graph wants an input that nothing gives."""
        missing = sorted(set(self._session.inputs) - self._managed - set(self.inputs) - set(self.weights))
        if missing:
            raise StateError(
                f"Missing Input: {missing[0]}. {self._session.owner(missing[0])} wants it and nothing gave it; "
                f"set it before you append tokens: generator.set_model_input({missing[0]!r}, array)"
            )

    def check_wanted(self) -> None:
        """Raises StateError when an input was given that neither the graph nor the draft's has. Without a draft nothing
        is wrong with it, as in onnxruntime-genai."""
        if self.beside is None:
            return
        known = {*self._session.inputs, *self.beside._session.inputs}
        unwanted = next((name for name in self.inputs if name not in known), None)
        if unwanted is not None:
            raise StateError(
                f"set_model_input: the input {unwanted!r} was not found in the target or draft model; "
                "make a new generator without it"
            )

    def bind(self, binding: Any) -> None:
        """Give a binding what every run of it takes: the extra inputs, and the adapters' weights."""
        self.check_complete()
        for name, value in self.used.items():
            binding.bind_input(name, "cpu", 0, value.dtype.type, list(value.shape), value.ctypes.data)
        for name, weights in self.weights.items():
            binding.bind_ortvalue_input(name, weights)

    @property
    def used(self) -> dict[str, NDArray[Any]]:
        """The extra inputs that the graph has."""
        return {name: value for name, value in self.inputs.items() if name in self._session.inputs}


def unknown_input(name: str, known: dict[str, Any]) -> str:
    """Words for an input that the last run did not have."""
    if not known:
        return f"Generator input {name!r} was not found: the model has not run yet; append tokens first"
    return f"Generator input {name!r} was not found: the last run's are {', '.join(list(known)[:8])} ..."


def unknown_output(name: str, known: Sequence[str]) -> str:
    """Words for an output that the last run did not have."""
    if not known:
        return f"Generator output {name!r} was not found: the model has not run yet; append tokens first"
    return f"Generator output {name!r} was not found: the last run's are {', '.join(known[:8])} ..."
