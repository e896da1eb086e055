"""Adapters: small sets of weights that a run uses in place of a graph's own, such as LoRA; several for one model.

Files are onnxruntime's (`AdapterFormat`, extension .onnx_adapter). The graph must have the adapted weights as inputs
with defaults.
"""

from __future__ import annotations

import os
from pathlib import Path

import onnxruntime as ort

from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError, StateError, wrong_kind
from genai_lab.lifecycle import Closing, born, died
from genai_lab.models.model import Model
from genai_lab.models.session import Weights


class Adapters(Closing):
    """The adapters loaded for one model, by name (og class Adapters).

    >>> adapters = Adapters(model)                                    # doctest: +SKIP
    >>> adapters.load("pirate.onnx_adapter", "pirate")                # doctest: +SKIP
    >>> generator.set_active_adapter(adapters, "pirate")              # doctest: +SKIP
    """

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise ArgumentTypeError(f"Adapters() takes a genai_lab.Model, got {type(model).__name__}")
        self.model = model
        self._loaded: dict[str, Weights] = {}
        self._uses: dict[str, int] = {}  # generators that run with it
        self._bytes: dict[str, int] = {}  # of their files
        self._closed = False
        born(self, "Adapters", Adapters.held_bytes)

    def load(self, path: str | os.PathLike[str], name: str) -> None:
        """Read an adapter file under a name of your choice.

        Raises:
            ArgumentError: the name is taken.
            ModelFolderError: no such file, or not an adapter.
        """
        if not isinstance(name, str) or not isinstance(path, str | os.PathLike):
            raise ArgumentTypeError(
                f"Adapters.load: got {type(path).__name__} and {type(name).__name__}, a path and a name are allowed"
            )
        self._live()
        if name in self._loaded:
            raise ArgumentError(f"Adapters.load: the name {name!r} is taken; unload it first, or choose another name")
        if os.path.isdir(path):
            raise ModelFolderError(
                f"Adapters.load: {str(path)!r} is a folder; give the path of an .onnx_adapter file in it"
            )
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            raise ModelFolderError(
                f"Adapters.load: {str(path)!r} does not exist; give the path of an .onnx_adapter file"
            )
        try:
            weights = ort.AdapterFormat.read_adapter(os.fspath(path)).get_parameters()
        except Exception as error:  # onnxruntime's exception classes have no narrower common base
            raise ModelFolderError(
                f"Adapters.load: onnxruntime cannot read {str(path)!r} as an adapter; export it with "
                "onnxruntime.AdapterFormat"
            ) from error
        self._loaded[name], self._bytes[name] = weights, Path(path).stat().st_size

    def unload(self, name: str) -> None:
        """Forget an adapter.

        Raises:
            ArgumentError: there is none of that name.
            StateError: a generator runs with it.
        """
        self.get(name)
        if self._uses.get(name):
            raise StateError(
                f"Adapters.unload({name!r}): {self._uses[name]} generators still run with it; close them first"
            )
        del self._loaded[name], self._bytes[name]

    def get(self, name: str) -> Weights:
        """The adapter of that name."""
        self._live()
        if not isinstance(name, str):
            raise wrong_kind("Adapters: name", name, "a text, the name that it was loaded under")
        if name not in self._loaded:
            known = ", ".join(map(repr, self._loaded)) or "none"
            raise ArgumentError(f"Adapter not found: {name}. Loaded are: {known}; call load(path, {name!r}) first")
        return self._loaded[name]

    def _use(self, name: str) -> None:
        """A generator begins to run with it."""
        self._uses[name] = self._uses.get(name, 0) + 1

    def _give_back(self, name: str) -> None:
        """A generator that ran with it is gone."""
        self._uses[name] -= 1

    def held_bytes(self) -> int:
        """Bytes of the loaded adapters' files (ours)."""
        return sum(self._bytes.values())

    def close(self) -> None:
        """Forget every adapter; closing twice is allowed.

        Raises:
            StateError: a generator runs with one of them.
        """
        used = [name for name, count in self._uses.items() if count]
        if used:
            raise StateError(f"Adapters.close: generators still run with {', '.join(used)}; close them first")
        self._loaded.clear()
        self._bytes.clear()
        self._closed = True
        died(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else ", ".join(self._loaded) or "none loaded"
        return f"<genai_lab.Adapters: {state}>"

    def _live(self) -> None:
        if self._closed:
            raise StateError("these Adapters are closed; make new ones: genai_lab.Adapters(model)")
