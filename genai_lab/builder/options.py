"""What a build may be told: precision, execution provider, extra options.

Receives strings as the command line or a caller gives them. Returns a checked `BuildOptions`. It does not know how an
option is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from genai_lab.builder.kv_cache import KvCacheScales, parse_kv_cache
from genai_lab.errors import ArgumentError, ArgumentTypeError

FORMAT_VERSION: Final = 3  # goes up when the same checkpoint and options give other files: caches are keyed by it
EXECUTION_PROVIDERS: Final = ("cpu",)
MAX_FILENAME: Final = 200  # bytes; the weights' file adds a suffix


class Precision(StrEnum):
    """How the weights are stored; activations are always float32."""

    FP32 = "fp32"
    INT8 = "int8"  # 8-bit blocks of 32
    INT4 = "int4"  # 4-bit blocks of 32, the head and the embedding in 8 bits


@dataclass(frozen=True)
class BuildOptions:
    """The checked options of one build."""

    precision: Precision = Precision.INT4
    prune_lm_head: bool = True  # logits of each row's last position only
    accuracy_level: int = 4  # of MatMulNBits in the layers: 4 rounds their inputs to int8, 0 and 1 keep float32
    filename: str = "model.onnx"
    kv_cache: KvCacheScales | None = None  # of an 8-bit KV cache; None: keys and values are float32


def parse_options(
    precision: str = "int4",
    execution_provider: str = "cpu",
    extra_options: Mapping[str, str | int | bool] | None = None,
) -> BuildOptions:
    """Check a build's options.

    >>> parse_options("int8", extra_options={"prune_lm_head": "false"}).prune_lm_head
    False
    """
    if precision not in list(Precision):
        raise ArgumentError(f"precision={precision!r:.60}: allowed are {', '.join(Precision)}.")
    if execution_provider not in EXECUTION_PROVIDERS:
        raise ArgumentError(
            f"execution_provider={execution_provider!r:.40}: allowed is cpu. Others: use onnxruntime-genai's builder."
        )
    if extra_options is not None and not isinstance(extra_options, Mapping):
        raise ArgumentTypeError(
            f"extra_options is {extra_options!r:.60} ({type(extra_options).__name__}); a dict is allowed, such as "
            f"{{'prune_lm_head': False}}."
        )
    extra = dict(extra_options or {})
    unknown = sorted(str(key) for key in set(extra) - EXTRA_OPTIONS.keys())
    if unknown:
        raise ArgumentError(f"extra_options: unknown {', '.join(unknown)}; allowed are {', '.join(EXTRA_OPTIONS)}.")
    level = _accuracy_level(extra.get("accuracy_level"))
    if level != BuildOptions.accuracy_level and precision != Precision.INT4:
        raise ArgumentError(f"extra_options accuracy_level={level} goes with precision int4 only, not {precision}.")
    return BuildOptions(
        Precision(precision),
        _prune_lm_head(extra.get("prune_lm_head")),
        level,
        _filename(extra.get("filename")),
        parse_kv_cache(extra.get("kv_cache_quant_type"), extra.get("kv_cache_scale_file")),
    )


EXTRA_OPTIONS: Final = {
    "prune_lm_head": "true (default) computes logits for each row's last position only; false for every position",
    "accuracy_level": "int4 only: 4 (default) rounds the layers' inputs to int8; 0 or 1 keeps float32 (half the speed)",
    "filename": "name of the ONNX file (default model.onnx)",
    "kv_cache_quant_type": "none (default): float32 keys and values; int8_per_tensor or int8_per_channel: a quarter",
    "kv_cache_scale_file": "with int8: JSON of scales, as python -m genai_lab.workbench.kv_calibration measures them",
}


def _prune_lm_head(value: str | int | bool | None) -> bool:
    if value is None:
        return BuildOptions.prune_lm_head
    words = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in words:
        raise ArgumentError(f"extra_options prune_lm_head={value!r}: allowed are true and false.")
    return words[str(value).lower()]


def _accuracy_level(value: str | int | bool | None) -> int:
    if value is None:
        return BuildOptions.accuracy_level
    if str(value) not in ("0", "1", "4"):
        raise ArgumentError(f"extra_options accuracy_level={value!r}: allowed are 4 (int8) and 0 or 1 (float32).")
    return int(value)


def _filename(value: str | int | bool | None) -> str:
    if value is None:
        return BuildOptions.filename
    name = str(value)
    plain = name == name.split("/")[-1].split("\\")[-1] and "\0" not in name
    if not plain or not name.endswith(".onnx") or len(name.encode()) > MAX_FILENAME:
        raise ArgumentError(f"extra_options filename={name!r}: a plain name that ends in .onnx is needed.")
    return name
