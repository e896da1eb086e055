"""Graphs of plain operators: onnxruntime-genai and we give the same tokens and the same outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab
from tests.graphs import plain_decoder

og = pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")
pytestmark = pytest.mark.og

# logits of the last position only cannot be run by onnxruntime-genai 0.18: it wants logits of every one
KINDS: dict[str, dict[str, Any]] = {
    "apart": {},
    "combined": {"combined": True},
    "no positions": {"positions": False},
    "int32": {"ids_dtype": np.int32},
    "float16 logits": {"float16_logits": True},
    "no layers": {"layers": 0},
}
PROMPT = np.array([5, 6, 7], np.int32)
RAGGED = np.array([[5, 6, 7], [8, 0, 0]], np.int32)


def made(library: Any, folder: Path, prompts: NDArray[np.int32], **options: Any) -> Any:
    model = library.Model(str(folder))
    params = library.GeneratorParams(model)
    params.set_search_options(max_length=20, **options)
    generator = library.Generator(model, params)
    generator.append_tokens(prompts)
    return generator


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("prompts", "options"), [(PROMPT, {}), (RAGGED, {"batch_size": 2}), (PROMPT, {"num_beams": 3})]
)
def test_the_same_tokens(tmp_path: Path, kind: str, prompts: NDArray[np.int32], options: dict[str, int]) -> None:
    folder = plain_decoder(tmp_path / "model", **KINDS[kind])
    found = []
    for library in (og, genai_lab):
        generator = made(library, folder, prompts, **options)
        while not generator.is_done():
            generator.generate_next_token()
        found.append([generator.get_sequence(row).tolist() for row in range(options.get("batch_size", 1))])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["apart", "combined"])
def test_the_same_outputs_of_a_prompt_and_of_a_token(tmp_path: Path, kind: str) -> None:
    folder = plain_decoder(tmp_path / "model", **KINDS[kind])
    prompts = np.array([[5, 6, 7], [8, 9, 10]], np.int32)
    ogs, ours = (made(library, folder, prompts, batch_size=2) for library in (og, genai_lab))
    for _ in range(3):
        np.testing.assert_allclose(ours.get_output("logits"), ogs.get_output("logits"), atol=1e-4)
        for generator in (ogs, ours):
            generator.generate_next_token()
