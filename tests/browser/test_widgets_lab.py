"""The pictures in JupyterLab: an answer streams in and is stopped, a click makes the model go on another way, a saved
notebook shows it another day, and where no script may run there is a still picture.

The tiny model stands in for a slow one where a test must act while it writes.
"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.labpage import LabPage

expect.set_options(timeout=PATIENCE_MS)

MODEL = """
import time
import genai_lab
from genai_lab import widgets
from genai_lab.models import DecoderState

run = DecoderState.run
def run_slowly(*arguments):
    time.sleep(pause)
    run(*arguments)
DecoderState.run = run_slowly

pause = {pause}
model = genai_lab.Model({folder!r})
"""
ASK = "trace = genai_lab.ask(model, 'What does the fox say?', max_new_tokens={tokens}, {options})\ntrace"
VIEWS = ("widgets.TokenRibbon(trace)", "widgets.SamplingPipeline(trace)", "widgets.StageTimeline(trace)")


def notebook(labpage: LabPage, folder: Path, *cells: str, pause: float = 0.0) -> LabPage:
    name = f"{labpage.name}.ipynb"
    return labpage.open(labpage.server.write(name, MODEL.format(folder=str(folder), pause=pause), *cells))


def root(labpage: LabPage, kind: str = "all") -> Locator:
    return labpage.output(f".gl[data-kind='{kind}'][data-ready='1']")


def test_it_streams_stops_and_goes_on_another_way(labpage: LabPage, tiny_folder: Path) -> None:
    notebook(labpage, tiny_folder, ASK.format(tokens=200, options=""), pause=0.2).run_all()
    view = root(labpage)
    expect(view).to_have_attribute("data-status", "running")
    labpage.page.wait_for_function("() => Number(document.querySelector('.gl').dataset.tokens) >= 3")
    labpage.shot("streaming")
    labpage.output("button[data-action='stop']").click()
    expect(view).to_have_attribute("data-status", "stopped")
    written = int(labpage.py("len(trace.tokens())"))
    assert 3 <= written < 200
    expect(view).to_have_attribute("data-tokens", str(written))

    # a click on another candidate: the model goes on from there, and the new run is picked
    labpage.py("globals().update(pause=0.0)")
    labpage.output(".gl-run[data-run='0'] .gl-tk").nth(1).click()
    labpage.output(".gl-alt:not(.gl-sel)").first.click()
    expect(view).to_have_attribute("data-runs", "2")
    expect(view).to_have_attribute("data-status", "done")
    expect(view).to_have_attribute("data-selected", "1:0")
    labpage.eventually("[(r.parent, r.fork, r.forced is None) for r in trace.recording.runs[1:]]", [(0, 1, False)])
    assert int(labpage.py("trace.recording.runs[1].cached_tokens")) > 0

    # a branch of the branch
    labpage.output(".gl-branch .gl-tk").nth(2).click()
    labpage.output(".gl-alt:not(.gl-sel)").nth(1).click()
    expect(view).to_have_attribute("data-runs", "3")
    labpage.eventually("[(r.parent, r.fork) for r in trace.recording.runs]", [(None, None), (0, 1), (1, 2)])
    expect(view).to_have_attribute("data-status", "done")
    labpage.shot("branches")


def test_other_settings_and_errors_reach_the_page(labpage: LabPage, tiny_folder: Path) -> None:
    notebook(
        labpage, tiny_folder, ASK.format(tokens=12, options="do_sample=True, random_seed=4"), "trace.wait();"
    ).run_all()
    view = root(labpage)
    expect(view).to_have_attribute("data-status", "done")
    labpage.output(".gl-run[data-run='0'] .gl-tk").first.click()
    view.get_by_role("slider", name="temperature", exact=True).fill("0.5")
    view.get_by_role("button", name="Answer again from the start").click()
    expect(view).to_have_attribute("data-runs", "2")
    expect(view).to_have_attribute("data-status", "done")
    labpage.eventually("[r.settings['temperature'] for r in trace.recording.runs]", [1.0, 0.5])
    labpage.py("setattr(DecoderState, 'run', lambda *arguments: 1 / 0)")
    view.get_by_role("button", name="Answer again from the start").click()
    expect(view).to_have_attribute("data-status", "failed")
    expect(view.get_by_text("ZeroDivisionError: division by zero").first).to_be_visible()
    labpage.py("model.close()")
    view.get_by_role("button", name="Answer again from the start").click()
    expect(view.get_by_text("The model that wrote this was closed.").first).to_be_visible()


def test_pictures_in_several_cells_are_linked_and_live_on_in_the_notebook(labpage: LabPage, tiny_folder: Path) -> None:
    ask = ASK.format(tokens=40, options="temperature=1.2, random_seed=1").replace("\ntrace", ".wait()")
    notebook(labpage, tiny_folder, ask + ";", *VIEWS).run_all()
    kinds = ("ribbon", "pipeline", "timeline")
    labpage.output(".gl-run[data-run='0'] .gl-tk").nth(6).click()
    for kind in kinds:
        expect(root(labpage, kind)).to_have_attribute("data-selected", "0:6")
    labpage.eventually("widgets.trace_model(trace).selected", {"run": 0, "token": 6})
    expect(labpage.output(".gl-alt:not(.gl-sel)").first).not_to_have_attribute("aria-disabled", "true")
    dark = labpage.theme("dark").shot("dark").read_bytes()
    expect(root(labpage, "ribbon")).to_have_attribute("data-theme", "dark")
    assert labpage.theme("light").shot("light").read_bytes() != dark

    labpage.save()
    assert (labpage.server.root / labpage.notebook).stat().st_size < 240_000
    labpage.reopen(trusted=True)  # another day, no kernel has run this
    for kind in kinds:
        expect(root(labpage, kind)).to_have_attribute("data-tokens", "40")
        expect(root(labpage, kind)).to_have_attribute("data-selected", "0:6")
    expect(root(labpage, "ribbon")).to_have_attribute("data-kernel", "absent")
    expect(labpage.output(".gl-alt:not(.gl-sel)").first).to_have_attribute("aria-disabled", "true")
    labpage.output(".gl-run[data-run='0'] .gl-tk").nth(9).click()
    expect(root(labpage, "timeline")).to_have_attribute("data-selected", "0:9")

    labpage.reopen(trusted=False)
    expect(labpage.output("details summary").first).to_be_visible()
    assert labpage.output(".gl").count() == 0
    tint = labpage.output("u").first.evaluate("e => getComputedStyle(e).backgroundColor")
    assert tint.startswith("rgba(86, 160, 230")  # the sanitiser leaves it
    labpage.output("details summary").first.click()
    labpage.shot("untrusted")
    assert labpage.py("1 + 1") == "2"  # a kernel that is still starting would hold up the server's end
