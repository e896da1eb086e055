"""The pair of models that the package ships: small, at hand without a network, fluent in what it learned, in agreement.

The draft's agreement and the target's memory are those of fixed weights: they change when the pair is trained again,
and the numbers here and in `genai_lab/workbench/tiny/README.md` with them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import genai_lab as og
from genai_lab.workbench import weights
from genai_lab.workbench.cli import main
from genai_lab.workbench.default_model import checkpoint_file, model_folder
from genai_lab.workbench.shipped import FOLDER
from tests.builder.run import Runner
from tests.workbench.live_tools import PATIENCE
from tools.tiny.measure import accepted_a_round, agreements_on
from tools.tiny.text import read_book

NAMES = ("tiny", "tiny-draft")
AGREEMENT, ACCEPTED = 0.75, 1.9  # 0.83 and 2.3 were measured on more text
FIRST_WORDS = "The rabbit-hole went straight on like a tunnel for some way,"
pytestmark = pytest.mark.usefixtures("background")


@pytest.fixture(autouse=True)
def no_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise AssertionError("nothing should be fetched")

    monkeypatch.setattr(weights, "_fetch_wheel", refuse)


def test_both_are_at_most_6_mb_and_the_draft_is_several_times_smaller() -> None:
    sizes = [checkpoint_file(name).stat().st_size for name in NAMES]
    assert sum(sizes) <= 6_000_000
    assert sizes[1] * 5 < sizes[0]
    assert all(checkpoint_file(name).parent == FOLDER for name in NAMES)


def test_they_share_a_tokenizer_and_have_room() -> None:
    first, second = (model_folder(name) for name in NAMES)
    assert (first / "tokenizer.json").read_bytes() == (second / "tokenizer.json").read_bytes()
    for folder in (first, second):
        model = json.loads((folder / "genai_config.json").read_text(encoding="utf-8"))["model"]
        assert model["context_length"] >= 512
        assert model["decoder"]["head_size"] % 16 == 0


@pytest.mark.parametrize("name", NAMES)
def test_they_give_the_logits_of_every_position(name: str) -> None:
    assert Runner(model_folder(name)).step(np.array([[5, 6, 7]])).shape == (1, 3, 1536)


@pytest.mark.slow
def test_the_two_in_one_folder_write_what_the_target_writes_alone() -> None:
    plain, speculative = og.load("tiny"), og.load("tiny-speculative")
    assert speculative.config.model.draft is not None
    tokens = og.Tokenizer(plain).encode(read_book().by_heart)
    for start in (0, 1000, 5000):
        answers = []
        for model in (plain, speculative):
            params = og.GeneratorParams(model)
            params.set_search_options(max_length=80)
            generator = og.Generator(model, params)
            generator.append_tokens(tokens[start : start + 24])
            while not generator.is_done():
                generator.generate_next_token()
            answers.append(generator.get_sequence(0).tolist())
        assert answers[0] == answers[1]
        assert generator.get_speculative_stats()["draft_tokens_accepted"] > 10


def test_other_precisions_are_to_be_had() -> None:
    folder = model_folder("tiny-draft", "int4")
    assert folder != model_folder("tiny-draft")
    assert og.Model(folder).config.model.type == "llama"


def test_it_goes_on_as_the_book_does() -> None:
    trace = og.ask(og.load("tiny"), FIRST_WORDS, chat=False, max_new_tokens=24).wait(PATIENCE)
    text = trace.text()
    assert len(text) > 40
    assert text in read_book().by_heart.split(FIRST_WORDS)[1]


def test_its_chat_template_is_the_text_as_it_is() -> None:
    model = og.load("tiny")
    plain = og.ask(model, FIRST_WORDS, chat=False, max_new_tokens=12).wait(PATIENCE)
    chat = og.ask(model, FIRST_WORDS, max_new_tokens=12).wait(PATIENCE)
    said = og.ask(model, [{"role": "user", "content": FIRST_WORDS}], max_new_tokens=12).wait(PATIENCE)
    assert plain.text() == chat.text() == said.text()


@pytest.mark.slow
def test_the_draft_says_what_the_target_says() -> None:
    agreements = agreements_on(read_book().by_heart, answers=8)
    assert np.concatenate(agreements).mean() > AGREEMENT
    assert accepted_a_round(agreements, 4) > ACCEPTED


def test_the_demo_runs_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.html"
    assert main(["demo", FIRST_WORDS, "--model", "tiny", "--max-new-tokens", "8", "--out", str(out)]) == 0
    words = capsys.readouterr().out
    assert "8 tokens" in words and words.split("\n")[0].strip() in read_book().by_heart
    assert "genai-lab-widgets" in out.read_text(encoding="utf-8")


def test_what_they_are_made_of_is_said_beside_them() -> None:
    words = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert checkpoint_file(name).name in words
    assert re.search("public domain", words) and re.search("Alice's Adventures in Wonderland", words)
