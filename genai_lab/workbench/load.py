"""`genai_lab.load`: a model by name or by folder."""

from __future__ import annotations

import os
from pathlib import Path

from genai_lab.models import Model
from genai_lab.workbench.default_model import MODELS, model_folder


def load(name_or_path: str | os.PathLike[str] = "smollm2") -> Model:
    """Load a model.

    Args:
        name_or_path: a known name ("smollm2": fetched and converted at first use, then cached), or the path of any
        model
            folder in onnxruntime-genai's format.

    Raises:
        DownloadError: the default model is neither cached nor reachable; the message says what to do.
        ModelFolderError: the folder cannot be used.
    """
    if isinstance(name_or_path, str) and name_or_path in MODELS:
        return Model(model_folder(name_or_path))
    if not Path(name_or_path).is_dir() and isinstance(name_or_path, str) and os.sep not in name_or_path:
        return Model(model_folder(name_or_path))  # neither: its error names the known models
    return Model(name_or_path)
