"""Where a model folder's genai_config.json is, or why there is none.

Receives a path. Returns the file's path, or an error that says what stands there instead and how a model folder is got
from it. It reads nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from genai_lab.errors import ModelFolderError

FILE_NAME: Final = "genai_config.json"
WANTED: Final = f"a model folder, which holds {FILE_NAME}, is needed"


def config_file(folder: Path) -> Path:
    """The path of the folder's genai_config.json.

    Raises:
        ModelFolderError: there is none; says what to do.
    """
    file = folder / FILE_NAME
    if os.path.lexists(file):
        return file
    if folder.suffix == ".gguf" and not os.path.isdir(folder):
        raise ModelFolderError(_checkpoint(folder))
    if os.path.isfile(folder):
        near = f": {str(folder.parent)!r}" if os.path.isfile(folder.parent / FILE_NAME) else "."
        raise ModelFolderError(f"{str(folder)!r} is a file; {WANTED}. Give the folder{near}")
    if not os.path.isdir(folder):
        by_name = f" A model known by name is had by genai_lab.load({str(folder)!r})." if len(folder.parts) == 1 else ""
        raise ModelFolderError(f"{_shown(folder)} does not exist; {WANTED}. Correct the path.{by_name}")
    raise ModelFolderError(f"{str(folder)!r} holds no {FILE_NAME}; {WANTED}. {_advice(folder)}")


def _checkpoint(path: Path) -> str:
    there = "is a checkpoint" if os.path.isfile(path) else "does not exist, and would be a checkpoint"
    return f"{str(path)!r} {there}; {WANTED}. {_convert(path)}"


def _convert(path: Path) -> str:
    return (
        f"Convert it once: python -m genai_lab.builder -i {path} -o {path.with_suffix('').name} -p int4, and load the "
        f"folder after -o."
    )


def _advice(folder: Path) -> str:
    """What to do about a folder that holds something else."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))[:1000]
    except OSError as error:
        return f"It cannot be looked into ({error.strerror}): make it readable."
    checkpoint = next((name for name in names if name.endswith(".gguf")), None)
    below = next((name for name in names if os.path.isfile(folder / name / FILE_NAME)), None)
    if below is not None:
        return f"Give the folder inside it: {str(folder / below)!r}."
    if checkpoint is not None:
        return f"It holds the checkpoint {checkpoint}. {_convert(folder / checkpoint)}"
    if any(name.endswith((".safetensors", ".bin")) for name in names):
        return "It looks like a Hugging Face checkpoint: convert it with onnxruntime-genai's builder, or take its GGUF."
    return "Give another folder, or make one: python -m genai_lab.builder -i model.gguf -o FOLDER -p int4."


def _shown(path: Path) -> str:
    text = str(path)
    return repr(text if len(text) <= 200 else f"{text[:200]}...")
