"""A model folder's genai_config.json, read, and what a person changes about it before the model is loaded.

Receives a folder and changes (providers, overlays, model bytes), gives checked values. It loads no model; whether a
provider is there is asked when the model is loaded (`providers.check_providers`).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from genai_lab.config.json_values import Place, parse_object, read_bounded, shorten
from genai_lab.config.model_config import (
    EngineConfig,
    ModelConfig,
    SpeculativeConfig,
    read_engine,
    read_model,
    read_speculative,
)
from genai_lab.config.model_folder import FILE_NAME, config_file
from genai_lab.config.other_sections import Kept, read_runtime_profiles
from genai_lab.config.package import SHARED, is_package, shared_asset, variant_folder
from genai_lab.config.providers import normalize_provider
from genai_lab.config.search import OPTION_NAMES, SearchOptions, read_search_options
from genai_lab.errors import ArgumentError, ArgumentTypeError, ModelFolderError
from genai_lab.paths import checked_path

MAX_CONFIG_BYTES: Final = 8 * 2**20

_SECTIONS: Final = ("model", "search", "speculative", "engine", "runtime_profiles")
_MODEL_KEYS: Final = frozenset(item.name for item in fields(ModelConfig)) | {"eos_token_id"}


class Config:
    """The configuration of a model folder (og class Config).

    Args:
        path: the folder that holds genai_config.json, or a model package all of whose variants are for one provider.

    Raises:
        ArgumentError, ArgumentTypeError: not a path.
        ModelFolderError: there is no such file (says what is there instead), or a key or value in it is wrong; the
            message names it.

    Example:
        >>> config = Config("path/to/model")
        >>> config.overlay('{"search": {"temperature": 0.7}}')
        >>> config.search_options().temperature
        0.7
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = checked_path(path, "path", "a model folder")
        self._package = folder if is_package(folder) else None
        self.folder = variant_folder(folder, "") if self._package is not None else folder
        file = config_file(self.folder)
        self._model_data: dict[str, bytes] = {}
        self._take(parse_object(read_bounded(file, MAX_CONFIG_BYTES), str(file)), str(file))
        self._providers = [provider.name for provider in self.model.decoder.session_options.provider_options]

    @classmethod
    def from_package_ep(cls, config_path: str | os.PathLike[str], ep: str) -> Config:
        """The config of a model package's variant for an execution provider (see `config.package`).

        Args:
            config_path: the package's folder, which holds manifest.json.
            ep: the provider, in any of its spellings; "" when all variants are for the same one.

        Raises:
            ModelFolderError: no package, or not exactly one variant for that provider.
        """
        package = checked_path(config_path, "config_path", "a model package")
        config = cls(variant_folder(package, _text(ep, "ep")))
        config._package = package
        if ep:
            config.append_provider(ep)
        return config

    def _take(self, raw: dict[str, Any], source: str) -> None:
        """Read everything, then keep it: an error leaves the config as it was."""
        top = Place(source)
        for name, value in raw.items():
            _check_top_key(name, value, top)
        model = read_model(raw.get("model", {}), top.key("model"))
        search = read_search_options(raw.get("search", {}), top.key("search"), model.context_length)
        speculative = read_speculative(raw.get("speculative", {}), top.key("speculative"))
        engine = read_engine(raw.get("engine", {}), top.key("engine"))
        profiles = read_runtime_profiles(raw.get("runtime_profiles", []), top.key("runtime_profiles"))
        self._raw, self.model, self._search = raw, model, search
        self.speculative: SpeculativeConfig = speculative
        self.engine: EngineConfig = engine
        self.runtime_profiles: tuple[Kept, ...] = profiles

    def search_options(self) -> SearchOptions:
        """The folder's defaults of a generation; what the folder does not say has onnxruntime-genai's default."""
        return self._search

    def of_draft(self) -> Config | None:
        """The same folder with its draft in the decoder's place; None when the model has no draft."""
        if self.model.draft is None:
            return None
        draft = copy.copy(self)
        draft.model = replace(self.model, type="draft", decoder=self.model.draft, draft=None)
        return draft

    @property
    def tokenizer_folder(self) -> Path:
        """Where the tokenizer's files are."""
        name = self.model.tokenizer_dir
        if name.startswith(SHARED) and self._package is not None:
            return shared_asset(self._package, name)
        if name.startswith(SHARED) or Path(name).is_absolute():
            raise ModelFolderError(
                f"{self.folder / FILE_NAME}: model.tokenizer_dir is {shorten(name)!r}; a path relative to the model "
                f"folder is allowed. Copy the tokenizer's files beside genai_config.json and leave the key out."
            )
        return self.folder / name

    # ---- execution providers

    @property
    def providers(self) -> tuple[str, ...]:
        """Execution providers asked for, best first; none means the CPU."""
        return tuple(self._providers)

    def clear_providers(self) -> None:
        """Ask for no provider, so that the model runs on the CPU."""
        self._providers.clear()

    def append_provider(self, name: str) -> None:
        """Ask for one more provider; any of its spellings will do (`cuda`, `CUDAExecutionProvider`)."""
        provider = normalize_provider(_text(name, "name"))
        if provider not in self._providers:
            self._providers.append(provider)

    def set_provider_option(self, provider: str, key: str, value: str) -> None:
        """Ask for a provider with an option. An empty key asks for the provider alone."""
        options = {_text(key, "key"): _text(value, "value")} if _text(key, "key") else {}
        self._change_provider(provider, options)
        self.append_provider(provider)

    def _change_provider(self, provider: str, options: Mapping[str, Any]) -> None:
        entry = {_text(provider, "provider"): dict(options)}
        self._overlay({"model": {"decoder": {"session_options": {"provider_options": [entry]}}}}, "provider options")

    def _filter_device(self, provider: str, key: str, value: object) -> None:
        """Set one condition on the hardware of a provider that has options; any other provider is left alone."""
        wanted = normalize_provider(_text(provider, "provider"))
        if key == "hardware_device_type":
            _text(value, key)
        elif isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentTypeError(
                f"{key} is {value!r:.60} ({type(value).__name__}); a whole number (int) is allowed."
            )
        if all(known.name != wanted for known in self.model.decoder.session_options.provider_options):
            return
        self._change_provider(provider, {"device_filtering_options": {key: value}})

    def set_decoder_provider_options_hardware_device_type(self, provider: str, hardware_device_type: str) -> None:
        """Let a provider run on one type of hardware only: cpu, gpu or npu."""
        self._filter_device(provider, "hardware_device_type", hardware_device_type)

    def set_decoder_provider_options_hardware_device_id(self, provider: str, hardware_device_id: int) -> None:
        """Let a provider run on one device only."""
        self._filter_device(provider, "hardware_device_id", hardware_device_id)

    def set_decoder_provider_options_hardware_vendor_id(self, provider: str, hardware_vendor_id: int) -> None:
        """Let a provider run on one vendor's hardware only."""
        self._filter_device(provider, "hardware_vendor_id", hardware_vendor_id)

    def _clear_device(self, provider: str, key: str) -> None:
        wanted = normalize_provider(_text(provider, "provider"))
        raw = copy.deepcopy(self._raw)
        session_options = raw["model"].get("decoder", {}).get("session_options", {})
        for entry in session_options.get("provider_options", []):
            for name, options in entry.items():
                if normalize_provider(name) == wanted:
                    options.get("device_filtering_options", {}).pop(key, None)
        self._take(raw, str(self.folder / FILE_NAME))

    def clear_decoder_provider_options_hardware_device_type(self, provider: str) -> None:
        """Let a provider run on any type of hardware again."""
        self._clear_device(provider, "hardware_device_type")

    def clear_decoder_provider_options_hardware_device_id(self, provider: str) -> None:
        """Let a provider run on any device again."""
        self._clear_device(provider, "hardware_device_id")

    def clear_decoder_provider_options_hardware_vendor_id(self, provider: str) -> None:
        """Let a provider run on any vendor's hardware again."""
        self._clear_device(provider, "hardware_vendor_id")

    # ---- changes from outside

    def overlay(self, json_text: str) -> None:
        """Lay JSON over the folder's: objects are merged key by key, anything else is replaced; options of a provider
        are added to those it has. Providers that the overlay names are asked for, too.

        Raises:
            ModelFolderError: not JSON, or a wrong key or value; nothing is changed then.
        """
        over = parse_object(_text(json_text, "json_text"), "overlay")
        before = {provider.name for provider in self.model.decoder.session_options.provider_options}
        self._overlay(over, "overlay")
        for provider in self.model.decoder.session_options.provider_options:
            if provider.name not in before:
                self.append_provider(provider.name)

    def _overlay(self, over: dict[str, Any], source: str) -> None:
        self._take(_merged(self._raw, over), f"{self.folder / FILE_NAME} with {source}")

    @property
    def model_data(self) -> Mapping[str, bytes]:
        """Files of the model that are in memory, by name; they go before those in the folder."""
        return MappingProxyType(self._model_data)

    def add_model_data(self, filename: str, data: bytes | bytearray | memoryview) -> None:
        """Give a file of the model as bytes instead of on disk; bytes are kept as they are, others are copied.

        Raises:
            ArgumentTypeError: not bytes.
            ArgumentError: no bytes at all, or the name was given before.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ArgumentTypeError(f"data is {type(data).__name__}; bytes, a bytearray or a memoryview is allowed.")
        if len(data) == 0:
            raise ArgumentError("data is empty; the bytes of a model file are allowed.")
        if _text(filename, "filename") in self._model_data:
            raise ArgumentError(f"filename {filename!r} was added before; call remove_model_data({filename!r}) first.")
        self._model_data[filename] = bytes(data)

    def remove_model_data(self, filename: str) -> None:
        """Forget bytes given by `add_model_data`.

        Raises:
            ArgumentError: no bytes of that name.
        """
        if _text(filename, "filename") not in self._model_data:
            names = ", ".join(map(repr, self._model_data)) or "no file"
            raise ArgumentError(f"filename {filename!r} was not added; {names} was.")
        del self._model_data[filename]

    def __repr__(self) -> str:
        return f"<genai_lab.Config {str(self.folder)!r}: {self.model.type or 'unnamed type'}>"


def _check_top_key(name: str, value: object, top: Place) -> None:
    """Sections must be known. A lone value at the top has no effect; one that belongs into a section is a slip."""
    if name in _SECTIONS:
        return
    if isinstance(value, dict | list) or value is None:
        raise top.unknown_key(name, _SECTIONS)
    home = "search" if name in OPTION_NAMES else "model" if name in _MODEL_KEYS else None
    if home:
        raise ModelFolderError(
            f"{top.source}: {name!r} stands at the top level, where it has no effect; put it under {home!r}."
        )


def _merged(below: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(below)
    for name, value in over.items():
        under = merged.get(name)
        if isinstance(under, dict) and isinstance(value, dict):
            merged[name] = _merged(under, value)
        elif name == "provider_options" and isinstance(under, list) and isinstance(value, list):
            merged[name] = [*under, *value]  # a provider named twice is merged when it is read
        else:
            merged[name] = value
    return merged


def _text(value: object, argument: str) -> str:
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{argument} is {type(value).__name__}; a string is allowed.")
    return value
