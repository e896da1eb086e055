"""A guided run in the workbench: its branches stay in the grammar, whichever generator continues it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError

REGEX = "[a-f]{4}(XY)?[0-9]{4}"
PROMPT = [1, 20, 30, 40, 50]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def guided(model: og.Model) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=60, do_sample=True, random_seed=3, top_k=0)
    params.set_guidance("regex", REGEX)
    made = og.Generator(model, params)
    made.append_tokens(PROMPT)
    while not made.is_done():
        made.generate_next_token()
    return made


def text(trace: Any, run: int) -> str:
    return str(trace.text(run))


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["generator", "model only", "file"])
def test_branches_stay_in_the_grammar(model: og.Model, keep: str, tmp_path: Path) -> None:
    with og.record() as trace:
        made = guided(model)
    if keep != "generator":
        made.close()
        del made
    if keep == "file":
        trace = og.Trace.load(trace.save(tmp_path / "trace.npz"))
    trace.show(model=model)
    for index, token in ((2, int(model.tokenizer.encode("a")[0])), (1, None), (5, None)):
        trace.branch(index, token)
        trace.wait()
    runs = trace.runs()
    assert len(runs) == 4 and (runs["status"] == "done").all()
    for run in runs["run"]:
        assert re.fullmatch(REGEX, text(trace, int(run)).replace("<|im_end|>", ""))


def test_a_branch_to_a_forbidden_token_fails_and_says_so(model: og.Model) -> None:
    with og.record() as trace:
        made = guided(model)
    trace.show(model=model)
    trace.branch(1, int(model.tokenizer.encode("z")[0]))
    with pytest.raises(ArgumentError, match=r"do not follow the grammar|does not allow"):
        trace.wait()
    assert trace.runs()["status"].tolist() == ["done", "failed"]
    assert made.token_count() > len(PROMPT)
