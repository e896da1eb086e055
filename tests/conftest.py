"""Fixtures and rules for every test: the tests' own home folder, reproducible random examples, the default model."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

import hypothesis
import pytest

from tests.environment import Surroundings, in_ci

# one outcome for one state of the code: examples are derived from the test, and time decides nothing
hypothesis.settings.register_profile("deterministic", derandomize=True, deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("deterministic")

SURROUNDINGS = pytest.StashKey[Surroundings]()
MARKERS_BY_FIXTURE = {"real_model": {"model_folder"}, "browser": {"browser", "page", "lab", "labpage"}}


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests interrupt what they start
    config.stash[SURROUNDINGS] = Surroundings(Path(tempfile.mkdtemp(prefix="genai_lab-tests-")))


def pytest_unconfigure(config: pytest.Config) -> None:
    surroundings = config.stash[SURROUNDINGS]
    surroundings.restore()
    shutil.rmtree(surroundings.home, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, fixtures in MARKERS_BY_FIXTURE.items():
            if fixtures & set(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
    # a browser keeps an event loop running in the main thread until the session ends: what needs none comes before it
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(scope="session")
def model_folder(pytestconfig: pytest.Config) -> Path:
    """The default model's folder, made once and shared with the user. Where it cannot be had, CI fails, others skip."""
    from genai_lab.errors import DownloadError
    from genai_lab.workbench.default_model import model_folder

    try:
        with pytestconfig.stash[SURROUNDINGS].as_user():
            return Path(model_folder("smollm2"))
    except DownloadError as error:
        reason = f"the default model cannot be had: {error}"
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random llama in float32, made once a session; `tests.tiny` makes others."""
    from tests.tiny import tiny_model_folder

    return tiny_model_folder(tmp_path_factory.mktemp("tiny") / "model")
