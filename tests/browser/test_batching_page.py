"""The batching timeline on an offline page: one click says why a request waits, keys walk, marks lead on."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

import genai_lab
from genai_lab.analysis.engine_frames import roles
from tests.browser.conftest import PATIENCE_MS
from tests.browser.served import OpenPage, open_page, serve_five

expect.set_options(timeout=PATIENCE_MS)

TOP, ROW, NAMES, RIGHT, WIDEST_STEP = 14, 22, 196, 14, 28  # measures of batching_layout.ts


@pytest.fixture(scope="module")
def trace(tiny_folder: Path) -> genai_lab.Trace:
    return serve_five(tiny_folder, chunk_size=12)


@pytest.fixture
def opened(page: Page, tmp_path: Path, trace: genai_lab.Trace) -> OpenPage:
    """The page, drawn; its root."""
    return partial(open_page, page, tmp_path / "trace.html", trace)


def cells(trace: genai_lab.Trace, role: str) -> list[tuple[int, int]]:
    """(step, request) of every decision of a kind."""
    decisions = trace.recording.tables["decisions"]
    mine = roles(trace.recording) == role
    return list(zip(decisions["step"][mine].tolist(), decisions["request"][mine].tolist(), strict=True))


def canvas(root: Locator) -> Locator:
    return root.locator(".gl-lanes canvas")


def click_cell(root: Locator, trace: genai_lab.Trace, step: int, request: int) -> None:
    box = canvas(root).bounding_box()
    assert box is not None
    width = min(WIDEST_STEP, (box["width"] - NAMES - RIGHT) / len(trace.steps()))
    position = {"x": NAMES + (step + 0.5) * width, "y": TOP + request * ROW + ROW / 2}
    canvas(root).click(position=position)  # type: ignore[arg-type]


def test_one_click_says_why_a_request_waits(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("batching")
    step, request = cells(trace, "wait")[-1]
    click_cell(root, trace, step, request)
    expect(root).to_have_attribute("data-at", f"{step}:{request}:")
    why = root.locator(".gl-why")
    expect(why.locator("h3")).to_contain_text(f"Request {chr(65 + request)} in step {step}: waits")
    expect(why.locator("p")).to_contain_text("It waits")
    assert "It waits" in trace.why(request, step)
    assert why.locator("tr").count() >= 2


def test_the_request_that_is_in_the_way_can_be_asked_in_turn(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("batching")
    step, request = next((s, r) for s, r in cells(trace, "wait") if "behind request" in trace.why(r, s))
    click_cell(root, trace, step, request)
    expect(root.locator(".gl-why p")).to_contain_text("As for request")
    root.locator(".gl-why .gl-lnk").first.click()
    expect(root.locator(".gl-why h3")).to_contain_text(f"in step {step}")
    expect(root).not_to_have_attribute("data-at", f"{step}:{request}:")


@pytest.mark.parametrize(("kind", "verdict"), [("wait", "wait"), ("preempt", "preempt"), ("prefill", "prefill")])
def test_the_legend_leads_to_the_next_of_a_kind(
    opened: OpenPage, trace: genai_lab.Trace, kind: str, verdict: str
) -> None:
    root = opened("batching")
    assert cells(trace, verdict)
    canvas(root).press("Home")
    button = root.locator(f".gl-jump[data-kind='{kind}']")
    seen = set()
    for _ in range(int(button.locator("b").inner_text())):
        button.click()
        step, request, _block = (root.get_attribute("data-at") or "").split(":")
        assert (int(step), int(request)) in cells(trace, verdict)
        seen.add((step, request))
    assert len(seen) == int(button.locator("b").inner_text())


def test_keys_walk_by_step_and_request_and_other_pictures_follow(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("batching", "blocks")
    click_cell(root, trace, 3, 1)
    for key, at in [("ArrowRight", "4:1:"), ("ArrowDown", "4:2:"), ("Shift+ArrowRight", "14:2:"), ("Home", "0:2:")]:
        canvas(root).press(key)
        for view in root.page.locator(".gl").all():
            expect(view).to_have_attribute("data-at", at)
    canvas(root).press("End")
    expect(root).to_have_attribute("data-at", f"{len(trace.steps()) - 1}:2:")


def test_the_table_says_the_same_as_the_picture(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("batching")
    step, request = cells(trace, "preempt")[0]
    click_cell(root, trace, step, request)
    root.locator("summary").click()
    rows = root.locator(".gl-tab tbody tr")
    every = {r for verdict in ("wait", "prefill", "decode", "preempt") for s, r in cells(trace, verdict) if s == step}
    expect(rows).to_have_count(len(every))
    mine = rows.filter(has_text=f"({request})")
    expect(mine).to_contain_text("loses its place")


def test_zooming_changes_the_picture_says_so_and_back_again(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("batching")
    pixels = "c => c.toDataURL()"
    whole = canvas(root).evaluate(pixels)
    part = root.locator(".gl-keys-line > b")
    expect(part).to_be_hidden()
    canvas(root).press("w")
    expect(part).to_contain_text(f" of {len(trace.steps())}; 0 shows all.")
    near = canvas(root).evaluate(pixels)
    assert near != whole
    canvas(root).press("d")
    assert canvas(root).evaluate(pixels) != near
    canvas(root).press("0")
    assert canvas(root).evaluate(pixels) == whole
    expect(part).to_be_hidden()


@pytest.mark.parametrize("kind", ["engine", "batching"])
def test_its_keys_stand_below_it_and_no_others(opened: OpenPage, kind: str) -> None:
    root = opened(kind)
    line = root.locator(".gl-keys-line")
    for key in ("N B", "W S", "A D", "F", "0"):
        expect(line.get_by_text(key, exact=True)).to_be_visible()
    expect(canvas(root)).to_have_attribute("aria-description", re.compile("W S zoom"))
    expect(line.get_by_text("space", exact=True)).to_have_count(1 if kind == "engine" else 0)  # nothing plays it alone


@pytest.mark.parametrize("width", [600, 960])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_narrow_and_wide_light_and_dark(page: Page, opened: OpenPage, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    root = opened("batching")
    expect(root).to_have_attribute("data-theme", scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
