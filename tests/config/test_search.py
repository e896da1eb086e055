from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from genai_lab.config import SearchOptions
from genai_lab.errors import ArgumentError, ArgumentTypeError

OPTIONS = SearchOptions(context_length=64)


def test_defaults() -> None:
    assert OPTIONS.as_og_dict() == {
        "batch_size": 1.0,
        "chunk_size": 0.0,
        "diversity_penalty": 0.0,
        "do_sample": False,
        "early_stopping": True,
        "length_penalty": 1.0,
        "max_length": 64.0,
        "min_length": 0.0,
        "no_repeat_ngram_size": 0.0,
        "num_beams": 1.0,
        "num_return_sequences": 1.0,
        "past_present_share_buffer": False,
        "random_seed": -1.0,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_k": 50.0,
        "top_p": 0.0,
    }
    assert OPTIONS.min_p == 0.0
    assert all(type(value) in (bool, float) for value in OPTIONS.as_og_dict().values())


def test_a_changed_copy() -> None:
    changed = OPTIONS.with_options(do_sample=True, top_k=40.0, temperature=1, top_p=0.7, chunk_size=0, max_length=8)
    assert (changed.do_sample, changed.top_k, changed.temperature, changed.top_p) == (True, 40, 1.0, 0.7)
    assert (type(changed.top_k), type(changed.temperature), changed.chunk_size) == (int, float, None)
    assert OPTIONS.top_k == 50
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed.top_k = 3  # type: ignore[misc]
    assert changed.as_og_dict()["top_p"] == float(np.float32(0.7)) != 0.7
    assert OPTIONS.with_options(chunk_size=16).chunk_size == 16


def test_numpy_scalars_are_numbers_and_flags() -> None:
    changed = OPTIONS.with_options(top_k=np.int64(3), top_p=np.float32(0.5), do_sample=np.bool_(True))
    assert (changed.top_k, changed.top_p, changed.do_sample) == (3, 0.5, True)
    assert (type(changed.top_k), type(changed.do_sample)) == (int, bool)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("top_k", True, r"top_k is True \(bool\); an integer from 0 to 2147483647 is allowed"),
        ("top_k", np.bool_(True), "top_k is .*True"),
        ("temperature", False, "temperature is False"),
        ("do_sample", 1, r"do_sample is 1 \(int\); True or False"),
        ("do_sample", "yes", "do_sample is 'yes'"),
        ("do_sample", None, "do_sample is null"),
        ("top_k", "5", "top_k is '5'"),
        ("top_k", None, "top_k is null"),
        ("temperature", [1], "temperature is an array"),
        ("temperature", 1j, "temperature is 1j"),
    ],
)
def test_types_are_strict(name: str, value: object, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        OPTIONS.with_options(**{name: value})


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("top_k", [-1, 1.5, 2**31, 10**400, NAN, INF], "an integer from 0 to 2147483647"),
        ("top_p", [-0.1, 1.1, NAN], "a finite number from 0 to 1"),
        ("min_p", [-0.1, 1.1, NAN], "a finite number from 0 to 1"),
        ("temperature", [-1.0, NAN, INF, 10**400, 1e-31, 1e-320, 1e31, 1e308], "0 or a finite number from 1e-30"),
        ("repetition_penalty", [0, -1.0, NAN, INF, 1e-31, 5e-324, 1e31, 1e308], "a finite number from 1e-30 to 1e.30"),
        ("no_repeat_ngram_size", [-1], "an integer from 0 to 2147483647"),
        ("min_length", [-1], "an integer from 0 to 2147483647"),
        ("max_length", [-1, 0, 65, 10**400], r"an integer from 1 to 64 \(the model's context_length\)"),
        ("max_length", [8.5], "an integer from 0 to 2147483647"),
        ("random_seed", [-2, 2**31, 0.5], "an integer from -1 to 2147483647"),
        ("batch_size", [0, 33], "an integer from 1 to 32"),
        ("num_beams", [0, 33], "an integer from 1 to 32"),
        ("num_return_sequences", [0], "an integer from 1 to 2147483647"),
        ("length_penalty", [NAN, INF, -1e31, 1e308], "a finite number from -1e.30 to 1e.30"),
        ("diversity_penalty", [NAN, 1e308], "a finite number from -1e.30 to 1e.30"),
        ("audio_temperature", [-1.0, 1e308], "a finite number from 0 to 1e.30"),
        ("chunk_size", [-4, 1.5], "an integer from 0 to 2147483647"),
    ],
)
def test_ranges(name: str, values: list[float], words: str) -> None:
    for value in values:
        with pytest.raises(ArgumentError, match=f"{name} is .*{words}"):
            OPTIONS.with_options(**{name: value})


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 0, "top_p": 1.0, "min_p": 1, "temperature": 0},
        {"max_length": 64, "min_length": 100},
        {"random_seed": 2**31 - 1, "length_penalty": -1},
        {"num_beams": 32, "num_return_sequences": 32, "batch_size": 32},
        {"num_beams": 2, "do_sample": True, "top_k": 1},
    ],
)
def test_ends_of_ranges(options: dict[str, Any]) -> None:
    OPTIONS.with_options(**options).check_together()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("temprature", "'temprature' is no search option; did you mean 'temperature'?"),
        ("context_length", "'context_length' is no search option"),
        ("zzz", "'zzz' is no search option; the options are do_sample, top_k"),
        ("max_new_tokens", "write max_length, which counts the prompt as well: max_length=prompt_tokens"),
        ("max_tokens", "write max_length, which counts the prompt as well"),
        ("n", "write num_return_sequences for several beams, or batch_size"),
        ("stop", "a turn of an Engine has stop_strings"),
        ("seed", "write random_seed"),
        ("frequency_penalty", "the nearest is repetition_penalty"),
        ("logprobs", r"recorded runs have them: with genai_lab.record\(\)"),
        ("Temp", "write temperature"),
    ],
)
def test_unknown_names(name: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words.replace("?", r"\?")):
        OPTIONS.with_options(**{name: 1})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_return_sequences": 2}, r"num_return_sequences \(2\) must be in \[1, 1\]"),
        ({"num_beams": 2, "do_sample": True}, "do_sample is True with num_beams 2"),
    ],
)
def test_options_that_cannot_work_together(options: dict[str, Any], words: str) -> None:
    changed = OPTIONS.with_options(**options)
    with pytest.raises(ArgumentError, match=words):
        changed.check_together()


def test_a_max_length_of_the_folder_beyond_the_context_is_refused_when_used() -> None:
    options = SearchOptions(context_length=8, max_length=9)
    assert options.with_options(top_k=3).max_length == 9
    words = r"max_length is 9; an integer from 1 to 8 .*\(9\) cannot be greater than model context_length \(8\)"
    with pytest.raises(ArgumentError, match=words):
        options.check_together()
    options.with_options(max_length=8).check_together()


def test_constructing_checks_too() -> None:
    with pytest.raises(ArgumentError, match="top_p is 2"):
        SearchOptions(context_length=8, top_p=2)
    with pytest.raises(ArgumentTypeError, match="do_sample is 1"):
        SearchOptions(context_length=8, do_sample=1)  # type: ignore[arg-type]
