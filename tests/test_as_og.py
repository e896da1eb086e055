"""Scripts that import onnxruntime_genai run on genai_lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import argparse
import json
import sys

import onnxruntime_genai as og
from helper import settings                      # beside the script
from onnxruntime_genai import Tokenizer
from onnxruntime_genai.onnxruntime_genai import GeneratorParams

import genai_lab

parser = argparse.ArgumentParser()
parser.add_argument("-m", "--model_path")
args = parser.parse_args()
assert og.Model is genai_lab.Model and og.__version__.startswith("0.18") and "Engine" in dir(og)
config = og.Config(args.model_path)
config.overlay(json.dumps({"search": settings()}))
model = og.Model(config)
tokenizer, params = Tokenizer(model), GeneratorParams(model)
params.set_search_options(batch_size=1)
messages = json.dumps([{"role": "user", "content": "Hi"}])
prompt = tokenizer.apply_chat_template(messages=messages, tools="", template_str="", add_generation_prompt=True)
generator = og.Generator(model, params)
generator.append_tokens(tokenizer.encode(prompt))
while not generator.is_done():
    generator.generate_next_token()
print(__name__, sys.argv[0].endswith("script.py"), generator.token_count())
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = [sys.executable, "-W", "error", "-m", "genai_lab.as_og", *arguments]
    root = str(Path(__file__).parents[1])
    return subprocess.run(code, cwd=cwd, env={"PYTHONPATH": root, "HOME": str(cwd)}, capture_output=True, text=True)


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=cwd, env={"PYTHONPATH": root}, capture_output=True, text=True)


def test_a_script_with_its_arguments_and_the_files_beside_it(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "script.py").write_text(SCRIPT)
    (tmp_path / "scripts" / "helper.py").write_text("def settings(): return {'max_length': 60}")
    done = run("scripts/script.py", "-m", str(tiny_folder), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ True 60\n"


def test_a_module_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "tests_of_theirs.py").write_text(
        "import onnxruntime_genai as og\nimport sys\nprint(og.Tokenizer.__module__, sys.argv[1:])\nsys.exit(3)"
    )
    done = run("-m", "tests_of_theirs", "-x", "a", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "genai_lab.generation.tokenizer ['-x', 'a']\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "usage: python -m genai_lab.as_og"),
        (("--help",), 0, "usage"),
        (("-m",), 2, "usage"),
        (("nowhere.py",), 2, "there is no script 'nowhere.py'"),
    ],
)
def test_a_wrong_command_line_is_told_what_to_write(
    arguments: tuple[str, ...], code: int, words: str, tmp_path: Path
) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_installing_twice_is_once_and_what_is_missing_is_said(tmp_path: Path) -> None:
    done = python(
        "import sys, genai_lab\n"
        "module = genai_lab.install_as_og()\n"
        "assert genai_lab.install_as_og() is module is sys.modules['onnxruntime_genai']\n"
        "import onnxruntime_genai.onnxruntime_genai as compiled\n"
        "assert compiled.Engine is module.Engine\n"
        "assert not any(name in sys.modules for name in ('pandas', 'anywidget'))\n"
        "try: module.rocm\n"
        "except AttributeError as error: print(error)\n"
        "try:\n import onnxruntime_genai.models.builder\n"
        "except ModuleNotFoundError as error: print(error.name)\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "module 'onnxruntime_genai' is genai_lab here, which has no 'rocm'; docs/COMPATIBILITY.md lists what it has\n"
        "onnxruntime_genai.models\n"
    )


def test_a_program_that_has_the_real_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime_genai.py").write_text("")  # stands for it
    done = python("import onnxruntime_genai, genai_lab; genai_lab.install_as_og()", tmp_path)
    assert done.returncode == 1
    assert "StateError: onnxruntime_genai is imported already" in done.stderr


def test_a_script_knows_where_it_is_and_its_errors_are_shown_as_its_own(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "script.py"
    script.write_text("print(__file__)\ndef f():\n    raise KeyError('gone')\nf()\n")
    done = run("scripts/script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == f"{script}\n"
    shown = [line.strip() for line in done.stderr.splitlines() if line.strip().startswith("File ")]
    assert shown == [f'File "{script}", line 4, in <module>', f'File "{script}", line 3, in f']
    assert done.stderr.endswith("KeyError: 'gone'\n")


def test_a_script_meets_the_rules_that_it_was_written_for(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\n"
        "import onnxruntime_genai as og\n"
        "model = og.Model(sys.argv[1])\n"
        "params = og.GeneratorParams(model)\n"
        "params.set_search_options(max_length=20, min_length=20)\n"
        "generator = og.Generator(model, params)\n"
        "generator.append_tokens([5, 6, 7])\n"
        "for _ in range(4): generator.generate_next_token()\n"
        "cut = generator.get_sequence(0)[5]\n"
        "generator.rewind_to(5)\n"
        "generator.generate_next_token()\n"
        "print(generator.token_count(), generator.get_sequence(0)[5] == cut)\n"
    )
    done = run("script.py", str(tiny_folder), cwd=tmp_path)
    assert done.stdout == "7 True\n", done.stderr
