"""An engine's run in JupyterLab: its picture grows while it runs, is there another day, and stands still untrusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.labpage import LabPage

expect.set_options(timeout=PATIENCE_MS)

START = """
import threading
import time
import genai_lab
from IPython.display import display

from genai_lab.engine import Fcfs

class Slowly(Fcfs):
    def plan(self, view):
        time.sleep(0.03)
        return super().plan(view)

model = genai_lab.Model({folder!r})
prompts = [[*range(40, 56), 60 + n] for n in range(5)]
with genai_lab.record() as trace:
    display(trace)
    engine = genai_lab.Engine(model, policy=Slowly(), max_batch_size=3, max_session_tokens=200, block_size=4,
                              num_blocks=40)
    {run}
"""
RUNS = {
    "thread": "answers = [engine.submit(prompt, max_generated_tokens=60) for prompt in prompts]",
    "cell": "answers = engine.generate_all(prompts, max_generated_tokens=60)",
}
GROWING = (
    "() => [...document.querySelectorAll('.gl')].some(e => e.dataset.status === 'running' && +e.dataset.steps > 3)"
)


@pytest.mark.parametrize("way", RUNS)
def test_it_grows_while_the_engine_runs(labpage: LabPage, tiny_folder: Path, way: str) -> None:
    name = f"{labpage.name}.ipynb"
    labpage.open(labpage.server.write(name, START.format(folder=str(tiny_folder), run=RUNS[way])))
    labpage.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    labpage.page.wait_for_function(GROWING)
    root = labpage.output(".gl[data-kind='all']")
    expect(root).to_have_attribute("data-status", "done")
    steps = labpage.py("len(trace.steps())")
    expect(root).to_have_attribute("data-steps", steps)
    expect(root).to_have_attribute("data-tokens", labpage.py("len(trace.tokens())"))
    labpage.output(".gl-playhead [data-request='2']").click()
    labpage.output(".gl-mapover").press("ArrowRight")
    at = root.get_attribute("data-at") or ""
    labpage.hide_sidebar().shot(way, of=labpage.output(".gl-map"))
    labpage.eventually("[t.name for t in threading.enumerate() if t.name == 'genai_lab pictures']", [])
    labpage.save().reopen(trusted=True)  # no kernel has run this
    expect(root).to_have_attribute("data-steps", steps)
    expect(root).to_have_attribute("data-at", at)
    labpage.save().reopen(trusted=False)
    expect(
        labpage.output(
            "b",
        ).first
    ).to_contain_text("Who is served in which step?")
    assert labpage.py("1 + 1") == "2"  # a kernel that is still starting would hold up the server's end
