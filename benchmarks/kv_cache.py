"""An 8-bit KV cache beside the float32 one: bytes of a token, time of a decode step, and how far the logits move.

    python -m benchmarks.kv_cache [-r ROUNDS]

The same weights in three folders, in one process, one thread. Decode steps alternate, and processor time is counted,
which other programs on the machine disturb less than the clock. Quality is measured with graphs that give every
position's logits, over texts that the scales were not measured on: share of positions with the same most probable
token, and mean KL(float32 cache || 8-bit cache) in nats.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import genai_lab
from genai_lab.builder import build_model
from genai_lab.builder.kv_cache import write_scales
from genai_lab.models.decoder import DecoderState
from genai_lab.workbench.default_model import checkpoint_file
from genai_lab.workbench.kv_calibration import measure_scales

CONTEXTS = (128, 512, 1024, 2048)
ROOT = Path(__file__).parent.parent
KINDS = ("int8_per_channel", "int8_per_tensor")


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("-r", "--rounds", type=int, default=60, help="decode steps of each at every context")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as place:
        models = dict(build_all(Path(place)))
        print("| cache | bytes a token | " + " | ".join(f"decode at {n} (ms)" for n in CONTEXTS) + " |")
        print("|---|---|" + "---|" * len(CONTEXTS))
        times = [decode_times(models, context, rounds) for context in CONTEXTS]
        for name, model in models.items():
            cells = [quartiles(at[name]) for at in times]
            print(f"| {name} | {model.kv_bytes_per_token:,} | " + " | ".join(cells) + " |")
        print("\n| cache | text | positions | same most probable token | mean KL (nats) |\n|---|---|---|---|---|")
        for title, tokens in texts(models["float32"]):
            expected = log_probs(models["float32"], tokens)
            for name in KINDS:
                found = log_probs(models[name], tokens)
                same = np.mean(found.argmax(-1) == expected.argmax(-1))
                divergence = (np.exp(expected) * (expected - found)).sum(-1).mean()
                print(f"| {name} | {title} | {len(tokens)} | {same:.1%} | {divergence:.4f} |")


def build_all(place: Path) -> Iterator[tuple[str, genai_lab.Model]]:
    """The default model's weights with each cache, logits of every position."""
    every: dict[str, str | int | bool] = {"prune_lm_head": False}
    plain = one_thread(build_model(checkpoint_file(), place / "float32", extra_options=every))
    yield "float32", plain
    for kind in KINDS:
        write_scales(place / "scales.json", measure_scales(plain, kind))
        extra = {**every, "kv_cache_quant_type": kind, "kv_cache_scale_file": str(place / "scales.json")}
        yield kind, one_thread(build_model(checkpoint_file(), place / kind, extra_options=extra))


def one_thread(folder: Path) -> genai_lab.Model:
    """Load a folder so that a run stays on the calling thread."""
    file = folder / "genai_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = 1
    file.write_text(json.dumps(config), encoding="utf-8")
    return genai_lab.Model(folder)


def decode_times(models: dict[str, genai_lab.Model], context: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of processor time of each decode step after `context` tokens, in turn."""
    states = {name: DecoderState(model, context + 1) for name, model in models.items()}
    found: dict[str, list[float]] = {name: [] for name in models}
    token = np.array([100], np.int32)
    for number in range(rounds + 3):
        for name, state in states.items():
            state.prepare(token, context)
            start = time.thread_time()
            state.run()
            if number >= 3:  # the first ones warm up
                found[name].append((time.thread_time() - start) * 1e3)
    return found


def quartiles(values: list[float]) -> str:
    """Median and middle half."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def texts(model: genai_lab.Model) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """The reference prompt, prose and code of this repository."""
    with np.load(ROOT / "tests" / "builder" / "data" / "smollm2_37_positions.npz") as reference:
        yield "reference prompt", reference["input_ids"].astype(np.int32)
    for title, file in (("prose", "ARCHITECTURE.md"), ("code", "genai_lab/kvcache/static.py")):
        yield title, model.tokenizer.encode((ROOT / file).read_text(encoding="utf-8"))[:600]


def log_probs(model: genai_lab.Model, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    """[positions, V]."""
    state = DecoderState(model, tokens.size)
    state.prepare(tokens, 0)
    state.run()
    logits = state.read_all_logits().astype(np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


if __name__ == "__main__":
    main()
