"""The `session_options` of a model file: threads, memory, logging, providers, and entries passed on by name.

Receives parsed JSON, returns a frozen `SessionOptions`. It creates no session and loads no library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final

from genai_lab.config.json_values import (
    Place,
    an_object,
    boolean,
    choice,
    integer,
    list_of,
    map_of,
    record,
    string,
)
from genai_lab.config.providers import ANY_DEVICE, DeviceFilter, normalize_provider
from genai_lab.config.sections import key, with_default

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
text_map: Final = map_of(string)
"""An object of strings under any key."""

_UINT32: Final = integer(0, 2**32 - 1)


@dataclass(frozen=True)
class ProviderOptions:
    """One execution provider with its options, as a model folder or a person asks for it."""

    name: str
    options: Mapping[str, str] = with_default(NOTHING)
    device_filter: DeviceFilter = ANY_DEVICE


def _device_type(value: object, place: Place) -> str:
    return choice("cpu", "gpu", "npu")(string(value, place).lower(), place)


_read_device_filter: Final = record(
    {"hardware_device_type": _device_type, "hardware_device_id": _UINT32, "hardware_vendor_id": _UINT32}
)


def _read_provider(name: str, value: object, place: Place) -> ProviderOptions:
    given = dict(an_object(value, place))
    wanted = given.pop("device_filtering_options", {})
    device_filter = _read_device_filter(wanted, place.key("device_filtering_options"))
    return ProviderOptions(normalize_provider(name), text_map(given, place), DeviceFilter(**device_filter))


def _read_providers(value: object, place: Place) -> tuple[ProviderOptions, ...]:
    """An array of objects `{"provider": {options}}`; a provider named twice is one provider, the later option wins."""
    merged: dict[str, ProviderOptions] = {}
    for position, entry in enumerate(list_of(an_object)(value, place)):
        for name, options in entry.items():
            new = _read_provider(name, options, place.index(position).key(name))
            old = merged.get(new.name, ProviderOptions(new.name))
            merged[new.name] = _merged(old, new)
    return tuple(merged.values())


def _merged(old: ProviderOptions, new: ProviderOptions) -> ProviderOptions:
    filters = {item.name: getattr(new.device_filter, item.name) for item in fields(DeviceFilter)}
    given = {name: value for name, value in filters.items() if value is not None}
    options = MappingProxyType({**old.options, **new.options})
    return ProviderOptions(old.name, options, replace(old.device_filter, **given))


@dataclass(frozen=True)
class SessionOptions:
    """How an onnxruntime session of the model is to be made; None means onnxruntime's own default."""

    intra_op_num_threads: int | None = key(integer(), None)
    inter_op_num_threads: int | None = key(integer(), None)
    enable_cpu_mem_arena: bool | None = key(boolean, None)
    enable_mem_pattern: bool | None = key(boolean, None)
    log_id: str | None = key(string, None)
    log_severity_level: int | None = key(integer(), None)
    log_verbosity_level: int | None = key(integer(), None)
    enable_profiling: str | None = key(string, None)
    """Prefix of the profile's file name."""
    custom_ops_library: str | None = key(string, None)
    """Kept as written. Loading it runs code of the model folder, so that is for the caller to decide."""
    graph_optimization_level: str | None = key(
        choice("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"), None
    )
    provider_options: tuple[ProviderOptions, ...] = key(_read_providers, ())
    config_entries: Mapping[str, str] = with_default(NOTHING)
    """Every other key, such as `session.intra_op.allow_spinning`: for `SessionOptions.add_session_config_entry`."""


_KNOWN: Final = {item.name: item.metadata["read"] for item in fields(SessionOptions) if "read" in item.metadata}


def read_session_options(value: object, place: Place) -> SessionOptions:
    given = an_object(value, place)
    known = {name: _KNOWN[name](item, place.key(name)) for name, item in given.items() if name in _KNOWN}
    entries = {name: item for name, item in given.items() if name not in _KNOWN}
    return SessionOptions(**known, config_entries=text_map(entries, place))
