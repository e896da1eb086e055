"""Screenshots of the pages in dev/out, light and dark, wide and narrow: `python dev/shots.py [page ...]`.

A page is `live.html?what=story&kind=all` or `offline-story.html`. Pictures land in dev/out/shots.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

OUT = Path(__file__).parent / "out"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"]


def main(pages: list[str]) -> None:
    (OUT / "shots").mkdir(parents=True, exist_ok=True)
    path = os.environ.get("GENAI_LAB_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=FLAGS)
        for address in pages:
            for theme in ("light", "dark"):
                for width in (960, 600):
                    page = browser.new_page(viewport={"width": width + 32, "height": 900}, color_scheme=theme)
                    errors: list[str] = []
                    page.on("pageerror", lambda e, errors=errors: errors.append(str(e)))
                    page.goto(f"file://{OUT}/{address}")
                    page.wait_for_selector(".gl[data-ready]")
                    page.wait_for_function("document.querySelector('.gl').dataset.kernel !== 'unknown'")
                    name = address.replace(".html", "").replace("?", "-").replace("&", "-").replace("=", "-")
                    page.screenshot(path=OUT / "shots" / f"{name}-{theme}-{width}.png", full_page=True)
                    print(name, theme, width, errors or "ok")
                    page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:] or ["live.html?what=story&kind=all"])
