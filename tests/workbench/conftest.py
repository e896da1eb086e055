"""A tiny model for the background's tests; nothing is kept from one test to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import genai_lab as og
from genai_lab.workbench.kept import KEPT
from genai_lab.workbench.worker import WORKER


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> og.Model:
    return og.Model(tiny_folder)


@pytest.fixture
def background() -> Iterator[None]:
    """Whatever a test leaves running is stopped, whatever it leaves kept is closed."""
    yield
    WORKER.close()
    KEPT.clear()
