"""The pictures of the README, made by the project itself: a real answer, recorded, shown, photographed.

`python -m tools.pictures` (`make pictures`) writes docs/workbench-light.png and docs/workbench-dark.png.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import genai_lab
from tools.chromium import find_chromium
from tools.files import ROOT

DOCS = ROOT / "docs"
QUESTION = "Write one sentence about the sea."


def recorded_page(folder: Path) -> Path:
    """The offline page of one sampled answer."""
    with genai_lab.load("smollm2") as model:
        trace = genai_lab.ask(
            model,
            QUESTION,
            max_new_tokens=48,
            temperature=0.8,
            top_k=40,
            top_p=0.9,
            repetition_penalty=1.1,
            random_seed=4,
        )
        trace.wait()
        return Path(trace.to_html(folder / "trace.html"))


def photograph(page: Page, url: str, scheme: str, target: Path) -> None:
    """The first two cards, at the most doubtful token of the answer."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.goto(url)
    page.wait_for_selector(".gl[data-ready='1']")
    box = page.locator(".gl .gl-card").nth(1).bounding_box()
    assert box is not None
    page.set_viewport_size({"width": 992, "height": int(box["y"] + box["height"]) + 16})
    page.screenshot(path=target)


def main() -> int:
    executable = find_chromium()
    if executable is None:
        print("no Chromium: `make chromium` installs one", file=sys.stderr)
        return 1
    DOCS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        url = recorded_page(Path(scratch)).as_uri()
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 992, "height": 1400}, device_scale_factor=1.5)
        for scheme in ("light", "dark"):
            photograph(page, url, scheme, DOCS / f"workbench-{scheme}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
