"""Blocks are for one `with`; a recording inside a recording is said to be one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_lab
from genai_lab.errors import StateError
from genai_lab.generation import in_og_compat, own_rules
from genai_lab.tracing import NULL, current_tracer, use_tracer

BLOCKS: list[Callable[[], Any]] = [genai_lab.record, genai_lab.og_compat, own_rules, lambda: use_tracer(NULL)]
IDS = ["record", "og_compat", "own_rules", "use_tracer"]


@pytest.mark.parametrize("make", BLOCKS, ids=IDS)
def test_a_block_is_entered_once(make: Callable[[], Any], request: pytest.FixtureRequest) -> None:
    name, block = request.node.callspec.id, make()
    with block, pytest.raises(StateError, match=rf"this {name}\(\) was used in a with statement before"), block:
        pass
    with pytest.raises(StateError, match=rf"call {name}\(\) again"), block:
        pass
    with pytest.raises(StateError, match=rf"this {name}\(\) was never entered"):
        make().__exit__(None, None, None)
    assert current_tracer() is NULL and not in_og_compat()


@pytest.mark.parametrize("make", BLOCKS, ids=IDS)
def test_a_forgotten_with_is_named(make: Callable[[], Any], request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.id
    with pytest.raises(AttributeError, match=rf"{name}\(\) has no 'tokens'.*with {name}\(\) as"):
        _ = make().tokens
    assert isinstance(copy.copy(make()), type(make()))


def test_a_decorated_function_enters_each_time() -> None:
    @genai_lab.og_compat()
    def inside() -> bool:
        return in_og_compat()

    assert [inside(), inside(), in_og_compat()] == [True, True, False]


def test_what_is_raised_inside_goes_through() -> None:
    with pytest.raises(ZeroDivisionError), genai_lab.record():
        raise ZeroDivisionError
    assert current_tracer() is NULL


def test_a_recording_inside_a_recording_warns_where_it_stands(tiny_folder: Path) -> None:
    model = genai_lab.Model(tiny_folder)
    params = genai_lab.GeneratorParams(model)
    params.set_search_options(max_length=6)

    def generate() -> None:
        generator = genai_lab.Generator(model, params)
        generator.append_tokens([5, 6])
        generator.generate_next_token()

    with genai_lab.record() as outer:
        generate()
        nested = pytest.warns(UserWarning, match="inside another recording, which gets nothing")
        with nested as heard, genai_lab.record() as inner:
            generate()
        generate()
    assert [len(trace.tokens()) for trace in (outer, inner)] == [2, 1]
    assert heard[0].filename == __file__
