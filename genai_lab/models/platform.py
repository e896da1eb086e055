"""What this installation can run on, told truthfully, and functions of onnxruntime-genai that have nothing to do here.

genai_lab runs on the CPU and sends nothing anywhere.
"""

from __future__ import annotations

import os

import onnxruntime as ort

from genai_lab.errors import ArgumentError, ModelFolderError, wrong_kind
from genai_lab.kinds import whole
from genai_lab.paths import checked_path


def is_cuda_available() -> bool:
    """Whether the installed onnxruntime has the CUDA provider (genai_lab runs models on the CPU all the same)."""
    return _has("CUDAExecutionProvider")


def is_dml_available() -> bool:
    """Whether the installed onnxruntime has the DirectML provider."""
    return _has("DmlExecutionProvider")


def is_openvino_available() -> bool:
    """Whether the installed onnxruntime has the OpenVINO provider. (onnxruntime-genai says True everywhere.)"""
    return _has("OpenVINOExecutionProvider")


def is_qnn_available() -> bool:
    """Whether the installed onnxruntime has the QNN provider. (onnxruntime-genai says True everywhere.)"""
    return _has("QNNExecutionProvider")


def is_webgpu_available() -> bool:
    """Whether the installed onnxruntime has the WebGPU provider. (onnxruntime-genai says True everywhere.)"""
    return _has("WebGpuExecutionProvider")


def _has(provider: str) -> bool:
    return provider in ort.get_available_providers()


def get_current_gpu_device_id() -> int:
    """The GPU that would be used; always 0, none is."""
    return 0


def set_current_gpu_device_id(device_id: int) -> None:
    """Choose a GPU; only 0 is accepted, none is used.

    Raises:
        ArgumentError, ArgumentTypeError: another number, or none.
    """
    if whole("set_current_gpu_device_id: device_id", device_id, "0, an int") != 0:
        raise ArgumentError(f"set_current_gpu_device_id({device_id}): models run on the CPU here; only 0 is accepted")


def register_execution_provider_library(name: str, path: str) -> None:
    """Load a provider's library into onnxruntime, under a name of your choice.

    Raises:
        ArgumentTypeError, ArgumentError: a name or a path that is none.
        ModelFolderError: no such file, or onnxruntime cannot load it.
    """
    _check_name("register_execution_provider_library", name)
    path = str(checked_path(path, "register_execution_provider_library: path", "the provider's library"))
    if not os.path.isfile(path):
        raise ModelFolderError(f"register_execution_provider_library: {path!r} does not exist; give the library's path")
    try:
        ort.register_execution_provider_library(name, path)
    except Exception as error:  # onnxruntime's exception classes have no narrower common base
        raise ModelFolderError(
            f"register_execution_provider_library: onnxruntime cannot load {path!r} as a provider's library"
        ) from error


def unregister_execution_provider_library(name: str) -> None:
    """Forget a library that was registered.

    Raises:
        ArgumentTypeError: not a name.
        ArgumentError: nothing is registered under that name.
    """
    _check_name("unregister_execution_provider_library", name)
    try:
        ort.unregister_execution_provider_library(name)
    except Exception as error:  # onnxruntime's exception classes have no narrower common base
        raise ArgumentError(
            f"unregister_execution_provider_library({name!r}): no library is registered under that name"
        ) from error


def _check_name(call: str, name: object) -> None:
    if not isinstance(name, str):
        raise wrong_kind(f"{call}: name", name, "a text, the name that the provider is registered under")
    if not name or "\0" in name:
        raise ArgumentError(f"{call}: name is {name!r:.60}; a text of at least one character without NUL is allowed")


def enable_telemetry_events() -> None:
    """Does nothing: genai_lab never sends anything."""


def disable_telemetry_events() -> None:
    """Does nothing: genai_lab never sends anything."""
