"""`genai_lab.load`: a model by name or by folder."""

from __future__ import annotations

import difflib
import os

from genai_lab.errors import ArgumentError
from genai_lab.models import Model
from genai_lab.paths import checked_path
from genai_lab.workbench.default_model import MODELS, model_folder


def load(name_or_path: str | os.PathLike[str] = "smollm2", *, kv_cache: str | None = None) -> Model:
    """Load a model.

    Args:
        name_or_path: a known name ("smollm2": fetched and converted at first use, then cached; "tiny", "tiny-draft" and
            "tiny-speculative": part of this package), or the path of any model folder in onnxruntime-genai's format.
        kv_cache: "int8" keeps the keys and values of a known model in 8 bits, a quarter of the memory, at slightly
            other numbers (measured and built at first use); None: in float32. A folder is what it was built as.

    Raises:
        ArgumentError, ArgumentTypeError: neither a known name nor a path; `kv_cache` is unknown, or given with a path.
        OutputError: the cache, where the default model is kept, cannot be written.
        DownloadError: the default model is neither cached nor reachable; the message says what to do.
        ModelFolderError: the folder cannot be used.
    """
    if isinstance(name_or_path, str) and name_or_path in MODELS:
        return Model(model_folder(name_or_path, kv_cache=kv_cache))
    path = checked_path(name_or_path, "name_or_path", "a model folder")
    if isinstance(name_or_path, str) and _is_a_name(name_or_path):
        close = difflib.get_close_matches(name_or_path.lower(), MODELS, n=1)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise ArgumentError(
            f"name_or_path is {name_or_path!r:.60}; a known model ({', '.join(MODELS)}) or the path of a model folder "
            f"is allowed, and there is no such folder here. {hint}Other models become folders by "
            f"python -m genai_lab.builder -i model.gguf -o FOLDER -p int4."
        )
    if kv_cache is not None:
        raise ArgumentError(
            f"kv_cache is {kv_cache!r:.40} and the model a folder, whose cache is what it was built as; leave kv_cache "
            "out, or build the folder with python -m genai_lab.builder ... --extra_options kv_cache_quant_type="
            "int8_per_channel kv_cache_scale_file=FILE"
        )
    return Model(path)


def _is_a_name(text: str) -> bool:
    """Whether this can only have been meant as a model's name."""
    return not os.path.exists(text) and os.sep not in text and "/" not in text and not text.endswith(".gguf")
