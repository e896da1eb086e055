"""The pictures on an offline page, from a file: they show what was recorded, are linked, recompute by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from genai_lab.tracing import Recorder, Recording
from genai_lab.widgets.page import offline_page
from tests.browser.conftest import PATIENCE_MS
from tests.browser.labpage import screenshot
from tests.browser.watch import PageWatch
from tests.widgets.recorded import WORDS, ScriptedRun

expect.set_options(timeout=PATIENCE_MS)

TOKENS = 40
OpenPage = Callable[..., Page]
LINKED = "() => new Set([...document.querySelectorAll('.gl')].map(e => e.dataset.selected)).size === 1"


def recording(settings: dict[str, object] | None = None) -> Recording:
    recorder = Recorder()
    recorder.question("What did the fox say?")
    run = ScriptedRun(recorder, vocabulary=3000)
    recorder.runs[0].settings |= settings or {}
    run.write(TOKENS)
    recorder.close_run(0, "length")
    ScriptedRun(recorder, vocabulary=3000, parent=0, fork=3, forced=5).write(6)
    recorder.close_run(1, "eos")
    return recorder.snapshot()


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> OpenPage:
    """Opens an offline page with the given views, and waits until each is drawn."""

    def open_page(*kinds: str, settings: dict[str, object] | None = None) -> Page:
        file = tmp_path / "trace.html"
        file.write_text(offline_page(recording(settings), kinds), encoding="utf-8")
        page.goto(file.as_uri())
        expect(page.locator(".gl[data-ready='1']")).to_have_count(len(kinds))
        return page

    return open_page


def view(page: Page, kind: str) -> Locator:
    return page.locator(f".gl[data-kind='{kind}']")


def test_the_tokens_are_there_and_hostile_ones_are_text(page: Page, opened: OpenPage) -> None:
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    opened("all")
    root = view(page, "all")
    expect(root).to_have_attribute("data-tokens", str(TOKENS + 1 + 6))
    expect(root).to_have_attribute("data-runs", "2")
    expect(root).to_have_attribute("data-status", "done")
    tokens = page.locator(".gl-run[data-run='0'] .gl-tk")
    expect(tokens).to_have_count(TOKENS)
    assert WORDS[5].strip() in page.locator(".gl-branch .gl-tk").first.inner_text()
    assert page.locator("script").count() == 2  # the data's and the host's
    assert dialogs == []
    expect(page.get_by_text("What did the fox say?")).to_be_visible()


def test_nothing_but_the_file_is_asked_for(page: Page, tmp_path: Path) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.split(":")[0]))
    file = tmp_path / "trace.html"
    file.write_text(offline_page(recording()), encoding="utf-8")
    page.goto(file.as_uri())
    view(page, "all").and_(page.locator("[data-ready='1']")).wait_for()
    assert asked[0] == "file" and set(asked[1:]) == {"blob"}  # the bundle, which the page carries
    assert page.evaluate("() => fetch('data:text/plain,a').then(() => 'fetched', () => 'refused')") == "refused"


def test_a_token_picked_in_one_picture_is_picked_in_all(opened: OpenPage) -> None:
    page = opened("ribbon", "pipeline", "timeline")
    page.locator(".gl-run[data-run='0'] .gl-tk").nth(7).click()
    for kind in ("ribbon", "pipeline", "timeline"):
        expect(view(page, kind)).to_have_attribute("data-selected", "0:7")
    canvas = view(page, "timeline").locator("canvas[tabindex='0']")
    canvas.focus()
    canvas.press("ArrowRight")
    for kind in ("ribbon", "pipeline", "timeline"):
        expect(view(page, kind)).to_have_attribute("data-selected", "0:8")
    expect(page.locator(".gl-run[data-run='0'] .gl-tk").nth(8)).to_have_attribute("aria-selected", "true")
    assert page.evaluate(LINKED)


def test_the_keyboard_walks_through_the_answer(opened: OpenPage) -> None:
    page = opened("ribbon")
    page.locator(".gl-run[data-run='0'] .gl-tk").nth(4).click()
    page.keyboard.press("ArrowRight")
    expect(view(page, "ribbon")).to_have_attribute("data-selected", "0:5")
    page.keyboard.press("End")
    expect(view(page, "ribbon")).to_have_attribute("data-selected", f"0:{TOKENS - 1}")


def test_sliders_recompute_without_a_kernel(opened: OpenPage) -> None:
    page = opened("pipeline", settings={"mode": "sample", "temperature": 1.0, "top_k": 0})
    root = view(page, "pipeline")
    expect(root).to_have_attribute("data-kernel", "absent")
    shares = root.locator(".gl-c .gl-val")
    temperature, top_k = (root.get_by_role("slider", name=name, exact=True) for name in ("temperature", "top-k"))

    def last_share() -> float:
        return float(root.locator(".gl-c").nth(5).locator(".gl-val").inner_text().split()[0])  # after every filter

    flat = last_share()
    temperature.fill("0.5")
    expect(shares.first).to_be_visible()
    steep = last_share()
    assert steep > flat
    top_k.focus()
    top_k.press("Home")  # the strictest end or "off"
    top_k.press("ArrowRight")
    left = root.locator(".gl-num b").inner_text()
    assert 0 < int(left.replace("\u202f", "").replace("\u00a0", "").replace(" ", "")) < 3000
    root.get_by_role("button", name="Draw 1000 times").click()
    expect(root).to_have_attribute("data-draws", "1")
    root.get_by_role("button", name="As recorded").click()
    assert last_share() == flat


def test_without_a_kernel_nothing_new_can_be_generated(opened: OpenPage) -> None:
    page = opened("all")
    choice = page.locator(".gl-alt:not(.gl-sel)").first
    expect(choice).to_have_attribute("aria-disabled", "true")
    choice.click(force=True)
    expect(view(page, "all")).to_have_attribute("data-runs", "2")
    expect(page.get_by_text("no running notebook").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_readers_light_or_dark(page: Page, opened: OpenPage, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    opened("all")
    expect(view(page, "all")).to_have_attribute("data-theme", scheme)
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(14, 17, 21)") is (scheme == "dark")
    other = "dark" if scheme == "light" else "light"
    page.emulate_media(color_scheme=other)  # type: ignore[arg-type]
    expect(view(page, "all")).to_have_attribute("data-theme", other)
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.screenshot(path=screenshot(page, f"offline-{scheme}"), full_page=True)


def test_where_no_script_runs_the_still_picture_stays(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "trace.html"
    file.write_text(offline_page(recording()), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page = context.new_page()
    watch = PageWatch(page)
    page.goto(file.as_uri())
    expect(page.get_by_text("What did the fox say?")).to_be_visible()
    expect(page.locator("u", has_text=WORDS[5].strip()).first).to_be_visible()
    page.get_by_text("Where the time went").click()
    expect(page.get_by_role("cell", name="run model").first).to_be_visible()
    screenshot(page, "still-dark")
    context.close()
    watch.verify()
