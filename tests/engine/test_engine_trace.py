"""What a trace says about an engine: recording changes nothing, and every step can be asked about."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import genai_lab
from genai_lab.engine import Engine, StepPlan
from genai_lab.errors import ArgumentError, ArgumentTypeError
from tests.engine.asking import SAMPLED, alone, answers, prompts

TIGHT = {"max_batch_size": 3, "max_session_tokens": 100, "block_size": 4, "num_blocks": 24}


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> genai_lab.Model:
    return genai_lab.Model(tiny_folder)


@pytest.fixture(scope="module")
def traced(model: genai_lab.Model) -> tuple[genai_lab.Trace, list[list[int]], list[dict[int, tuple[int, ...]]]]:
    """A tight run with waiting and preemption, and each step's tables as the cache itself had them."""
    asked, tables = prompts(20, 22, 24, 30), []
    with genai_lab.record() as trace:
        engine = Engine(model, **TIGHT)  # type: ignore[arg-type]
        step = engine.step

        def watching() -> object:
            decisions = step()
            tables.append({n: engine._cache.block_table(n) for n, s in engine._states.items() if s.row is not None})
            return decisions

        engine.step = watching  # type: ignore[method-assign, assignment]
        found = answers(engine, asked, 24)
    return trace, found, tables


def test_recorded_equals_plain(model: genai_lab.Model) -> None:
    asked = prompts(20, 22, 24, 30)
    plain = answers(Engine(model, **TIGHT), asked, 24, **SAMPLED)  # type: ignore[arg-type]
    with genai_lab.record() as trace:
        recorded = answers(Engine(model, **TIGHT), asked, 24, **SAMPLED)  # type: ignore[arg-type]
    assert recorded == plain
    tokens = trace.tokens()
    for run, answer in enumerate(plain):
        mine = tokens[tokens["run"] == run]["token"].tolist()
        assert [t for t in mine if t not in model.config.model.eos_token_ids] == answer


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("mode", [{}, {"exact": True}], ids=["batches", "exact"])
def test_rows_that_wait_to_be_digested_are_those_of_their_step(
    model: genai_lab.Model, mode: dict[str, object], options: dict[str, object]
) -> None:
    asked, frames = prompts(20, 22, 24, 30, shared=9), []
    for megabytes in (0, None):  # digested in their step, and when the trace is read
        with genai_lab.record(logits_mb=megabytes) as trace:
            answers(Engine(model, **TIGHT, **mode), asked, 24, **options)  # type: ignore[arg-type]
        frames.append(trace.tokens()[["run", "token", "prob", "rank", "entropy"]])
    pd.testing.assert_frame_equal(*frames)


def test_any_step_can_be_rebuilt(traced: tuple) -> None:
    trace, _, tables = traced
    assert len(trace.steps()) == len(tables)
    for step, expected in enumerate(tables):
        state = trace.state_at(step)
        assert {h.request: h.block_table for h in state.holders} == expected
        held = trace.blocks(step)
        assert held["filled"].sum() == sum(h.num_tokens for h in state.holders)


def test_the_numbers_of_turns_and_steps_agree(traced: tuple, model: genai_lab.Model) -> None:
    trace, found, _ = traced
    turns, steps = trace.requests(), trace.steps()
    assert turns["generated_tokens"].tolist() == [len(answer) for answer in found]
    assert (turns["arrived_ms"] <= turns["scheduled_ms"]).all()
    assert (turns["scheduled_ms"] < turns["first_token_ms"]).all()
    assert (turns["first_token_ms"] <= turns["finished_ms"]).all()
    assert turns["finish"].isin(["max_generated_tokens", "eos"]).all()
    assert turns["preemptions"].sum() == steps["preempted"].sum() > 0
    assert (turns["recomputed_tokens"][turns["preemptions"] > 0] > 0).all()
    assert (steps["num_tokens"] <= steps["budget"]).all()
    assert (steps["run_ms"] <= steps["dur_ms"]).all()
    assert ((steps["blocks_used"] + steps["blocks_cached"] + steps["blocks_free"]) == TIGHT["num_blocks"]).all()
    # every token that was computed was new or is counted as computed again
    new = turns["prompt_tokens"] + turns["generated_tokens"] - turns["cached_prompt_tokens"]
    assert steps["num_tokens"].sum() <= new.sum() + turns["recomputed_tokens"].sum()


def test_who_reads_again_gets_no_token(traced: tuple) -> None:
    """`decoding` counts answers that got a token: all but each one's first, which comes with its prompt's end."""
    trace, found, _ = traced
    steps, turns = trace.steps(), trace.requests()
    assert steps["decoding"].sum() == len(trace.tokens()) - len(turns)
    again = [trace.why(request, step) for step in steps["step"] for request in range(len(found))]
    assert sum("for the second time" in words for words in again) > 0
    assert any("prefill. 1 token is read, 1 for the second time" in words for words in again)


