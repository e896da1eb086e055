"""A branch takes what a frame's cell holds, and refuses anything else before it is recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab
from genai_lab.errors import ArgumentTypeError


def test_numpy_integers_are_integers(tiny_folder: Path, tmp_path: Path) -> None:
    with genai_lab.Model(tiny_folder) as model:
        trace = genai_lab.ask(model, "Hello", max_new_tokens=6).wait()
        trace.branch(np.int64(3), trace.candidates(3)["token"].iloc[1]).wait()
        assert len(trace.runs()) == 2
        trace.save(tmp_path / "trace.npz")
        trace.to_html(tmp_path / "trace.html")


@pytest.mark.parametrize("token", [1.5, True, np.float32(5), " the"])
def test_anything_else_is_refused_and_nothing_is_lost(tiny_folder: Path, token: object) -> None:
    with genai_lab.Model(tiny_folder) as model:
        trace = genai_lab.ask(model, "Hello", max_new_tokens=6).wait()
        text = trace.text()
        with pytest.raises(ArgumentTypeError, match="token is"):
            trace.branch(3, token)  # type: ignore[arg-type]
        assert trace.text() == text
        assert len(trace.runs()) == 1
