"""`trace.again()` under greedy choice is the first answer once more, bit by bit, whatever cache it begins with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_lab as og
from genai_lab.workbench.trace import Trace
from tests.tiny import tiny_model_folder

pytestmark = pytest.mark.usefixtures("background")
COLUMNS = ("token", "prob", "entropy", "top_ids", "top_logits")


@pytest.fixture(scope="module")
def int4(tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    return og.Model(tiny_model_folder(tmp_path_factory.mktemp("int4") / "model", "int4"))


@pytest.fixture(scope="module")
def default(model_folder: Path) -> og.Model:
    return og.Model(model_folder)


def columns(trace: Trace, run: int) -> dict[str, np.ndarray]:
    tokens = trace.recording.tokens
    return {name: tokens[name][tokens["run"] == run] for name in COLUMNS}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int4", "default"])
def test_again_is_the_same_answer(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    trace = og.ask(model, "What is the capital of France?", max_new_tokens=12).wait()
    trace.again().wait()  # takes over the first answer's cache
    trace.branch(2, int(trace.candidates(2)["token"].iloc[3])).wait()
    trace.again().wait()  # takes over whatever is kept now
    first = columns(trace, 0)
    for again in (1, 3):
        assert trace.runs()["cached_tokens"][again] > 0
        for column, values in columns(trace, again).items():
            np.testing.assert_array_equal(values, first[column], err_msg=column)
        assert trace.text(again) == trace.text(0)


def test_a_token_put_by_hand_has_no_latency_and_is_not_the_first_that_was_made(int4: og.Model) -> None:
    trace = og.ask(int4, "Hello", max_new_tokens=6).wait()
    trace.branch(1, int(trace.candidates(1)["token"].iloc[2])).wait()
    tokens, run = trace.tokens(), trace.runs().iloc[1]
    branch = tokens[tokens["run"] == 1]
    assert np.isnan(branch["latency_ms"].iloc[0])
    assert (branch["latency_ms"].iloc[1:] > 0).all()
    assert run["ttft_ms"] == pytest.approx(branch["end_ms"].iloc[1] - trace.recording.runs[1].start_ms)
    later = branch["latency_ms"].iloc[2:].median()
    assert (np.isnan(run["ms_per_token"]) and np.isnan(later)) or run["ms_per_token"] == later
