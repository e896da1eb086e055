"""Engines, batches and speculation lend a trace no model: it says so, though they live, and goes on when given one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, StateError
from genai_lab.workbench.continuing import NEVER_KNOWN, NO_MODEL
from tests.tiny import tiny_model_folder
from tests.workbench.live_tools import PATIENCE, Page
from tests.workbench.test_live import plain_tokens
from tests.workbench.test_live_branch import PROMPT, answer

pytestmark = pytest.mark.usefixtures("background")
LENGTH = 20


def by_generator(model: og.Model, prompt: list[int] | list[list[int]], speculates: bool = False) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=LENGTH, batch_size=len(prompt) if isinstance(prompt[0], list) else 1)
    if speculates:
        params.set_speculative_options(ngram_size=2)
    generator = og.Generator(model, params)
    generator.append_tokens(prompt)
    while not generator.is_done():
        generator.generate_next_token()
    return generator


def by_engine(model: og.Model) -> og.Engine:
    engine = og.Engine(model)
    options = og.TurnOptions()
    options.set_max_generated_tokens(LENGTH - len(PROMPT))
    request = engine.create_request()  # one that nobody holds is closed
    request.begin_turn(PROMPT, options)
    engine.run_until_idle()
    return engine


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    """With the logits of every position, which speculation needs."""
    return og.Model(tiny_model_folder(tmp_path_factory.mktemp("all"), extra_options={"prune_lm_head": False}))


WRITERS: dict[str, Callable[[og.Model], og.Engine | og.Generator]] = {
    "engine": by_engine,
    "batch": lambda model: by_generator(model, [PROMPT, PROMPT]),
    "speculation": lambda model: by_generator(model, PROMPT, speculates=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_what_lives_is_not_said_to_be_gone(tiny: og.Model, writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with og.record() as trace:
        alive = WRITERS[writer](tiny)
    page = Page(trace, monkeypatch)
    page.say(type="hello")
    assert (page.state["can"]["branch"], page.state["why"]) == (False, NEVER_KNOWN)
    with pytest.raises(StateError, match=r"does not know the model.*trace\.show\(model=model\)"):
        trace.branch(2, 7)
    runs = len(trace.runs())
    trace.show(model=tiny)
    assert page.state["can"]["branch"]
    trace.branch(2, 7).wait(PATIENCE)
    branch = answer(trace, runs)
    assert branch == [7, *plain_tokens(tiny, [*PROMPT, *answer(trace, 0)[:2], 7], len(branch) - 1)]
    assert len(branch) > 1
    alive.close()


@pytest.mark.parametrize("several", [{"batch_size": 2}, {"num_beams": 3}])
def test_a_branch_is_one_answer(tiny: og.Model, several: dict[str, int]) -> None:
    with og.record() as trace:
        by_generator(tiny, PROMPT)
    trace.show(model=tiny)
    with pytest.raises(ArgumentError, match=f"{next(iter(several))} is .; a branch is one answer"):
        trace.branch(2, 7, **several)
    assert len(trace.runs()) == 1


def test_one_known_generator_does_not_stand_for_the_others(tiny: og.Model) -> None:
    with og.record() as trace:
        by_generator(tiny, PROMPT)
    assert trace.driver.abilities.why == NO_MODEL  # nobody holds it
    with og.record() as trace:
        by_generator(tiny, PROMPT)
        by_engine(tiny).close()
    assert trace.driver.abilities.why == NEVER_KNOWN
