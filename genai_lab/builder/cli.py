"""The command line of the builder, with the flags of onnxruntime-genai's.

    python -m genai_lab.builder -i model.gguf -o folder -p int4 -e cpu --extra_options prune_lm_head=false

Receives arguments. Returns an exit code: 0, or 2 after saying what is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from genai_lab.builder.build import build_model
from genai_lab.builder.options import EXECUTION_PROVIDERS, EXTRA_OPTIONS, Precision
from genai_lab.errors import ArgumentError, GenaiLabError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    args = make_parser().parse_args(arguments)
    start = time.monotonic()
    try:
        if args.input is None:
            raise ArgumentError(
                f"-m {args.model_name}: models are not fetched by name. Fetch the .gguf file and give it with -i."
            )
        folder = build_model(
            args.input, args.output, args.precision, args.execution_provider, parse_extra_options(args.extra_options)
        )
    except GenaiLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{folder}: built in {time.monotonic() - start:.1f} s")
    return 0


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
        "-p", "--precision", required=True, choices=[*Precision], help="weights; int4 imports Q4_1 and Q4_0 exactly"
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
