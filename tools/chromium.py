"""Finds a Chromium for the browser tests, and installs one when it may: `python -m tools.chromium`.

Receives $GENAI_LAB_CHROMIUM (optional: the executable). Returns a path, or None when there is none. It does not decide
what a missing browser means: the tests do (a failure in CI, a skip elsewhere).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC_APPS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
HINT = "apt-get install chromium (Debian), or playwright install chromium, or set GENAI_LAB_CHROMIUM to one"
INSTALL_SECONDS = 900


def find_chromium() -> str | None:
    """The browser to use: $GENAI_LAB_CHROMIUM, else one on PATH, else the one that Playwright installed."""
    if named := os.environ.get("GENAI_LAB_CHROMIUM"):
        if not os.access(named, os.X_OK):
            raise SystemExit(f"GENAI_LAB_CHROMIUM={named!r} is no executable file. Name a Chromium, or unset it.")
        return named
    on_path = (shutil.which(name) for name in NAMES)
    return next((path for path in (*on_path, *MAC_APPS, _playwright_chromium()) if path and Path(path).exists()), None)


def _playwright_chromium() -> str:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def install_commands() -> list[list[str]]:
    """What to run, in order, so that this machine gets a Chromium; the first that works is enough."""
    playwright = [sys.executable, "-m", "playwright", "install", "chromium"]
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if not (is_root and shutil.which("apt-get")):
        return [playwright]
    # Ubuntu's package of this name is a stub for a snap, which does not run in a container
    debian = platform.freedesktop_os_release().get("ID") == "debian"
    script = "apt-get update -qq && apt-get install -y -qq chromium fonts-dejavu-core"
    apt = ["sh", "-c", f"export DEBIAN_FRONTEND=noninteractive; {script}"]
    return [apt, playwright] if debian else [[*playwright, "--with-deps"]]


def run(command: list[str]) -> str | None:
    """Runs an installer, which may take minutes; the last it said when it failed, or None."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_SECONDS
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return str(error)
    told = [line.strip() for line in done.stdout.splitlines() if "rror" in line]
    return None if done.returncode == 0 else (told[0] if told else f"exit code {done.returncode}")


def main() -> int:
    if (path := find_chromium()) is None:
        for command in install_commands():
            print("No Chromium for the browser tests. Trying:", " ".join(command), flush=True)
            if failure := run(command):
                print(f"  did not work: {failure}", flush=True)
            if path := find_chromium():
                break
    if path is None:
        print(f"There is still no Chromium: browser tests fail in CI and are skipped elsewhere. To have one, {HINT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