def test_why_tells_of_who_is_before_it_and_of_the_end(traced: tuple) -> None:
    trace, _, tables = traced
    last = len(tables) - 1
    ended = trace.requests()["finished_ms"].idxmin()
    assert "its turn had ended in step" in trace.why(int(ended), last)
    behind = [words for step in range(last) for n in range(4) if "behind request" in (words := trace.why(n, step))]
    assert behind
    assert all("As for request" in words for words in behind)
    assert trace.why(99, 0).endswith("gave it no word. Requests that were served: 0, 1, 2, 3.")


def test_every_decision_has_its_why(traced: tuple) -> None:
    trace, _, tables = traced
    said = [trace.why(request, step) for step in range(len(tables)) for request in range(4)]
    assert any("needs" in words and "would have admitted it" in words for words in said)
    assert any("loses its place" in words for words in said)
    assert any("Answers under way come first" in words for words in said)
    assert any("Nothing was decided" in words for words in said)
    assert not any("{" in words for words in said)
    with pytest.raises(ArgumentError, match="recorded steps are 0 to"):
        trace.why(0, 10_000)


def test_it_comes_back_from_a_file(traced: tuple, tmp_path: Path) -> None:
    trace, _, tables = traced
    loaded = genai_lab.Trace.load(trace.save(tmp_path / "engine.npz"))
    for step in range(len(tables)):
        assert loaded.state_at(step) == trace.state_at(step)
        assert loaded.why(1, step) == trace.why(1, step)
    assert loaded.steps().equals(trace.steps())


def test_a_trace_without_an_engine_says_so() -> None:
    with genai_lab.record() as trace:
        pass
    assert trace.steps().empty
    assert trace.requests().empty
    with pytest.raises(ArgumentError, match="no engine ran here"):
        trace.state_at(0)


def test_a_policy_that_fails_leaves_the_engine_as_it_was(model: genai_lab.Model) -> None:
    class Broken:
        def plan(self, view: object) -> StepPlan:
            raise ZeroDivisionError

    engine = Engine(model, policy=Broken(), max_session_tokens=100)
    request = engine.create_request()
    request.begin_turn(prompts(9)[0])
    before = engine.view()
    with pytest.raises(ZeroDivisionError):
        engine.step()
    assert engine.view() == before
    assert alone(model, prompts(9)[0], 3)


@pytest.mark.slow
def test_the_figures_show_what_was_recorded(traced: tuple, tmp_path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    trace, _, tables = traced
    timeline, pool = trace.plot.timeline(), trace.plot.pool(3)
    assert [label.get_text() for label in timeline.axes[0].get_yticklabels()] == [f"request {n}" for n in range(4)]
    held = {block for table in tables[3].values() for block in table}
    assert f"{len(held)} of {TIGHT['num_blocks']} blocks in use" in pool.axes[0].get_title(loc="left")
    assert len(pool.axes[0].texts) == len(held)
    timeline.savefig(tmp_path / "timeline.png")
    pool.savefig(tmp_path / "pool.png", dpi=20)
    assert (tmp_path / "pool.png").stat().st_size > 0
    assert plt.get_fignums() == []  # a notebook would show an open one a second time
    with genai_lab.record() as empty:
        pass
    with pytest.raises(ArgumentError, match="no engine steps"):
        empty.plot.timeline()


@pytest.mark.slow
@pytest.mark.parametrize("width", ["a", -1, 0, math.nan, math.inf, 10**400, 1, True, None])
def test_a_width_that_is_none_is_refused(traced: tuple, width: Any) -> None:
    trace = traced[0]
    for draw in (trace.plot.timeline, trace.plot.pool, trace.plot.speculation):
        with pytest.raises((ArgumentError, ArgumentTypeError), match=r"width is .* a number from 4 to 100"):
            draw(width=width)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["a", True, 1.0, []])
def test_a_figure_takes_the_steps_that_state_at_takes(traced: tuple, step: Any) -> None:
    trace = traced[0]
    for call in (trace.state_at, trace.plot.pool):
        with pytest.raises(ArgumentTypeError, match=r"step is .*; allowed is a whole number"):
            call(step)
        with pytest.raises(ArgumentError, match="step 10000 is not in the trace"):
            call(10_000)
    of_numpy = trace.plot.pool(np.int64(3), width=np.float32(4))
    assert of_numpy.axes[0].get_title(loc="left") == trace.plot.pool(3).axes[0].get_title(loc="left")


def test_a_recording_follows_one_engine_and_says_so(tiny_folder: Path) -> None:
    """Requests and steps are counted per engine; a second one would be mixed up with the first."""
    model = genai_lab.Model(tiny_folder)
    with genai_lab.record() as trace:
        Engine(model, max_session_tokens=60).generate_all(["ab", "cd"], max_generated_tokens=5)
        with pytest.warns(UserWarning, match="follows another engine already"):
            answers = Engine(model, max_session_tokens=60).generate_all(["ab"], max_generated_tokens=5)
    assert len(answers) == 1
    assert len(trace.requests()) == 2
