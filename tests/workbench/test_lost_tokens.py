"""Continuing a recording whose first tokens did not fit into the recorder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab as og
from genai_lab.errors import StateError
from genai_lab.workbench.trace import Trace

pytestmark = pytest.mark.usefixtures("background")


def test_what_was_before_a_lost_token_is_not_guessed(tiny: og.Model, tmp_path: Path) -> None:
    params = og.GeneratorParams(tiny)
    params.set_search_options(max_length=20, min_length=20)
    with og.record(max_tokens=4) as trace:
        generator = og.Generator(tiny, params)
        generator.append_tokens(np.arange(20, 30))
        while not generator.is_done():
            generator.generate_next_token()
    loaded = Trace.load(trace.save(tmp_path / "trace.npz"))
    loaded.show(model=tiny)
    with pytest.raises(StateError, match="the first 6 tokens of run 0 did not fit into the recorder"):
        loaded.branch(8)
    loaded.again().wait()
    assert loaded.runs()["prompt_tokens"].tolist() == [10, 10]
    assert loaded.text(1) == og.Tokenizer(tiny).decode(generator.get_sequence(0)[10:])
