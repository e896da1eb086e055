"""The default model's weights through the builder: near float32, small to make, and loadable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_lab.builder import build_model
from genai_lab.workbench.default_model import checkpoint_file
from tests.builder.run import Runner

REFERENCE = Path(__file__).parent / "data" / "smollm2_37_positions.npz"


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def agreement(logits: NDArray[np.float32]) -> tuple[float, float]:
    """Share of positions whose most probable id is the reference's, and the mean KL(reference || model) in nats.

    The KL is over 513 outcomes: the reference's 512 most probable ids, and all others as one. Grouping can only lessen
    it: for the int4 model the whole vocabulary gives 0.0034 where the groups give 0.0032.
    """
    with np.load(REFERENCE) as reference:
        top_ids, top = reference["top_ids"].astype(np.intp), reference["top_log_probs"].astype(np.float64)
    ours = log_softmax(logits)
    matches = float((ours.argmax(axis=-1) == top_ids[:, 0]).mean())
    same = np.take_along_axis(ours, top_ids, axis=-1)
    rest, our_rest = 1 - np.exp(top).sum(axis=-1), 1 - np.exp(same).sum(axis=-1)
    kl = (np.exp(top) * (top - same)).sum(axis=-1) + rest * np.log(rest / our_rest)
    return matches, float(kl.mean())


def prompt() -> NDArray[np.int64]:
    with np.load(REFERENCE) as reference:
        return reference["input_ids"].astype(np.int64)[None]  # [1, 37]


@pytest.mark.slow
def test_the_default_decodes_near_float32(model_folder: Path) -> None:
    """Fed one id at a time, as in generation, each position's logits stay near the float32 model's."""
    runner = Runner(model_folder, threads=2)
    matches, kl = agreement(np.concatenate([runner.step(token[:, None])[0] for token in prompt().T]))
    assert matches >= 0.92
    assert kl <= 0.01


BUILD_AND_TELL_PEAK = """
import resource, sys
from genai_lab.builder import build_model

build_model(sys.argv[1], sys.argv[2], "int4", extra_options={"prune_lm_head": False})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("model_folder")
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts in KiB on Linux only")
def test_it_is_made_within_a_gigabyte_and_prefills_near_float32(tmp_path: Path) -> None:
    folder = tmp_path / "int4"
    command = [sys.executable, "-c", BUILD_AND_TELL_PEAK, str(checkpoint_file()), str(folder)]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert peak < 1 << 20  # KiB
    assert sum(entry.stat().st_size for entry in folder.iterdir()) < 130 << 20
    matches, kl = agreement(Runner(folder, threads=2).step(prompt())[0])
    assert matches >= 0.92
    assert kl <= 0.01


@pytest.mark.slow
@pytest.mark.usefixtures("model_folder")
def test_float32_is_the_reference(tmp_path: Path) -> None:
    folder = build_model(checkpoint_file(), tmp_path / "fp32", "fp32", extra_options={"prune_lm_head": False})
    logits = Runner(folder, threads=2).step(prompt())[0]
    matches, kl = agreement(logits)
    assert matches == 1.0
    assert abs(kl) < 1e-6
    with np.load(REFERENCE) as reference:
        same = np.take_along_axis(log_softmax(logits), reference["top_ids"].astype(np.intp), axis=-1)
        np.testing.assert_allclose(same, reference["top_log_probs"], atol=1e-3)
