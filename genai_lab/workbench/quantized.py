"""The folder of a known model with an 8-bit KV cache: scales measured on its float32 folder, then built again.

Receives the float32 folder and the checkpoint. Returns the finished folder. It does not know where the cache of models
is, nor what a model is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from genai_lab.builder.folder import scratch_folder
from genai_lab.builder.kv_cache import KvCacheType
from genai_lab.errors import ArgumentError

KV_CACHES: Final[dict[str, KvCacheType]] = {
    "int8": KvCacheType.INT8_PER_CHANNEL,  # nearer to float32 than per tensor, a little slower
    "int8_per_tensor": KvCacheType.INT8_PER_TENSOR,
    "int8_per_channel": KvCacheType.INT8_PER_CHANNEL,
}
CALIBRATION_VERSION: Final = 1  # goes up when the texts or the measuring change: folders are named by it


def check_kv_cache(kv_cache: str | None, name: str) -> KvCacheType | None:
    """What is meant; None for float32.

    Raises ArgumentError for an unknown one, and for a model with a draft.
    """
    if kv_cache is None:
        return None
    if not isinstance(kv_cache, str) or kv_cache not in KV_CACHES:
        allowed = ", ".join(map(repr, KV_CACHES))
        raise ArgumentError(f"kv_cache={kv_cache!r:.40}: allowed are {allowed}, or None for float32.")
    if name == "tiny-speculative":
        raise ArgumentError(f"kv_cache={kv_cache!r}: {name!r} has two models, built in float32 only; leave it out.")
    return KV_CACHES[kv_cache]


def folder_mark(kind: KvCacheType | None) -> str:
    """What the folder's name says of it."""
    return "" if kind is None else f"-kv{CALIBRATION_VERSION}-{kind.replace('_', '-')}"


def build_quantized(plain: Path, checkpoint: Path, place: Path, precision: str, kind: KvCacheType) -> Path:
    """Make the folder at `place`, whole or not at all, or leave it if another process has made it meanwhile.

    Args:
        plain: the folder of the same checkpoint and precision with a float32 cache.
    """
    from genai_lab.builder import build_model  # brings onnx and gguf, which are not needed when a folder is there
    from genai_lab.builder.kv_cache import write_scales
    from genai_lab.models import Model
    from genai_lab.workbench.kv_calibration import measure_scales

    with scratch_folder(place) as scratch:
        scale_file = scratch / "scales.json"
        with Model(plain) as model:
            every_position = model.graph.outputs[model.config.model.decoder.outputs.logits].shape[1] != 1
            write_scales(scale_file, measure_scales(model, kind))
        options: dict[str, str | int | bool] = {
            "kv_cache_quant_type": str(kind),
            "kv_cache_scale_file": str(scale_file),
            "prune_lm_head": not every_position,  # as the plain folder has it
        }
        return build_model(checkpoint, place, precision, extra_options=options, keep_existing=True)
