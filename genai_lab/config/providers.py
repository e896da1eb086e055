"""Execution providers: the names people write, the names onnxruntime uses, and whether what was asked for is there.

Receives names and the list of providers that the installed onnxruntime offers; it does not import onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from genai_lab.errors import ModelFolderError

SUPPORTED: Final = ("CPU",)
"""What genai_lab runs on. Other providers are understood in a model folder, and refused when the model is loaded."""

_CANONICAL: Final = (
    "CPU", "cuda", "QNN", "WebGPU", "DML", "OpenVINO", "VitisAI", "RyzenAI", "NvTensorRtRtx", "AMDGPU", "CoreML",
    "MIGraphX", "rocm", "XNNPACK",
)  # fmt: skip
_BY_LOWER: Final = {name.lower(): name for name in _CANONICAL}
_SUFFIX: Final = "executionprovider"


@dataclass(frozen=True)
class DeviceFilter:
    """Which hardware a provider may use; None means any."""

    hardware_device_type: str | None = None
    hardware_device_id: int | None = None
    hardware_vendor_id: int | None = None


ANY_DEVICE: Final = DeviceFilter()


def normalize_provider(name: str) -> str:
    """The one spelling of a provider: `cpu`, `CPU` and `CPUExecutionProvider` are all `CPU`; unknown names stay."""
    lower = name.lower().removesuffix(_SUFFIX)
    return _BY_LOWER.get(lower, name)


def check_providers(requested: Iterable[str], available: Sequence[str]) -> None:
    """Refuse a provider that genai_lab does not run, or that the installed onnxruntime does not have.

    Args:
        requested: provider names in any spelling, such as `Config.providers`.
        available: what `onnxruntime.get_available_providers()` says.

    Raises:
        ModelFolderError: naming the provider asked for, the ones that work here, and how to go on.
    """
    installed = {normalize_provider(name) for name in available}
    usable = [name for name in SUPPORTED if name in installed]
    for name in requested:
        if normalize_provider(name) not in usable:
            raise ModelFolderError(
                f"execution provider {name!r} is asked for, but genai_lab runs on {', '.join(usable) or 'none'} here "
                f"(the installed onnxruntime has {', '.join(available) or 'none'}). Call config.clear_providers() "
                f"before loading the model, or take the CPU build of the model folder."
            )
