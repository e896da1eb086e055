"""The pictures of the README, made by the project itself: a real answer in a real notebook, photographed in JupyterLab.

`python -m tools.pictures` (`make pictures`) writes docs/workbench-light.png and docs/workbench-dark.png.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.jupyter import JupyterLab
from tests.browser.labpage import LabPage
from tools.chromium import find_chromium
from tools.files import ROOT

DOCS = ROOT / "docs"
CELL = """\
import genai_lab

trace = genai_lab.ask(
    genai_lab.load("smollm2"), "Write one sentence about the sea.", max_new_tokens=48,
    temperature=0.8, top_k=40, top_p=0.9, repetition_penalty=1.1, random_seed=4,
)
trace"""
CARDS = 2  # of the three: the answer, and how one token was picked
WIDTH, HEIGHT, MARGIN = 1120, 2600, 6  # pixels; so high that nothing needs to be scrolled
DRAWN = """() => {
    const view = document.querySelector('.jp-OutputArea .gl');
    return view?.dataset.status === 'done' && view.dataset.kernel === 'present' && view.dataset.ready === '1';
}"""


def photograph(page: Page, target: Path) -> None:
    """The bar and the first cards, whole."""
    view, last = page.locator(".jp-OutputArea .gl").first, page.locator(".jp-OutputArea .gl .gl-card").nth(CARDS - 1)
    first_box, last_box = view.bounding_box(), last.bounding_box()
    assert first_box is not None and last_box is not None
    height = last_box["y"] + last_box["height"] - first_box["y"]
    clip = {
        "x": first_box["x"] - MARGIN,
        "y": first_box["y"] - MARGIN / 2,
        "width": first_box["width"] + 2 * MARGIN,
        "height": height + MARGIN,
    }
    page.screenshot(path=target, clip=clip)  # type: ignore[arg-type]


def main() -> int:
    executable = find_chromium()
    if executable is None:
        print("no Chromium: `make chromium` installs one", file=sys.stderr)
        return 1
    DOCS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, JupyterLab(Path(scratch)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1.5, reduced_motion="reduce"
        )
        page.set_default_timeout(120_000)
        notebook = LabPage(page, server, "pictures").open(server.write("picture.ipynb", CELL)).hide_sidebar().run_all()
        page.wait_for_function(DRAWN)
        page.mouse.move(0, 0)
        for theme in ("light", "dark"):
            notebook.theme(theme)
            page.wait_for_selector(f".jp-OutputArea .gl[data-theme='{theme}']")
            photograph(page, DOCS / f"workbench-{theme}.png")
        notebook.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
