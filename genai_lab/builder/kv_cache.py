"""An 8-bit KV cache: which kinds there are, and the scales that a graph is built with.

Receives the extra options `kv_cache_quant_type` and `kv_cache_scale_file`, by onnxruntime-genai's names. Returns
checked scales, as the attention kernel wants them. It does not know how scales are found:
`genai_lab.workbench.kv_calibration` measures them by running the same model with a float32 cache.

A key or value x is kept as round(x / scale), cut to -128 ... 127. A scale is a layer's, one for its keys and one for
its values ("per tensor"), or one for each channel of each head ("per channel"). The file is onnxruntime-genai's:

    {"scales": {"k_scales": [0.1, 0.2], "v_scales": [0.01, 0.02]}}              per tensor: a number a layer
    {"scales": {"k_scales": [[0.1, ...], ...], "v_scales": [[0.1, ...], ...]}}  per channel: a layer's heads * head_size
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from genai_lab.builder.decoder_shape import DecoderShape
from genai_lab.errors import ArgumentError
from genai_lab.paths import checked_path

MAX_SCALE_FILE: Final = 64 << 20  # bytes; a scale takes about 20
ADVICE: Final = "python -m genai_lab.workbench.kv_calibration MODEL_FOLDER -o scales.json measures one"


class KvCacheType(StrEnum):
    """How keys and values are kept."""

    NONE = "none"  # float32, as the activations
    INT8_PER_TENSOR = "int8_per_tensor"
    INT8_PER_CHANNEL = "int8_per_channel"

    @property
    def attribute(self) -> str:
        """GroupQueryAttention's word for it."""
        return self.value.removeprefix("int8_").upper()


@dataclass(frozen=True)
class KvCacheScales:
    """Scales of every layer's keys and values: [layers, 1] per tensor, [layers, kv_heads * head_size] per channel."""

    kind: KvCacheType
    keys: NDArray[np.float32]
    values: NDArray[np.float32]

    def check_fits(self, shape: DecoderShape) -> None:
        """Raises ArgumentError when the scales are of a model with other sizes."""
        per_layer = 1 if self.kind is KvCacheType.INT8_PER_TENSOR else shape.num_key_value_heads * shape.head_size
        for name, scales in (("k_scales", self.keys), ("v_scales", self.values)):
            if scales.shape != (shape.num_layers, per_layer):
                raise ArgumentError(
                    f"kv_cache_scale_file: {name} has {scales.shape[0]} layers of {scales.shape[1]} scales; this model "
                    f"with {self.kind} needs {shape.num_layers} layers of {per_layer}. Give a file measured on this "
                    f"very model ({ADVICE})."
                )


def parse_kv_cache(kind: str | int | bool | None, scale_file: str | int | bool | None) -> KvCacheScales | None:
    """The scales of the KV cache that two extra options ask for; None for a float32 cache.

    Raises ArgumentError for an unknown kind, one of the two without the other, or a file that has no such scales.

    >>> parse_kv_cache("none", None) is None
    True
    """
    name = str(KvCacheType.NONE if kind is None else kind).lower()
    if name not in list(KvCacheType):
        raise ArgumentError(f"extra_options kv_cache_quant_type={kind!r:.60}: allowed are {', '.join(KvCacheType)}.")
    if name == KvCacheType.NONE:
        if scale_file is not None:
            raise ArgumentError(
                "extra_options kv_cache_scale_file goes with kv_cache_quant_type int8_per_tensor or int8_per_channel; "
                "without one the cache has no scales."
            )
        return None
    if scale_file is None:
        raise ArgumentError(f"extra_options kv_cache_quant_type={name} needs kv_cache_scale_file; {ADVICE}.")
    return _read(checked_path(scale_file, "kv_cache_scale_file", "a JSON file of scales"), KvCacheType(name))


def write_scales(path: Path, scales: KvCacheScales) -> None:
    """Write a file that `parse_kv_cache` reads."""
    per_tensor = scales.kind is KvCacheType.INT8_PER_TENSOR
    lists = {
        name: [row[0] if per_tensor else row for row in array.astype(float).tolist()]
        for name, array in (("k_scales", scales.keys), ("v_scales", scales.values))
    }
    path.write_text(json.dumps({"scales": lists}) + "\n", encoding="utf-8")


def _read(path: Path, kind: KvCacheType) -> KvCacheScales:
    try:
        if path.stat().st_size > MAX_SCALE_FILE:
            raise ArgumentError(f"kv_cache_scale_file {str(path)!r} is larger than {MAX_SCALE_FILE >> 20} MiB.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"kv_cache_scale_file {str(path)!r}: {error.strerror or error}; {ADVICE}.") from error
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"kv_cache_scale_file {str(path)!r} is not JSON: {error!s:.80}; {ADVICE}.") from error
    scales = content.get("scales") if isinstance(content, dict) else None
    if not isinstance(scales, dict):
        raise ArgumentError(f'kv_cache_scale_file {str(path)!r} has no object "scales"; {ADVICE}.')
    keys, values = (_layers(scales.get(name), name, kind) for name in ("k_scales", "v_scales"))
    return KvCacheScales(kind, keys, values)


def _layers(rows: object, name: str, kind: KvCacheType) -> NDArray[np.float32]:
    """[layers, scales of a layer]."""
    wanted = "a positive number a layer" if kind is KvCacheType.INT8_PER_TENSOR else "as many positive numbers a layer"
    if not isinstance(rows, list) or not rows:
        raise ArgumentError(f"kv_cache_scale_file: {name} is {rows!r:.40}; a list with {wanted} is needed.")
    per_layer = [row if isinstance(row, list) else [row] for row in rows]
    if kind is KvCacheType.INT8_PER_TENSOR and any(len(row) != 1 for row in per_layer):
        raise ArgumentError(f"kv_cache_scale_file: {name} has several scales a layer; int8_per_tensor takes one.")
    for layer, row in enumerate(per_layer):
        wrong = next((scale for scale in row if not _is_scale(scale)), None)
        if wrong is not None or len(row) != len(per_layer[0]):
            what = f"{len(row)} numbers" if wrong is None else f"{wrong!r:.40}"
            raise ArgumentError(f"kv_cache_scale_file: {name} of layer {layer} has {what}; {wanted} is needed.")
    return np.array(per_layer, np.float32)


def _is_scale(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e-30 < value < 1e30
