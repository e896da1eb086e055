"""`ask` inside a `record()` block: both traces tell the same; nothing that a callback does can wait for itself."""

from __future__ import annotations

import pytest

import genai_lab as og
from genai_lab.errors import StateError
from tests.workbench.live_tools import PATIENCE, Held

pytestmark = pytest.mark.usefixtures("background")
COLUMNS = ["index", "position", "token", "text", "prob", "rank"]


def test_the_block_has_what_was_asked_in_it(tiny: og.Model) -> None:
    with og.record() as outer:
        first = og.ask(tiny, "Hello", max_new_tokens=4)
        second = og.ask(tiny, "the world", max_new_tokens=3)
    assert (first.running, second.running) == (False, False)  # leaving the block waited
    assert [run.question for run in outer.recording.runs] == ["Hello", "the world"]
    for number, own in enumerate([first, second]):
        assert outer.text(number) == own.text()
        same = outer.tokens().query("run == @number")[COLUMNS].reset_index(drop=True)
        assert same.equals(own.tokens()[COLUMNS])
        assert (outer.stages()["run"] == number).sum() == len(own.stages())
        assert outer.candidates(1, run=number).equals(own.candidates(1))


def test_it_is_there_as_soon_as_it_is_done(tiny: og.Model) -> None:
    with og.record() as outer:
        own = og.ask(tiny, "Hello", max_new_tokens=4).wait(PATIENCE)
        assert outer.text() == own.text()
        assert outer.runs()["finish"].tolist() == own.runs()["finish"].tolist()


def test_generators_in_the_same_block_keep_their_runs(tiny: og.Model) -> None:
    params = og.GeneratorParams(tiny)
    params.set_search_options(max_length=12)
    with og.record() as outer:
        own = og.ask(tiny, "Hello", max_new_tokens=4)
        generator = og.Generator(tiny, params)
        prompt = og.Tokenizer(tiny).encode("Hello")
        generator.append_tokens(prompt)
        while not generator.is_done():
            generator.generate_next_token()
    answers = {tuple(frame["token"]) for _, frame in outer.tokens().groupby("run")}
    assert answers == {tuple(own.tokens()["token"]), tuple(generator.get_sequence(0)[prompt.size :].tolist())}


def test_a_branch_of_an_answer_is_a_branch_in_the_block(tiny: og.Model) -> None:
    with og.record() as outer:
        own = og.ask(tiny, "Hello", max_new_tokens=6).wait(PATIENCE)
        own.branch(2, 77)
    facts = outer.recording.runs[1]
    assert (facts.parent, facts.fork, facts.forced) == (0, 2, 77)
    assert outer.text(1) == own.text(1)


def test_a_branch_whose_parent_was_elsewhere_is_a_run_of_its_own(tiny: og.Model) -> None:
    own = og.ask(tiny, "Hello", max_new_tokens=6).wait(PATIENCE)
    with og.record() as outer:
        own.branch(2)
    facts = outer.recording.runs[0]
    assert (len(outer.runs()), facts.parent, facts.fork) == (1, None, None)


def test_the_block_can_be_continued_and_saved(tiny: og.Model, tmp_path: object) -> None:
    with og.record() as outer:
        og.ask(tiny, "Hello", max_new_tokens=6)
    outer.branch(2, 77).wait(PATIENCE)
    assert outer.recording.runs[1].parent == 0
    assert og.Trace.load(outer.save(f"{tmp_path}/trace.npz")).text() == outer.text()


def test_an_answer_that_failed_is_a_failed_run_of_both(tiny: og.Model) -> None:
    def broken(text: str) -> None:
        raise ValueError("no ink")

    with og.record() as outer:
        own = og.ask(tiny, "Hello", max_new_tokens=6, on_text=broken)
    assert outer.recording.runs[0].status == "failed"
    with pytest.raises(ValueError, match="no ink"):
        own.wait(PATIENCE)


def test_an_error_in_the_block_does_not_wait(tiny: og.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, tokens=2)
    with pytest.raises(KeyError), og.record():
        own = og.ask(tiny, "Hello", max_new_tokens=6)
        raise KeyError
    assert own.running
    held.let_go()
    own.wait(PATIENCE)


def test_an_interrupt_at_the_end_of_the_block_stops_the_answers(
    tiny: og.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, tokens=2)

    class Impatient:
        """Waits for one answer, then is interrupted."""

        def is_set(self) -> bool:
            return False

        def wait(self) -> None:
            held.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), og.record():
        own = og.ask(tiny, "Hello", max_new_tokens=200)
        job, done = own.driver._jobs[0], own.driver._jobs[0].done
        job.done = Impatient()  # type: ignore[assignment]
    job.done = done
    held.let_go()
    own.wait(PATIENCE)
    assert own.recording.runs[0].status == "stopped"


def test_waiting_in_a_callback_is_refused_and_asking_there_works(tiny: og.Model) -> None:
    asked: list[og.Trace] = []
    refused: list[str] = []

    def on_text(text: str) -> None:
        if asked:
            return
        asked.append(og.ask(tiny, "the world", max_new_tokens=3))
        for waiting in (asked[0].wait, own.wait, leave_a_block):
            with pytest.raises(StateError) as error:
                waiting()
            refused.append(str(error.value))

    def leave_a_block() -> None:
        with og.record():
            og.ask(tiny, "Hello", max_new_tokens=1)

    own = og.ask(tiny, "Hello", max_new_tokens=6, on_text=on_text)
    own.wait(PATIENCE)
    assert asked[0].wait(PATIENCE).text() == og.ask(tiny, "the world", max_new_tokens=3).wait(PATIENCE).text()
    assert len(refused) == 3
    assert all("inside on_text" in words for words in refused)
