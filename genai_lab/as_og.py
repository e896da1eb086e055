"""Run a script written for onnxruntime-genai on genai_lab: `import onnxruntime_genai` is answered by genai_lab.

    python -m genai_lab.as_og model-qa.py -m path/to/folder      # the script's own arguments after it
    python -m genai_lab.as_og -m pytest tests                    # or a module

or, as the first lines of a program or a conftest.py:

    import genai_lab
    genai_lab.install_as_og()

An installed onnxruntime-genai is not touched; in this process its name means genai_lab. A script or module that is run
so is inside `og_compat()`, too; a program that calls `install_as_og()` says `with genai_lab.og_compat():` itself.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import genai_lab
from genai_lab.errors import StateError

NAME = "onnxruntime_genai"
OG_VERSION = "0.18.0"  # whose names and rules these are
USAGE = f"""usage: python -m genai_lab.as_og SCRIPT [arguments of the script ...]
       python -m genai_lab.as_og -m MODULE [arguments of the module ...]

Runs a script with `import {NAME}` answered by genai_lab {genai_lab.__version__}."""


class OgModule(ModuleType):
    """genai_lab under another name. What it does not have is an AttributeError that says so."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{NAME} {OG_VERSION}, answered by genai_lab {genai_lab.__version__}")
        self.__version__, self.__id__, self.__path__ = OG_VERSION, "genai-lab", list[str]()
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__all__ = [public for public in genai_lab.__all__ if not public.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(genai_lab, name)
        except AttributeError:
            raise AttributeError(
                f"module {NAME!r} is genai_lab here, which has no {name!r}; docs/COMPATIBILITY.md lists what it has"
            ) from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


def install_as_og() -> ModuleType:
    """From now on `import onnxruntime_genai` gives genai_lab, in this process. Calling it again changes nothing.

    Raises:
        StateError: the real onnxruntime-genai is imported already, so part of the program would use it.

    >>> import genai_lab
    >>> module = genai_lab.install_as_og()                            # doctest: +SKIP
    >>> import onnxruntime_genai as og                                # doctest: +SKIP
    >>> og.Model is genai_lab.Model                                   # doctest: +SKIP
    True
    """
    known = sys.modules.get(NAME)
    if isinstance(known, OgModule):
        return known
    if known is not None:
        raise StateError(
            f"{NAME} is imported already ({getattr(known, '__file__', None)}); call install_as_og() before anything "
            "imports it"
        )
    module = OgModule(NAME)
    sys.modules[NAME] = module
    compiled = sys.modules[f"{NAME}.{NAME}"] = OgModule(f"{NAME}.{NAME}")  # which some scripts name
    setattr(module, NAME, compiled)
    return module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script or a module; returns the exit code of a wrong command line, else what the script does."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_module = words[:1] == ["-m"]
    words = words[1:] if as_module else words
    if not words or words[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if words[:1] in (["-h"], ["--help"]) else 2
    if not as_module and not os.path.isfile(words[0]):
        print(f"as_og: there is no script {words[0]!r}; give the path of a .py file\n{USAGE}", file=sys.stderr)
        return 2
    install_as_og()
    sys.argv, sys.excepthook = words, _without_our_frames
    with genai_lab.og_compat():
        if as_module:
            sys.path[0] = ""
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(os.path.abspath(words[0]), run_name="__main__")
    return 0


def _without_our_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an uncaught error as Python does when it runs the script itself."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    sys.exit(main())
