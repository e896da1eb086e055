"""The error tree. Every error that genai_lab raises on purpose is a `GenaiLabError` and says four things: the argument,
the value received, what is allowed, and what to do next.

    GenaiLabError
    ├── ArgumentError        a bad argument (also a ValueError and a RuntimeError)
    │   ├── PlaceError       an index of something that is not there (also an IndexError)
    │   ├── CountError       a negative number, or one too large, where a count is wanted (also a TypeError)
    │   └── GrammarError     a JSON schema, regular expression or grammar that is wrong; says where
    ├── ArgumentTypeError    an argument of the wrong type (also a TypeError and a RuntimeError)
    ├── CallableError        a person's own processor, sampler or stopping rule failed (also a RuntimeError)
    ├── StateError           a call that does not fit the object's state, such as use after close (also a RuntimeError)
    ├── CapacityError        more memory, tokens or context than there is (also a RuntimeError)
    ├── ModelFolderError     a model folder, config, checkpoint or tokenizer that cannot be used (also a RuntimeError)
    ├── DownloadError        the default model's weights cannot be had, or are not what they should be (RuntimeError)
    ├── OutputError          a place that cannot be written: no such folder, no permission, no room (also an OSError)
    ├── TemplateError        a chat template that fails to render (also a RuntimeError)
    └── TraceFileError       a trace file that is broken or newer than this version (also a ValueError)

onnxruntime-genai raises RuntimeError for most of these; the double parents keep its scripts' `except` clauses working.
"""

from __future__ import annotations


class GenaiLabError(Exception):
    """Base of every error raised on purpose."""


class ArgumentError(GenaiLabError, ValueError, RuntimeError):
    """An argument has a value that is not allowed."""


class PlaceError(ArgumentError, IndexError):
    """An index or a number of something that is not there."""


class CountError(ArgumentError, TypeError):
    """A number below zero, or larger than any count, where a count is wanted. (A TypeError, too: onnxruntime-genai
    cannot turn such numbers into its own type.)"""


class GrammarError(ArgumentError):
    """A JSON schema, a regular expression or a grammar that cannot be used. The message says where it is wrong."""


class CallableError(GenaiLabError, RuntimeError):
    """A person's own processor, sampler or stopping rule raised, or returned what cannot be used. The message names it
    and its line; what it raised is the `__cause__`."""


class ArgumentTypeError(GenaiLabError, TypeError, RuntimeError):
    """An argument has the wrong type."""


class StateError(GenaiLabError, RuntimeError):
    """The call does not fit the object's state."""


class CapacityError(GenaiLabError, RuntimeError):
    """More memory, tokens or context was asked for than there is."""


class ModelFolderError(GenaiLabError, RuntimeError):
    """A model folder or one of its files cannot be used."""


class DownloadError(GenaiLabError, RuntimeError):
    """The default model's weights cannot be obtained, or are not what they should be."""


class OutputError(GenaiLabError, OSError):
    """A file or folder cannot be written. What was there before is as it was."""


class TemplateError(GenaiLabError, RuntimeError):
    """A chat template failed to render."""


class TraceFileError(GenaiLabError, ValueError):
    """A trace file is broken, or newer than this version reads."""


def wrong_kind(argument: str, value: object, allowed: str) -> ArgumentTypeError:
    """The error for an argument of the wrong type.

    >>> wrong_kind("model", 5, "a genai_lab.Model: genai_lab.load('smollm2')")
    ArgumentTypeError("model is 5 (int); allowed is a genai_lab.Model: genai_lab.load('smollm2')")
    """
    return ArgumentTypeError(f"{argument} is {value!r:.60} ({type(value).__name__}); allowed is {allowed}")
