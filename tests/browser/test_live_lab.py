"""The live path in JupyterLab, over and over: a cell asks and waits at once, and its picture is whole all the same;
Stop is heard while a cell waits; the still picture is that of the end, and the live one is not drawn again for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.labpage import LabPage
from tests.browser.test_widgets_lab import ASK, notebook, root

expect.set_options(timeout=PATIENCE_MS)

ROUNDS = 4
TOKENS = 30
DISPLAY = "from IPython.display import display\n"
STOP = """async () => {
    const view = document.querySelector('.gl'), began = performance.now();
    view.querySelector("[data-action='stop']").click();
    while (view.dataset.status !== 'stopped') await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""
WHOLE = """count => {
    const told = [...document.querySelectorAll('.gl')].map(e => e.querySelectorAll('.gl-run .gl-tk').length);
    return told.length === 2 && told.every(n => n === count);
}"""


@pytest.mark.slow
def test_a_picture_is_whole_however_late_the_page_listens(labpage: LabPage, tiny_folder: Path) -> None:
    """The first picture of a kernel brings the code along, so the page is late; every round has a kernel of its own."""
    ask = ASK.format(tokens=TOKENS, options="do_sample=True, min_length=60")
    same_cell = f"{DISPLAY}{ask.replace(chr(10) + 'trace', '')}\ndisplay(trace)\ntrace.wait();"
    notebook(labpage, tiny_folder, same_cell, ask, "trace.wait();", pause=0.02)
    for _ in range(ROUNDS):
        labpage.run_all()
        labpage.page.wait_for_function(WHOLE, arg=TOKENS)
        for number in range(2):
            expect(root(labpage).nth(number)).to_have_attribute("data-status", "done")
            expect(root(labpage).nth(number)).to_have_attribute("data-kernel", "present")
        labpage.save(widget_state=False).reopen(trusted=True)


def test_stop_is_heard_while_a_cell_waits(labpage: LabPage, tiny_folder: Path) -> None:
    later = "later = [len(trace.tokens())]"
    notebook(labpage, tiny_folder, ASK.format(tokens=200, options=""), "trace.wait();", later, pause=0.05)
    labpage.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    expect(root(labpage)).to_have_attribute("data-status", "running")
    labpage.page.wait_for_function("() => Number(document.querySelector('.gl').dataset.tokens) >= 3")
    print(f"stopped after {labpage.page.evaluate(STOP):.0f} ms")
    labpage.eventually("trace.running", False)
    labpage.eventually("3 <= later[0] < 200", True)  # the cells behind it went on by themselves


def test_stop_stays_within_reach(labpage: LabPage, tiny_folder: Path) -> None:
    """Running a notebook to its end scrolls to its last cell, away from the picture."""
    below = "print('\\n' * 200)"
    notebook(labpage, tiny_folder, ASK.format(tokens=200, options=""), below, "trace.wait();", pause=0.4)
    labpage.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    labpage.page.wait_for_function("() => Number(document.querySelector('.gl')?.dataset.tokens) >= 3")
    far = labpage.page.locator("[data-action='far-stop']")
    labpage.page.evaluate("() => document.querySelectorAll('.jp-Cell')[3].scrollIntoView()")
    expect(far).to_be_visible()
    labpage.shot("far")
    far.click()
    labpage.eventually("trace.runs().iloc[0]['status']", "stopped")
    expect(far).to_have_count(0)


def test_the_still_picture_follows_and_the_live_one_stays(labpage: LabPage, tiny_folder: Path) -> None:
    notebook(labpage, tiny_folder, ASK.format(tokens=12, options="min_length=45"), pause=0.1).run_all()
    labpage.page.wait_for_function("() => Number(document.querySelector('.gl').dataset.tokens) >= 3")
    labpage.output(".gl-run[data-run='0'] .gl-tk").nth(1).click()
    labpage.page.evaluate("() => { window.first = document.querySelector('.gl'); }")
    expect(root(labpage)).to_have_attribute("data-status", "done")
    expect(root(labpage)).to_have_attribute("data-selected", "0:1")
    labpage.eventually("trace.running", False)
    assert labpage.page.evaluate("() => window.first.isConnected")  # nothing was drawn anew
    assert labpage.output("details:visible").count() == labpage.output(".gl details:visible").count()
    labpage.page.wait_for_function(
        """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells[1].outputs
            .some(o => JSON.stringify(o.data ?? {}).includes('run model'))"""
    )
    labpage.shot("live")
    labpage.save(widget_state=False).reopen(trusted=False)
    expect(labpage.output("u").nth(11)).to_be_visible()  # all twelve tokens, not those of the first moment
    labpage.shot("still")


def test_a_restart_leaves_no_picture_that_looks_alive(labpage: LabPage, tiny_folder: Path) -> None:
    notebook(labpage, tiny_folder, ASK.format(tokens=200, options=""), pause=0.2).run_all()
    labpage.page.wait_for_function("() => Number(document.querySelector('.gl').dataset.tokens) >= 3")
    expect(root(labpage)).to_have_attribute("data-kernel", "present")
    labpage.restart()
    expect(root(labpage)).to_have_attribute("data-kernel", "absent")
    expect(labpage.page.locator("[data-action='stop']")).to_be_disabled()
    expect(labpage.page.locator("[data-action='far-stop']")).to_have_count(0)
    expect(labpage.output(".gl").first).to_contain_text("was still being written when this page last heard of it")
    labpage.shot("restarted")
