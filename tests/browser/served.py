"""An engine's run that both of its pages show: five requests with one beginning, and not enough room for all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

import genai_lab
from genai_lab.engine import Engine, TurnOptions
from genai_lab.widgets.page import offline_page

SHARED = tuple(range(40, 56))
OpenPage = Callable[..., Locator]


def serve_five(folder: Path, chunk_size: int | None = None) -> genai_lab.Trace:
    """Places for three, and too few blocks to keep everything: waits, hits and a preemption."""
    with genai_lab.record() as trace:
        engine = Engine(
            genai_lab.Model(folder),
            max_batch_size=3,
            max_session_tokens=100,
            max_scheduled_tokens=24,
            chunk_size=chunk_size,
            block_size=4,
            num_blocks=22,
        )
        requests = [engine.create_request() for _ in range(5)]
        for number, request in enumerate(requests):
            options = TurnOptions(request)
            options.set_max_generated_tokens(20)
            request.begin_turn([*SHARED, *range(60 + 9 * number, 68 + 9 * number)], options)
        engine.run_until_idle()
    return trace


def open_page(page: Page, file: Path, trace: genai_lab.Trace, *kinds: str) -> Locator:
    """Write an offline page with these views and show it; the root of the first view, once all are drawn."""
    file.write_text(offline_page(trace.recording, kinds), encoding="utf-8")
    page.goto(file.as_uri())
    expect(page.locator(".gl[data-ready='1']")).to_have_count(len(kinds))
    return page.locator(f".gl[data-kind='{kinds[0]}']")
