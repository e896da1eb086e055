"""From a GGUF file to a model folder.

Receives paths and options. Returns the folder, which both genai_lab and onnxruntime-genai load. It does not know how
any of the files is made, only their order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from genai_lab.builder.checkpoint import Checkpoint
from genai_lab.builder.families import write_graph
from genai_lab.builder.folder import whole_folder
from genai_lab.builder.genai_config import genai_config
from genai_lab.builder.gguf_file import read_gguf
from genai_lab.builder.onnx_file import OnnxWriter
from genai_lab.builder.options import BuildOptions, parse_options
from genai_lab.builder.tokenizer_files import write_tokenizer
from genai_lab.errors import ArgumentError
from genai_lab.paths import cannot_write, checked_path


def build_model(
    input_path: str | Path,
    output_dir: str | Path,
    precision: str = "int4",
    execution_provider: str = "cpu",
    extra_options: Mapping[str, str | int | bool] | None = None,
    *,
    keep_existing: bool = False,
) -> Path:
    """Convert a GGUF checkpoint into a model folder and return the folder.

    The folder appears whole or not at all. A model folder already there is replaced, or kept with `keep_existing` if
    another process has put one there meanwhile. See `options.EXTRA_OPTIONS` for the extra options.

    Raises ArgumentError for a bad option, ModelFolderError for a checkpoint that cannot be used and OutputError for a
    folder that cannot be written. After an error, nothing is left that was not there before.

    >>> build_model("model.gguf", "out", precision="fp16")
    Traceback (most recent call last):
    ...
    genai_lab.errors.ArgumentError: precision='fp16': allowed are fp32, int8, int4.
    """
    options = parse_options(precision, execution_provider, extra_options)
    checkpoint = checked_path(input_path, "input_path", "a .gguf file")
    place = checked_path(output_dir, "output_dir", "the folder to make")
    _check_replaceable(place, options)
    source = Checkpoint(read_gguf(checkpoint), options.precision)
    with whole_folder(place, keep_existing) as folder:
        _fill(folder, source, options, model_name(checkpoint))
    return place


def model_name(checkpoint: str | os.PathLike[str]) -> str:
    """What a person calls the model: the checkpoint's file name without its ending and quantisation.

    >>> model_name("models/SmolLM2-135M-Instruct.Q4_1.gguf")
    'SmolLM2-135M-Instruct'
    """
    stem = Path(checkpoint).name.removesuffix(".gguf")
    return re.sub(r"[.-](I?Q\d\w*|B?F(16|32))$", "", stem, flags=re.IGNORECASE)


def _fill(folder: Path, source: Checkpoint, options: BuildOptions, name: str) -> None:
    with OnnxWriter(folder, options.filename) as writer:
        shape = write_graph(source, writer, options)
        writer.save(shape.model_type, name)
    special = write_tokenizer(source.gguf.metadata, shape.vocab_size, shape.context_length, folder)
    config = genai_config(shape, special, options.filename)
    (folder / "genai_config.json").write_text(json.dumps(config, indent=4) + "\n", encoding="utf-8")


def _check_replaceable(place: Path, options: BuildOptions) -> None:
    """Refuse to replace a folder that holds anything but what a build leaves there."""
    here = Path.cwd()
    if any(os.path.abspath(place) == str(folder) for folder in (here, *here.parents)):
        raise ArgumentError(
            f"output_dir={str(place)!r} is the folder you are in, or above it; a build replaces its folder. Give a new "
            f"one, such as ./model."
        )
    if not os.path.lexists(place):
        return
    if not os.path.isdir(place):
        raise ArgumentError(f"output_dir={str(place)!r} is a file. Give a new folder.")
    ours = {"genai_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    ours |= {"chat_template.jinja", options.filename, f"{options.filename}.data"}
    try:
        foreign = sorted(entry.name for entry in place.iterdir() if entry.name not in ours)
    except OSError as error:
        raise cannot_write(place, "output_dir", error) from error
    if foreign:
        raise ArgumentError(
            f"output_dir={str(place)!r} holds {', '.join(foreign[:3])}, which a build would remove. Give a new folder."
        )
