"""An engine's run on an offline page: one playhead for all pictures, blocks that say why, and only the keyboard."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

import genai_lab
from tests.browser.conftest import PATIENCE_MS
from tests.browser.served import OpenPage, open_page, serve_five

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def trace(tiny_folder: Path) -> genai_lab.Trace:
    return serve_five(tiny_folder)


@pytest.fixture
def opened(page: Page, tmp_path: Path, trace: genai_lab.Trace) -> OpenPage:
    """The page, drawn; its root."""
    return partial(open_page, page, tmp_path / "trace.html", trace)


def place(root: Locator) -> list[str]:
    """Step, request and block that are looked at."""
    return (root.get_attribute("data-at") or "").split(":")


def test_an_engine_s_trace_is_one_picture_with_one_playhead(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("all")
    steps = len(trace.steps())
    expect(root).to_have_attribute("data-steps", str(steps))
    expect(root.locator(".gl-card h2")).to_have_count(3)  # who is served, where memory lives, what was said
    name = root.locator(".gl-trail .gl-lnk").first.inner_text().split()[0]
    expect(root.locator(".gl-pin h3").first).to_have_text(f"What else could it have said at token {name}?")
    slider = root.locator(".gl-playhead .gl-rng")
    slider.fill("4")
    assert place(root)[0] == "4"
    root.locator(".gl-playhead [aria-label^='One step on']").click()
    assert place(root)[0] == "5"
    expect(root.locator(".gl-where")).to_contain_text("step 5")
    expect(root.locator(".gl-map .gl-num")).to_contain_text("in step 5")
    slider.focus()
    for key in (",", ",", "."):
        slider.press(key)
    assert place(root)[0] == "4"


def test_space_plays_and_stops(opened: OpenPage) -> None:
    root = opened("engine")
    root.locator(".gl-playhead .gl-rng").fill("0")
    canvas = root.locator(".gl-mapover")
    canvas.press(" ")
    expect(root.locator("[aria-label='Pause (space)']")).to_have_count(1)
    expect(root).to_have_attribute("data-at", "2:0:")
    canvas.press(" ")
    expect(root.locator("[aria-label='Play (space)']")).to_have_count(1)


def test_the_chosen_request_s_answer_is_shown_up_to_the_playhead(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("engine")
    root.locator(".gl-playhead .gl-rng").fill("8")
    root.locator(".gl-playhead [data-request='1']").click()
    runs = root.locator(".gl-rib[data-run], [data-run] .gl-rib")
    expect(runs).to_have_count(1)
    tokens = trace.tokens()
    mine = tokens[tokens["run"] == 1]
    expect(root.locator(".gl-text .gl-tk")).to_have_count(len(mine))
    ends = trace.steps()["start_ms"] + trace.steps()["dur_ms"]
    there = int((mine["end_ms"] <= ends.iloc[8]).sum())
    expect(root.locator(".gl-text .gl-tk.gl-later")).to_have_count(len(mine) - there)
    root.locator(".gl-text .gl-tk").nth(5).click()
    step = int((trace.steps()["start_ms"] <= mine["end_ms"].iloc[5]).sum()) - 1
    assert place(root)[:2] == [str(step), "1"]
    expect(root.locator(".gl-trail")).to_contain_text(f"made in step {step}")


def test_a_branch_that_no_step_made_is_never_later(page: Page, tmp_path: Path, tiny_folder: Path) -> None:
    trace = serve_five(tiny_folder)
    trace.show(model=genai_lab.Model(tiny_folder))
    trace.branch(3, 9, run=0).wait()
    branch = len(trace.runs()) - 1
    root = open_page(page, tmp_path / "trace.html", trace, "engine")
    root.locator(".gl-playhead .gl-rng").fill("3")
    root.locator(".gl-playhead [data-request='0']").click()
    made = len(trace.tokens()[trace.tokens()["run"] == branch])
    expect(root.locator(f"[data-run='{branch}'] .gl-tk")).to_have_count(made)
    expect(root.locator(f"[data-run='{branch}'] .gl-tk.gl-later")).to_have_count(0)
    assert root.locator("[data-run='0'] .gl-tk.gl-later").count() > 0


def test_a_block_says_whose_it_is_and_why_and_leads_to_its_token(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("engine")
    held = {step: trace.state_at(step).holders[0] for step in range(8, 16)}
    # the newest token is read in the next step; at a block's end, that block is not there yet
    step, holder = next((s, h) for s, h in held.items() if h.request == 0 and h.num_tokens % 4)
    root.locator(".gl-playhead .gl-rng").fill(str(step))
    root.locator(".gl-playhead [data-request='0']").click()
    root.locator(".gl-trail .gl-lnk").last.click()  # the block of the newest token
    block = int(place(root)[2])
    assert block == holder.block_table[holder.num_tokens // 4]
    read = root.locator(".gl-mapread")
    expect(read).to_contain_text(f"Block {block}")
    expect(read).to_contain_text("Taken by A in step")
    expect(root.locator(".gl-text .gl-tk.gl-inb").first).to_be_visible()
    read.locator(".gl-lnk").click()
    assert place(root)[1] == "0"
    canvas = root.locator(".gl-mapover")
    canvas.press("ArrowRight")
    canvas.press("ArrowLeft")
    canvas.press("Escape")
    assert place(root)[2] == ""


def test_shared_blocks_pass_from_holder_to_holder_by_the_keyboard(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("blocks")
    frame = trace.blocks(int(trace.steps()["step"].iloc[int(place(root)[0])]))
    shared = frame[frame["holders"] > 1].sort_values("block").iloc[0]
    holders = {str(r) for r in frame[frame["block"] == shared["block"]]["request"]}
    canvas = root.locator(".gl-mapover")
    for _ in range(40):
        canvas.press("ArrowLeft")
        if place(root)[2] == str(int(shared["block"])):
            break
    assert place(root)[2] == str(int(shared["block"]))
    expect(root.locator(".gl-mapread")).to_contain_text("requests at once")
    seen = set()
    for _ in holders:
        canvas.press("Enter")
        seen.add(place(root)[1])
    assert seen == holders


def test_jumps_go_to_what_they_say_and_to_whom(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("engine")
    root.locator(".gl-playhead .gl-rng").fill("0")
    root.locator(".gl-jumps select").select_option("evict")
    later = root.locator("[aria-label='Next step with it']")
    later.click()
    step, request, block = map(int, place(root))
    pool = trace.recording.tables["pool"]
    evicted = [i for i, n in enumerate(pool["event"]) if trace.recording.words[n] == "evicted"]
    assert trace.steps()["step"].iloc[step] == pool["step"][evicted].min()
    assert (step, request, block) in {(pool["step"][i], pool["request"][i], pool["block"][i]) for i in evicted}
    expect(root.locator(".gl-mapread")).to_contain_text(f"Block {block}")
    root.locator(".gl-playhead [data-request='0']").click()
    root.locator(".gl-jumps select").select_option("preempt")
    root.locator(".gl-playhead .gl-rng").fill("0")
    later.click()
    expect(root.locator(".gl-why h3")).to_contain_text("loses its place")
    assert place(root)[2] == ""


def test_a_jump_that_has_nowhere_to_go_is_off_and_says_so(opened: OpenPage) -> None:
    root = opened("engine")
    earlier, later = (root.locator(f"[aria-label='{word} step with it']") for word in ("Last", "Next"))
    root.locator(".gl-playhead .gl-rng").fill("0")
    root.locator(".gl-jumps select").select_option("preempt")
    expect(earlier).to_be_disabled()
    expect(earlier).to_have_attribute("title", "no earlier step has a preemption")
    expect(later).to_be_enabled()
    while later.is_enabled():
        later.press("Enter")
    expect(later).to_have_attribute("title", "no later step has a preemption")
    expect(root.locator(".gl-jumps select")).to_be_focused()  # not lost with the button
    expect(earlier).to_have_attribute("title", "no earlier step has a preemption")  # the recording has one
    root.locator(".gl-jumps select").select_option("wait")
    expect(earlier).to_be_enabled()
    expect(earlier).to_have_attribute("title", "Last step with it")


def test_the_table_says_what_the_map_shows(opened: OpenPage, trace: genai_lab.Trace) -> None:
    root = opened("blocks")
    step = int(trace.steps()["step"].iloc[int(place(root)[0])])
    root.locator("summary").click()
    rows = root.locator("tbody tr")
    expect(rows).to_have_count(22)
    state = trace.state_at(step)
    for block, holders in state.owners().items():
        expect(rows.nth(block).locator("td").nth(1)).to_have_text("shared" if len(holders) > 1 else "in use")
    for block in state.kept:
        expect(rows.nth(block).locator("td").nth(1)).to_have_text("free, kept")


@pytest.mark.parametrize("width", [960, 600])
def test_nothing_is_wider_than_its_place(opened: OpenPage, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    root = opened("engine")
    expect(root.locator(".gl-mapover")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect(root).to_have_attribute("data-theme", scheme)
        page.screenshot(full_page=True)
