"""`python -m benchmarks`: run everything, write benchmarks/RESULTS.md."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks import against_og, engine_against_og, import_time, recording_cost, search_against_og, speculation
from genai_lab.workbench.default_model import model_folder

RESULTS = Path(__file__).with_name("RESULTS.md")


def processor() -> str:
    """Name of the processor, and the vector extensions that decide kernels."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    lines = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}
    here = lines.get("flags", "").split()
    flags = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8") if flag in here]
    return f"{lines.get('model name', platform.machine())} ({', '.join(flags)})"


def machine(threads: int) -> str:
    """Where and with what this was measured."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "onnxruntime-genai", "numpy"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {processor()}, {os.cpu_count()} cores, {threads} threads on both sides, "
        f"Python {platform.python_version()}, {packages}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--processes", type=int, default=8, help="fresh processes per arm")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of the recording and import measurements")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    source = model_folder("smollm2")
    with tempfile.TemporaryDirectory(dir=source.parent, prefix=".bench-") as scratch:
        folder = against_og.folder_with_threads(source, arguments.threads, Path(scratch) / source.name)
        samples = against_og.measure(folder, arguments.processes)
        single = against_og.folder_with_threads(source, 1, Path(scratch) / "single")
        processor_time = against_og.measure(single, arguments.processes, "cpu")
        cost, off_us, digest_us = recording_cost.measure(folder, arguments.rounds)
        whole = engine_against_og.folder_with_all_logits(Path(scratch) / "all-logits")
        served = against_og.folder_with_threads(whole, arguments.threads, Path(scratch) / "served")
        engines = engine_against_og.measure(served, max(1, arguments.processes // 2))
        searches = search_against_og.measure(served, max(1, arguments.processes // 2))
    step_ms = sorted(samples["genai_lab"]["decode_128_ms"])[arguments.processes // 2]
    imports = import_time.measure(arguments.rounds)
    speculated = speculation.measure()
    text = f"""# Results

{machine(arguments.threads)}
Made by `make bench`: {arguments.processes} fresh processes per arm in shuffled order, medians with the middle half in
brackets. The same folder (SmolLM2-135M-Instruct, the default's precision) is run by both libraries
through the same calls, greedy.
The A/A column compares two arms that are the same program: what lies within its interval is noise.

## Against onnxruntime-genai
{against_og.table(samples)}

The same with one thread, in processor time, which other work on the machine disturbs less:

{against_og.table(processor_time, ("decode_128_ms", "decode_1024_ms", "prefill_512_ms"))}

## Eight requests at once
"decode-heavy": prompts of 20 to 60 tokens, answers of 100 to 150. "mixed": one shared beginning of 200 tokens, own
prompts of 20 to 400, answers of 20 to 60. Defaults of both engines.
All four run a folder that gives the logits of every position (the builder's `--extra_options prune_lm_head=false`): in
the default folder, which gives the last position's only, every request of onnxruntime-genai's Engine ends
with `ENGINE_EXECUTION_FAILURE`.

{engine_against_og.table(engines)}

## Batches, beams, grammars
{search_against_og.table(searches)}

## Speculation
The shipped pair, greedy, on text that it knows by heart, with one thread; a ratio is the median over answers.

{speculation.table(speculated)}

## Recording
| quantity | value |
|---|---|
| recorded / plain decode step, context 128 | {cost} |
| null tracer in a plain step (nobody records) | {off_us:.2f} µs = {off_us / step_ms / 10:.3f} % of a step |
| digest of a token's logits, when the trace is read | {digest_us:.0f} µs |

## Import
{import_time.table(imports)}
"""
    arguments.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
