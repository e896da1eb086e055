"""The three views on an offline page: a quiet panel, a pick that stays, words for parts of characters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from genai_lab.tracing import Recorder
from genai_lab.widgets.page import offline_page
from tests.browser.conftest import PATIENCE_MS
from tests.widgets.recorded import ScriptedRun
from tests.widgets.test_parts import describe

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Page:
    """An answer with an emoji of three tokens, a branch of it, and the question answered again."""
    recorder = Recorder()
    recorder.question("Smile?")
    first = ScriptedRun(recorder, describe=describe)
    for token in (7, 1, 2, 3, *range(20, 40)):
        logits = np.full(500, -9, np.float32)
        logits[token] = 9
        first._put(logits, None)
    recorder.close_run(0, "length")
    ScriptedRun(recorder, describe=describe, parent=0, fork=6, forced=50).write(5)
    recorder.close_run(1, "length")
    ScriptedRun(recorder, describe=describe, parent=0, fork=0, seed=3).write(5)
    recorder.close_run(2, "length")
    file = tmp_path / "trace.html"
    file.write_text(offline_page(recorder.snapshot()), encoding="utf-8")
    page.goto(file.as_uri())
    expect(page.locator(".gl[data-ready='1']")).to_have_count(1)
    return page


def token(page: Page, run: int, place: int) -> Locator:
    return page.locator(f"[data-run='{run}'] .gl-tk").nth(place)


@pytest.mark.parametrize("width", [600, 800, 1000])
def test_hovering_looks_and_the_panel_keeps_its_height(opened: Page, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 900})
    root, panel = opened.locator(".gl"), opened.locator(".gl-pin")
    token(opened, 0, 5).click()
    expect(root).to_have_attribute("data-selected", "0:5")
    token(opened, 0, 3).hover()
    expect(panel.locator(".gl-glance")).to_contain_text("token 6 stays picked")
    expect(panel.locator("h3").first).to_contain_text("at token 4")
    heights = set()
    for run, place in ((0, 9), (1, 0), (2, 0), (2, 3), (0, 0), (0, 12)):
        token(opened, run, place).hover()
        heights.add(panel.bounding_box()["height"])  # type: ignore[index]
    assert len(heights) <= 2  # it may grow once, to its highest content
    expect(root).to_have_attribute("data-selected", "0:5")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


def test_closing_moves_the_pick_only_when_it_was_inside(opened: Page) -> None:
    root = opened.locator(".gl")
    token(opened, 0, 9).click()
    opened.locator("[data-run='2'] .gl-h button").click()
    expect(root).to_have_attribute("data-selected", "0:9")
    expect(opened.locator(".gl-closed")).to_contain_text("1 more answer closed")
    token(opened, 1, 2).click()
    opened.locator("[data-run='1'] .gl-h button").click()
    expect(root).to_have_attribute("data-selected", "0:6")
    expect(opened.locator(".gl-closed")).to_contain_text("2 branches or answers closed")


def test_a_character_of_three_tokens_stands_in_the_first_and_each_says_which_part_it_is(opened: Page) -> None:
    assert [token(opened, 0, i).inner_text() for i in (1, 2, 3)] == ["😀1/3", "2/3", "3/3"]
    expect(token(opened, 0, 2)).to_have_attribute("title", "⟨part 2 of 3 of 😀⟩")
    token(opened, 0, 3).click()
    expect(opened.locator(".gl-alt.gl-sel .gl-w")).to_have_text("⟨last part of 😀⟩")
    expect(opened.locator(".gl-trail")).to_contain_text("⟨part 3 of 3 of 😀⟩")


def test_an_again_is_no_branch_and_a_token_by_hand_took_no_time(opened: Page) -> None:
    expect(opened.locator(".gl-runs button")).to_have_text(["answer", "branch 1", "again 1"])
    token(opened, 1, 0).click()
    expect(opened.locator(".gl-trail")).to_contain_text("was put here by hand")
    expect(opened.locator(".gl-read", has_text="nothing was computed to choose it")).to_be_visible()
    opened.get_by_role("button", name="Latency").click()
    assert token(opened, 1, 0).evaluate("e => e.style.getPropertyValue('--w')") == "0%"
