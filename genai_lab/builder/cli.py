"""The command line of the builder, with the flags of onnxruntime-genai's.

    python -m genai_lab.builder -i model.gguf -o folder -p int4 -e cpu --extra_options prune_lm_head=false

Receives arguments. Returns an exit code: 0; 2 for a wrong command line and 1 when it cannot be done, each after saying
why; 130 when interrupted. Whatever it is but 0, nothing half-made is left.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence

from genai_lab.builder.options import EXECUTION_PROVIDERS, EXTRA_OPTIONS, Precision
from genai_lab.errors import ArgumentError, ArgumentTypeError, GenaiLabError

DONE, CANNOT, WRONG, INTERRUPTED = 0, 1, 2, 130
FLAGS = {
    "input_path": "-i",
    "output_dir": "-o",
    "precision": "-p",
    "execution_provider": "-e",
    "extra_options": "--extra_options",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    args = make_parser().parse_args(arguments)
    start = time.monotonic()
    try:
        print(f"{_build(args)}: built in {time.monotonic() - start:.1f} s")
        return DONE
    except GenaiLabError as error:
        print(f"error: {in_flags(str(error), FLAGS)}", file=sys.stderr)
        return WRONG if isinstance(error, ArgumentError | ArgumentTypeError) else CANNOT
    except KeyboardInterrupt:
        print("\ninterrupted: nothing was written", file=sys.stderr)
        return INTERRUPTED


def _build(args: argparse.Namespace) -> object:
    from genai_lab.builder.build import build_model  # brings onnx and gguf, which take a second

    if args.input is None:
        raise ArgumentError(
            f"-m {args.model_name}: models are not fetched by name. Fetch the .gguf file and give it with -i."
        )
    return build_model(
        args.input, args.output, args.precision, args.execution_provider, parse_extra_options(args.extra_options)
    )


def in_flags(words: str, flags: Mapping[str, str]) -> str:
    """An error's words with the flag that was typed instead of the argument of the function behind it.

    >>> in_flags("output_dir='x' is a file.", {"output_dir": "-o"}), in_flags("x.gguf: no such file", {"x": "-x"})
    ("-o 'x' is a file.", 'x.gguf: no such file')
    """
    start = re.match(r"(?:ask: )?(\w+)([= :])", words)
    if start is None or start[1] not in flags:
        return words
    between = ": " if start[2] == ":" else " "
    return flags[start[1]] + between + words[start.end() :].lstrip()


def make_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(
        prog="python -m genai_lab.builder",
        description="Convert a GGUF checkpoint into a model folder for genai_lab and onnxruntime-genai.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="extra options:\n" + "\n".join(f"  {key}: {meaning}" for key, meaning in EXTRA_OPTIONS.items()),
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-i", "--input", metavar="FILE", help="the .gguf file")
    what.add_argument("-m", "--model_name", metavar="NAME", help="not supported here: models are not fetched by name")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="the folder to make")
    parser.add_argument(
        "-p",
        "--precision",
        required=True,
        choices=[str(p) for p in Precision],
        help="weights; int4 imports Q4_1 and Q4_0 exactly",
    )
    parser.add_argument("-e", "--execution_provider", default="cpu", choices=EXECUTION_PROVIDERS, help="default cpu")
    parser.add_argument("-c", "--cache_dir", metavar="FOLDER", help="accepted, not needed: nothing is fetched")
    parser.add_argument("--extra_options", nargs="+", default=[], metavar="KEY=VALUE", help="see below")
    return parser


def parse_extra_options(entries: Sequence[str]) -> dict[str, str]:
    """Turn KEY=VALUE entries into a dict.

    >>> parse_extra_options(["prune_lm_head=false"])
    {'prune_lm_head': 'false'}
    """
    options: dict[str, str] = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals:
            raise ArgumentError(f"--extra_options {entry!r}: KEY=VALUE is needed, such as prune_lm_head=false.")
        if key in options:
            raise ArgumentError(f"--extra_options: {key} is given twice.")
        options[key] = value
    return options
