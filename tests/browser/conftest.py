"""One Chromium and one JupyterLab server for the whole session, one page for each test.

A page fails its test when a script in it throws, or when anything in it asks for something outside this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.jupyter import JupyterLab
from tests.browser.labpage import LabPage, screenshot
from tests.browser.watch import PageWatch
from tests.environment import in_ci
from tools.chromium import HINT, find_chromium

# a background request of the browser's own would look like one of ours, so it makes none; names outside do not resolve
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--no-first-run",
)
VIEWPORT = {"width": 1280, "height": 900}
PATIENCE_MS = 60_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium. Where there is none, CI fails, others skip."""
    path = find_chromium()
    if path is None:
        reason = f"no Chromium: {HINT}"
        pytest.fail(reason) if in_ci() else pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def shot_name(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")


@pytest.fixture
def page(browser: Browser, shot_name: str) -> Iterator[Page]:
    """A page that is watched, and photographed at the end."""
    context = browser.new_context(viewport=VIEWPORT, device_scale_factor=1, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    watch = PageWatch(page)
    yield page
    screenshot(page, shot_name)
    context.close()
    watch.verify()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterLab]:
    """The JupyterLab server, on a copy of notebooks/."""
    with JupyterLab(Path(tmp_path_factory.mktemp("lab"))) as server:
        yield server


@pytest.fixture
def labpage(page: Page, lab: JupyterLab, shot_name: str) -> Iterator[LabPage]:
    labpage = LabPage(page, lab, shot_name)
    yield labpage
    labpage.close()
