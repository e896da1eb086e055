"""Scales for an 8-bit KV cache, measured: how large a model's keys and values get while it reads a few texts.

Receives a loaded model with a float32 cache. Returns the scales that `genai_lab.builder` builds an 8-bit graph with. It
does not build.

    python -m genai_lab.workbench.kv_calibration MODEL_FOLDER -o scales.json
    python -m genai_lab.builder -i model.gguf -o FOLDER -p int4 \\
        --extra_options kv_cache_quant_type=int8_per_channel kv_cache_scale_file=scales.json

The texts (`calibration_texts`) are prose, code, numbers and other languages, and questions to a chat model: the first
token of a sequence and the marks of a chat have keys unlike all others. Keys are measured after their rotation by
position. A rotation mixes two channels, a head's i-th of either half, and keeps the length of the two together; so that
length bounds both channels at every position, also at those that no text here reaches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from genai_lab.builder.kv_cache import KvCacheScales, KvCacheType, write_scales
from genai_lab.errors import ArgumentError, GenaiLabError, StateError, TemplateError
from genai_lab.models import Model
from genai_lab.models.decoder import DecoderState
from genai_lab.paths import checked_path, whole_file
from genai_lab.workbench.calibration_texts import QUESTIONS, TEXTS

LARGEST: Final = 127  # a stored number, up or down
HEADROOM: Final = {KvCacheType.INT8_PER_TENSOR: 1.1, KvCacheType.INT8_PER_CHANNEL: 1.25}
"""How much larger than here a key or value may get before it is cut; the fewer numbers share a scale, the likelier."""
SMALLEST_SCALE: Final = 1e-6  # of a channel that was always nearly zero
MAX_TOKENS: Final = 1024  # of one text


def measure_scales(
    model: Model, kind: KvCacheType | str = KvCacheType.INT8_PER_CHANNEL, texts: Sequence[str] | None = None
) -> KvCacheScales:
    """The scales of an 8-bit cache for a model.

    Args:
        model: a model with a float32 cache that its attention appends to in place.
        kind: "int8_per_tensor" or "int8_per_channel".
        texts: what it reads; default some that come with this module. Give your own when your model is for other ones.

    Raises:
        ArgumentError: an unknown kind, or texts that are all empty.
        StateError: the model's cache is not float32, or not one whose layers are alike.
    """
    if kind not in (KvCacheType.INT8_PER_TENSOR, KvCacheType.INT8_PER_CHANNEL):
        raise ArgumentError(f"kind is {kind!r:.60}; allowed are int8_per_tensor and int8_per_channel")
    if not model.appends_in_place or model.kv_layout.dtype != "float32":
        raise StateError(
            f"{model.config.folder.name!r} has a cache of {model.kv_layout.dtype}, or a graph that does not append "
            "to it in place; scales are measured on the float32 model. Build that first (kv_cache_quant_type=none)"
        )
    keys, values = _largest(model, _prompts(model, texts))
    kind = KvCacheType(kind)
    return KvCacheScales(kind, _scales(keys, kind), _scales(values, kind))


def _scales(largest: NDArray[np.float32], kind: KvCacheType) -> NDArray[np.float32]:
    """[layers, kv_heads, head_dim] -> [layers, 1 or kv_heads * head_dim]."""
    flat = largest.reshape(len(largest), -1)
    if kind == KvCacheType.INT8_PER_TENSOR:
        flat = flat.max(axis=1, keepdims=True)
    scales: NDArray[np.float32] = np.maximum(flat * HEADROOM[kind] / LARGEST, SMALLEST_SCALE).astype(np.float32)
    return scales


def _prompts(model: Model, texts: Sequence[str] | None) -> list[NDArray[np.int32]]:
    """Tokens of the texts and, by default, of the questions as the model's chat template poses them."""
    written = list(texts) if texts is not None else [*TEXTS, *_questions(model)]
    longest = min(MAX_TOKENS, model.config.model.context_length)
    kept = [tokens[:longest] for tokens in map(model.tokenizer.encode, written) if tokens.size]
    if not kept:
        raise ArgumentError("texts has no token to read; at least one text that is not empty is needed")
    return kept


def _questions(model: Model) -> Iterator[str]:
    for question in QUESTIONS:
        try:
            yield model.tokenizer.apply_chat_template([{"role": "user", "content": question}])
        except TemplateError:  # not a chat model, or one that wants another form: the texts are left
            return


def _largest(model: Model, prompts: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The largest absolute key, in any rotation, and value of each channel, [layers, kv_heads, head_dim] each."""
    layout = model.kv_layout
    keys = np.zeros((layout.num_layers, layout.num_kv_heads, layout.head_dim), np.float32)
    values = np.zeros_like(keys)
    half = layout.head_dim // 2
    for tokens in prompts:
        state = DecoderState(model, tokens.size)
        state.prepare(tokens, 0)
        state.run()
        read = state.cache.slab[:, :, 0]  # [layers, 2, kv_heads, tokens, head_dim]
        pairs = np.hypot(read[:, 0, ..., :half], read[:, 0, ..., half:]).max(axis=2)
        np.maximum(keys, np.concatenate([pairs, pairs], axis=-1), out=keys)
        np.maximum(values, np.abs(read[:, 1]).max(axis=2), out=values)
    return keys, values


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the scales of an 8-bit KV cache and write them to a file for python -m genai_lab.builder."""
    parser = argparse.ArgumentParser(prog="python -m genai_lab.workbench.kv_calibration", description=main.__doc__)
    parser.add_argument("folder", help="a model folder with a float32 cache, built from the same checkpoint")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the JSON file to write")
    kinds = [str(kind) for kind in KvCacheType if kind is not KvCacheType.NONE]
    parser.add_argument("-t", "--type", choices=kinds, default=str(KvCacheType.INT8_PER_CHANNEL))
    parser.add_argument("--text", metavar="FILE", help="a text of your own; blank lines part it into pieces")
    args = parser.parse_args(arguments)
    try:
        texts = None if args.text is None else _pieces(checked_path(args.text, "--text", "a text file"))
        with (
            Model(args.folder) as model,
            whole_file(checked_path(args.output, "-o", "the file to write"), "-o") as file,
        ):
            write_scales(file, measure_scales(model, args.type, texts))
    except GenaiLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; nothing was written", file=sys.stderr)
        return 130
    print(args.output)
    return 0


def _pieces(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split("\n\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"--text {str(file)!r} cannot be read as UTF-8 text: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
