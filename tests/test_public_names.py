"""`import genai_lab` is light, and every public name is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import genai_lab


def test_every_public_name_exists() -> None:
    for name in genai_lab.__all__:
        assert getattr(genai_lab, name) is not None
    assert set(genai_lab.__all__) <= set(dir(genai_lab))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = genai_lab.nonsense


@pytest.mark.parametrize(
    "heavy", ["onnxruntime", "pandas", "numpy", "anywidget", "tokenizers", "onnx", "torch", "transformers"]
)
def test_the_import_alone_loads_nothing_heavy(heavy: str) -> None:
    code = f"import genai_lab, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_generating_needs_neither_pandas_nor_jupyter(tiny_folder: object) -> None:
    code = (
        "import sys, genai_lab as og\n"
        "model = og.Model(sys.argv[1]); params = og.GeneratorParams(model); generator = og.Generator(model, params)\n"
        "generator.append_tokens([1, 5, 9]); generator.generate_next_token()\n"
        "sys.exit(any(name in sys.modules for name in ('pandas', 'anywidget', 'IPython', 'onnx', 'gguf')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tiny_folder)], check=False).returncode == 0
