"""A tiny random llama whose KV cache has 8 bits, its scales measured on the same model with a float32 cache."""

from __future__ import annotations

from pathlib import Path

import genai_lab
from genai_lab.builder import build_model
from genai_lab.builder.kv_cache import write_scales
from genai_lab.workbench.kv_calibration import measure_scales
from tests.tiny import TinySizes, tiny_model_folder


def int8_folders(
    place: Path, kind: str = "int8_per_channel", precision: str = "fp32", sizes: TinySizes | None = None
) -> tuple[Path, Path]:
    """The folders with a float32 and with an 8-bit cache, of the same weights."""
    plain = tiny_model_folder(place / "plain", precision, sizes=sizes, extra_options={"prune_lm_head": False})
    scales = place / "scales.json"
    with genai_lab.Model(plain) as model:
        write_scales(scales, measure_scales(model, kind))
    extra: dict[str, str | int | bool] = {
        "prune_lm_head": False,
        "kv_cache_quant_type": kind,
        "kv_cache_scale_file": str(scales),
    }
    return plain, build_model(place / "plain.gguf", place / "int8", precision, extra_options=extra)
