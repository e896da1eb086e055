"""A recording of speculation on an offline page: the ribbon marks how each token came about, and says so in words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, expect

import genai_lab as og
from genai_lab.widgets.page import offline_page
from tests.browser.conftest import PATIENCE_MS
from tests.tables import random_table, table_model, table_pair

expect.set_options(timeout=PATIENCE_MS)
WORDS = {1: "accepted", 2: "corrected", 3: "bonus"}
MARKS = {1: "•", 2: "\N{MULTIPLICATION SIGN}", 3: "+"}


def recorded(model: og.Model) -> og.Trace:
    with og.record() as trace:
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=60, do_sample=True, top_k=5, temperature=2.0, random_seed=3)
        params.set_speculative_options(max_draft_tokens=2)
        made = og.Generator(model, params)
        made.append_tokens([1, 2, 3])
        while not made.is_done():
            made.generate_next_token()
    return trace


def opened(page: Page, trace: og.Trace, file: Path) -> None:
    file.write_text(offline_page(trace.recording, ("ribbon",)), encoding="utf-8")
    page.goto(file.as_uri())
    expect(page.locator(".gl[data-ready='1']")).to_have_count(1)


def test_marks_and_words(page: Page, tmp_path: Path) -> None:
    target = random_table(2)
    draft = target + np.random.default_rng(0).standard_normal(target.shape).astype(np.float32)
    trace = recorded(og.Model(table_pair(tmp_path / "model", target, draft)))
    opened(page, trace, tmp_path / "trace.html")
    origins = trace.recording.tokens["origin"].tolist()
    assert set(origins) >= {1, 2, 3}
    shown = page.locator(".gl-tk").evaluate_all("spans => spans.map(span => Number(span.dataset.o ?? 0))")
    assert shown == origins
    for origin, word in WORDS.items():
        token = page.locator(f".gl-tk[data-o='{origin}']").first
        mark = token.evaluate("span => getComputedStyle(span, '::before').content")
        assert mark[1] == MARKS[origin]
        token.evaluate("span => span.click()")
        expect(page.locator("dt", has_text=word)).to_be_visible()
        expect(token).to_have_attribute("aria-label", re.compile("own token|accepted it"))
    expect(page.get_by_text("above a token: • proposed and accepted")).to_be_visible()


def test_without_speculation_nothing_is_said_of_it(page: Page, tmp_path: Path) -> None:
    trace = recorded(og.Model(table_model(tmp_path / "model", random_table(2))))
    opened(page, trace, tmp_path / "trace.html")
    expect(page.locator(".gl-tk")).to_have_count(57)
    expect(page.locator("[data-o]")).to_have_count(0)
    expect(page.get_by_text("above a token")).to_have_count(0)
