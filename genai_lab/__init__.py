"""A workbench for generative inference on ONNX Runtime: run a language model, record every stage, look inside.

    import genai_lab
    model = genai_lab.load("smollm2")
    with genai_lab.record() as trace:
        ...                                  # onnxruntime-genai's names: Tokenizer, GeneratorParams, Generator
    trace                                    # shown by linked widgets in a notebook

Names are imported when they are first used, so `import genai_lab` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genai_lab._version import __version__ as __version__

if TYPE_CHECKING:
    from genai_lab.as_og import install_as_og as install_as_og
    from genai_lab.config import Config as Config
    from genai_lab.engine import Engine as Engine
    from genai_lab.engine import EngineCapabilities as EngineCapabilities
    from genai_lab.engine import EngineErrorCode as EngineErrorCode
    from genai_lab.engine import EngineEvent as EngineEvent
    from genai_lab.engine import EngineEventBuffer as EngineEventBuffer
    from genai_lab.engine import EngineEventFlags as EngineEventFlags
    from genai_lab.engine import Request as Request
    from genai_lab.engine import RequestOptions as RequestOptions
    from genai_lab.engine import TurnOptions as TurnOptions
    from genai_lab.engine import TurnUsage as TurnUsage
    from genai_lab.errors import GenaiLabError as GenaiLabError
    from genai_lab.generation import Generator as Generator
    from genai_lab.generation import GeneratorParams as GeneratorParams
    from genai_lab.generation import MtpGenerator as MtpGenerator
    from genai_lab.generation import Tokenizer as Tokenizer
    from genai_lab.generation import TokenizerStream as TokenizerStream
    from genai_lab.generation import og_compat as og_compat
    from genai_lab.generation.log import set_log_callback as set_log_callback
    from genai_lab.generation.log import set_log_options as set_log_options
    from genai_lab.lifecycle import live_objects as live_objects
    from genai_lab.models import Adapters as Adapters
    from genai_lab.models import Model as Model
    from genai_lab.models.platform import disable_telemetry_events as disable_telemetry_events
    from genai_lab.models.platform import enable_telemetry_events as enable_telemetry_events
    from genai_lab.models.platform import get_current_gpu_device_id as get_current_gpu_device_id
    from genai_lab.models.platform import is_cuda_available as is_cuda_available
    from genai_lab.models.platform import is_dml_available as is_dml_available
    from genai_lab.models.platform import is_openvino_available as is_openvino_available
    from genai_lab.models.platform import is_qnn_available as is_qnn_available
    from genai_lab.models.platform import is_webgpu_available as is_webgpu_available
    from genai_lab.models.platform import register_execution_provider_library as register_execution_provider_library
    from genai_lab.models.platform import set_current_gpu_device_id as set_current_gpu_device_id
    from genai_lab.models.platform import unregister_execution_provider_library as unregister_execution_provider_library
    from genai_lab.processors import Audios as Audios
    from genai_lab.processors import Images as Images
    from genai_lab.processors import MultiModalProcessor as MultiModalProcessor
    from genai_lab.processors import StreamingProcessor as StreamingProcessor
    from genai_lab.types import FinishReason as FinishReason
    from genai_lab.types import NamedTensors as NamedTensors
    from genai_lab.types import Tensor as Tensor
    from genai_lab.workbench.ask import ask as ask
    from genai_lab.workbench.default_model import model_folder as model_folder
    from genai_lab.workbench.load import load as load
    from genai_lab.workbench.record import record as record
    from genai_lab.workbench.trace import Trace as Trace

_HOMES = {
    "Adapters": "genai_lab.models",
    "Audios": "genai_lab.processors",
    "Config": "genai_lab.config",
    "Engine": "genai_lab.engine",
    "EngineCapabilities": "genai_lab.engine",
    "EngineErrorCode": "genai_lab.engine",
    "EngineEvent": "genai_lab.engine",
    "EngineEventBuffer": "genai_lab.engine",
    "EngineEventFlags": "genai_lab.engine",
    "FinishReason": "genai_lab.types",
    "GenaiLabError": "genai_lab.errors",
    "Generator": "genai_lab.generation",
    "GeneratorParams": "genai_lab.generation",
    "Images": "genai_lab.processors",
    "Model": "genai_lab.models",
    "MultiModalProcessor": "genai_lab.processors",
    "MtpGenerator": "genai_lab.generation",
    "NamedTensors": "genai_lab.types",
    "Request": "genai_lab.engine",
    "RequestOptions": "genai_lab.engine",
    "StreamingProcessor": "genai_lab.processors",
    "Tensor": "genai_lab.types",
    "Tokenizer": "genai_lab.generation",
    "TokenizerStream": "genai_lab.generation",
    "Trace": "genai_lab.workbench.trace",
    "TurnOptions": "genai_lab.engine",
    "TurnUsage": "genai_lab.engine",
    "ask": "genai_lab.workbench.ask",
    "disable_telemetry_events": "genai_lab.models.platform",
    "enable_telemetry_events": "genai_lab.models.platform",
    "get_current_gpu_device_id": "genai_lab.models.platform",
    "install_as_og": "genai_lab.as_og",
    "is_cuda_available": "genai_lab.models.platform",
    "is_dml_available": "genai_lab.models.platform",
    "is_openvino_available": "genai_lab.models.platform",
    "is_qnn_available": "genai_lab.models.platform",
    "is_webgpu_available": "genai_lab.models.platform",
    "live_objects": "genai_lab.lifecycle",
    "load": "genai_lab.workbench.load",
    "model_folder": "genai_lab.workbench.default_model",
    "og_compat": "genai_lab.generation",
    "record": "genai_lab.workbench.record",
    "register_execution_provider_library": "genai_lab.models.platform",
    "set_current_gpu_device_id": "genai_lab.models.platform",
    "set_log_callback": "genai_lab.generation.log",
    "set_log_options": "genai_lab.generation.log",
    "unregister_execution_provider_library": "genai_lab.models.platform",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'genai_lab' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
