"""A grammar and a person's own callables in the Engine's turns: as in a Generator, and as if nobody else were there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab as og
from genai_lab.engine import Engine
from genai_lab.errors import ArgumentError, ArgumentTypeError, CallableError, GrammarError
from tests.engine.asking import prompts

SAMPLED: dict[str, Any] = {"do_sample": True, "temperature": 1.5, "top_k": 0}
REGEX = "[a-f]{3}(XY)?[0-9]{3}"


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


def alone(model: og.Model, prompt: Any, seed: int | None, regex: str | None, **options: object) -> list[int]:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + 20, random_seed=-1 if seed is None else seed, **options)
    params.set_guidance("regex" if regex else "", regex or "")
    made = og.Generator(model, params)
    made.append_tokens(prompt)
    while not made.is_done():
        made.generate_next_token()
    answer: list[int] = made.get_sequence(0)[len(prompt) :].tolist()
    return answer


def test_every_request_has_its_own_grammar_and_the_tokens_it_has_alone(model: og.Model) -> None:
    asked = prompts(7, 40, 23, 11, 30, 9)
    with Engine(model, max_batch_size=3, chunk_size=16, check_invariants=True) as engine:
        grammars = [REGEX, None, "(yes|no)", REGEX, "[0-9]{6}", None]
        answers = []
        for seed, (prompt, regex) in enumerate(zip(asked, grammars, strict=True)):
            options = SAMPLED | {"seed": seed, "max_generated_tokens": 20}
            answers.append(engine.submit(prompt, **options, **({"guidance": ("regex", regex)} if regex else {})))
        found = [answer.result() for answer in answers]
    for seed, (prompt, regex, got) in enumerate(zip(asked, grammars, found, strict=True)):
        assert got == alone(model, prompt, seed, regex, **SAMPLED)
        if regex:
            assert re.fullmatch(regex, model.tokenizer.decode(got))


def test_preemption_and_reading_again_keep_the_grammar(model: og.Model) -> None:
    asked = prompts(20, 24, 28, 32)
    with (
        og.record() as trace,
        Engine(model, max_batch_size=4, block_size=8, num_blocks=14, check_invariants=True) as engine,
    ):
        found = engine.generate_all(asked, guidance=("regex", "[0-9]{18}"))
    assert trace.requests()["preemptions"].sum() > 0
    for prompt, got in zip(asked, found, strict=True):
        assert isinstance(got, list) and re.fullmatch("[0-9]{18}", model.tokenizer.decode(got))
        assert got == alone(model, prompt, None, "[0-9]{18}")


def test_guidance_is_of_one_turn(model: og.Model) -> None:
    with Engine(model) as engine:
        request, buffer = engine.create_request(), engine.create_event_buffer(64)
        options = og.TurnOptions(request)
        options.set_max_generated_tokens(8)
        options.set_guidance("regex", "[0-9]{3}")
        lengths = []
        for given in (options, options, None):
            if given is None:
                options.clear_guidance()
            request.begin_turn(prompts(9)[0], options)
            before = len(request.tokens())
            while engine.has_pending_requests():
                engine.run(buffer)
            lengths.append(model.tokenizer.decode(request.tokens()[before:]))
        assert all(re.fullmatch("[0-9]{3}", text) for text in lengths[:2])
        assert not re.fullmatch("[0-9]{3}", lengths[2])
        request.rewind_to_start_of_turn(2)
        options.set_guidance("regex", "(yes|no)")
        request.begin_turn(prompts(5)[0], options)
        before = len(request.tokens())
        while engine.has_pending_requests():
            engine.run(buffer)
        assert model.tokenizer.decode(request.tokens()[before:]) in ("yes", "no")


@pytest.mark.slow
def test_a_wrong_grammar_begins_nothing(model: og.Model) -> None:
    with Engine(model, check_invariants=True) as engine:
        request = engine.create_request()
        options = og.TurnOptions(request)
        options.set_guidance("regex", "a(b")
        with pytest.raises(GrammarError, match="column 2"):
            request.begin_turn(prompts(9)[0], options)
        assert request.tokens().size == 0 and not engine.has_pending_requests()
        options.reset()
        request.begin_turn(prompts(9)[0], options)
        engine.run_until_idle()


def test_a_fork_goes_on_in_the_grammar(model: og.Model) -> None:
    with Engine(model, check_invariants=True) as engine:
        request, buffer = engine.create_request(), engine.create_event_buffer(1)
        options = og.TurnOptions(request)
        options.set_guidance("regex", "[0-9]{8}")
        request.begin_turn(prompts(9)[0], options)
        for _ in range(3):
            engine.run(buffer)
        twin = request.fork()
        while engine.has_pending_requests():
            engine.run(buffer)
        for handle in (request, twin):
            assert re.fullmatch("[0-9]{8}", model.tokenizer.decode(handle.tokens()[9:]))


class Fails:
    """Fails in the middle of a step, once."""

    def __init__(self) -> None:
        self.left = 2

    def __call__(self, *_arguments: Any, **_options: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the run failed")


def test_a_step_that_failed_and_was_undone_is_done_again(model: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prompts(12, 15)
    with Engine(model, check_invariants=True) as engine:
        runner = engine._runner
        fails, real = Fails(), runner.run

        def run(*arguments: Any, **options: Any) -> None:
            real(*arguments, **options)
            fails()

        monkeypatch.setattr(runner, "run", run)
        options = og.TurnOptions()
        options.set_guidance("regex", "[0-9]{5}")
        requests = [engine.create_request() for _ in asked]
        for request, prompt in zip(requests, asked, strict=True):
            request.begin_turn(prompt, options)
        with pytest.raises(RuntimeError, match="the run failed"):
            engine.run_until_idle()
        engine.run_until_idle()
        for request, prompt in zip(requests, asked, strict=True):
            assert request.tokens()[prompt.size :].tolist() == alone(model, prompt, None, "[0-9]{5}")


def test_a_persons_callables_work_in_a_turn(model: og.Model) -> None:
    def odd(_tokens: Any, logits: Any) -> None:
        logits[::2] = -np.inf

    with Engine(model) as engine:
        answer = engine.submit(
            prompts(9)[0],
            logits_processors=[odd],
            sampler=lambda logits, rng: int(rng.choice(np.flatnonzero(logits > -np.inf))),
            stopping_criteria=[lambda tokens: "six" if len(tokens) == 15 else None],
            seed=3,
        )
        tokens = answer.result()
        assert len(tokens) == 6 and all(token % 2 for token in tokens)
        assert answer.finish_reason is og.FinishReason.STOPPING_CRITERION
        assert answer._mailbox.last is not None and answer._mailbox.last.stop_reason == "lambda: six"


def test_a_failing_callable_ends_its_own_request_only(model: og.Model) -> None:
    def breaks(tokens: Any, _logits: Any) -> None:
        if len(tokens) == 12:
            raise ZeroDivisionError("mine")

    asked = prompts(9, 14)
    with Engine(model, check_invariants=True) as engine:
        bad = engine.submit(asked[0], logits_processors=[breaks], max_generated_tokens=10)
        good = engine.submit(asked[1], max_generated_tokens=10)
        with pytest.raises(
            CallableError, match="the logits processor 'breaks' raised ZeroDivisionError: mine\n"
        ) as caught:
            bad.result()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert good.result() == alone(model, asked[1], None, None)[:10]
        assert len(bad.tokens) == 3
        with pytest.raises(CallableError, match="breaks"):
            engine.generate_all(asked, logits_processors=[breaks], max_generated_tokens=10)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"guidance": "regex"}, ArgumentTypeError, "a pair is allowed"),
        ({"guidance": ("regex", 3)}, ArgumentTypeError, "set_guidance"),
        ({"logits_processors": len}, ArgumentTypeError, "a list of callables"),
        ({"stopping_criteria": [3]}, ArgumentTypeError, "callable is allowed"),
        ({"guidence": ("regex", "a")}, ArgumentError, "did you mean guidance"),
    ],
)
def test_bad_options_by_name(model: og.Model, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with Engine(model) as engine, pytest.raises(error, match=words):
        engine.submit(prompts(5)[0], **options)


def test_the_earlier_api_takes_the_params_as_they_are(model: og.Model) -> None:
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=60)
    params.set_guidance("regex", "[0-9]{4}")
    with Engine(model) as engine:
        request = og.Request(params)
        request.add_tokens(prompts(9)[0])
        engine.add_request(request)
        found: list[int] = []
        while ready := engine.step():
            while ready.has_unseen_tokens():
                found.append(ready.get_unseen_token())
    assert re.fullmatch("[0-9]{4}", model.tokenizer.decode(found))


def test_the_trace_of_an_engine_has_the_masks(model: og.Model) -> None:
    with og.record() as trace, Engine(model) as engine:
        engine.generate_all(prompts(9, 12), guidance=("regex", "[0-9]{2}"))
    assert sorted(trace.tokens()["allowed"].tolist()) == [1, 1, 10, 10, 10, 10]
    assert trace.recording.runs[0].settings["guidance"]["data"] == "[0-9]{2}"
