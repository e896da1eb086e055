"""A multi-token prediction head: onnxruntime-genai's MtpGenerator and ours write the same text from the same folders.

Its counters differ by choice: ours tells the answer's first token by a step of its own, and reads nothing twice.
og 0.18 wants hidden states in float16 on a CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from tests.graphs_mtp import mtp_tables

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og


def made(library: Any, main: Path, head: Path, width: int, prompt: list[int], **search: Any) -> Any:
    models = library.Model(str(main)), library.Model(str(head))
    params = library.GeneratorParams(models[0])
    params.set_search_options(**search)
    params.set_speculative_options(max_draft_tokens=width)
    generator = library.MtpGenerator(*models, params)
    generator.append_tokens(np.array(prompt, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return generator


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_greedy_text_is_ogs(tmp_path: Path, seed: int, width: int) -> None:
    main, head = mtp_tables(tmp_path, seed, noise=0.3, dtype=np.float16)
    prompt = np.random.default_rng(seed).integers(1, 7, 1 + seed).tolist()
    ours, theirs = (made(library, main, head, width, prompt, max_length=40) for library in (genai_lab, og))
    assert ours.get_sequence().tolist() == theirs.get_sequence().tolist()
    assert set(theirs.get_stats()) <= set(ours.get_stats())
    assert ours.get_stats()["forwards"] <= theirs.get_stats()["forwards"]
