"""The still picture: hostile text stays text, sizes are bounded, and it needs nothing that a sanitiser drops."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from genai_lab.tracing import Recorder, Recording
from genai_lab.widgets.still import STAGES, still_picture
from tests.widgets.recorded import ScriptedRun

KINDS = ("all", "ribbon", "pipeline", "timeline")
ALLOWED = {"div", "p", "b", "u", "details", "summary", "table", "tr", "th", "td"}


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.words = ""
        self.depth = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        self.words += data


def recorded(tokens: int = 40, question: str = "why?", vocabulary: int = 60, **run: int) -> Recording:
    recorder = Recorder()
    recorder.question(question)
    ScriptedRun(recorder, vocabulary).write(tokens, penalty=1.2)
    if run:
        ScriptedRun(recorder, vocabulary, parent=0, **run).write(3)
    return recorder.snapshot()


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_a_sanitiser_keeps(kind: str) -> None:
    tags = Tags(still_picture(recorded(fork=3, forced=5), kind))
    assert set(tags.tags) <= ALLOWED
    assert tags.attributes <= {"style", "align"}
    assert tags.depth == 0


@pytest.mark.parametrize("kind", ("all", "ribbon", "pipeline"))
def test_hostile_tokens_stay_text(kind: str) -> None:
    html = still_picture(recorded(vocabulary=9), kind)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&amp;amp;" in html  # a token that looks like an entity


def test_hostile_questions_errors_and_stages_stay_text() -> None:
    recorder = Recorder()
    recorder.question("<img src=x onerror=alert(1)>\u202e\x00")
    ScriptedRun(recorder).write(1)
    recorder.stage(0, 0, "<b onclick=x>", 0, 5_000_000)
    recorder.close_run(0, "failed", "<iframe src=//x>")
    tags = Tags(still_picture(recorder.snapshot()))
    assert set(tags.tags) <= ALLOWED and tags.attributes <= {"style", "align"}
    assert "<img src=x onerror=alert(1)><202E><00>" in tags.words
    assert "<iframe src=//x>" in tags.words and "<b onclick=x>" in tags.words


def test_it_says_what_was_said_and_what_could_have_been() -> None:
    recording = recorded(6, "Which way?", fork=3, forced=5)
    words = Tags(still_picture(recording)).words
    assert "Which way?" in words
    assert "Branch 1 at token 4: “" in words
    row = int(np.argmax(recording.tokens["entropy"]))
    assert f"How token {int(recording.tokens['index'][row]) + 1} was picked" in words
    for name in recording.stage_names:
        assert STAGES[name] in words


def test_the_same_question_once_more_is_no_branch() -> None:
    words = Tags(still_picture(recorded(6, "Which way?", fork=0))).words
    assert "Again 1: the same question once more" in words
    assert "Branch 1: drawn anew from token 3 on" in Tags(still_picture(recorded(6, "Which way?", fork=2))).words


@pytest.mark.slow
def test_its_size_is_bounded() -> None:
    recorder = Recorder()
    for run in range(6):
        ScriptedRun(recorder, seed=run).write(400)
    html = still_picture(recorder.snapshot())
    assert len(html) < 100_000
    assert "and 240 tokens more" in html and "and 2 answers more" in html


def test_nothing_recorded_is_said_in_words() -> None:
    words = Tags(still_picture(Recorder().snapshot())).words
    assert "No token was recorded yet." in words


def test_stages_without_an_answer_are_said_in_words() -> None:
    recorder = Recorder()
    recorder.stage(0, 0, "tokenize", 0, 5_000_000)
    assert "There are timed stages but no answer in this recording" in Tags(still_picture(recorder.snapshot())).words


def test_colours_are_tints_of_whatever_page_it_is_in() -> None:
    html = still_picture(recorded())
    assert "color:" not in html  # the page's own text colour stays
    opacities = [int(found, 16) for found in re.findall(r'<u style="background:#56a0e6([0-9a-f]{2})"', html)]
    assert len(opacities) == 40 and max(opacities) <= 128


def test_stages_are_called_as_in_the_live_timeline() -> None:
    source = (Path(__file__).parents[2] / "widgets" / "src" / "times.ts").read_text(encoding="utf-8")
    table = source[source.index("const WORDS") : source.index("};", source.index("const WORDS"))]
    assert dict(re.findall(r'^  (\w+): \["([^"]+)"', table, re.MULTILINE)) == STAGES
    assert "run model" in still_picture(recorded()) and "run_decode" not in still_picture(recorded())
