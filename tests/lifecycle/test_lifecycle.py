"""What is made is freed when it is dropped or closed, and says so afterwards."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import genai_lab as og
from genai_lab import lifecycle
from genai_lab.errors import StateError
from genai_lab.lifecycle import LiveObject, LiveObjects, in_units
from genai_lab.workbench.kept import KEPT
from tests.lifecycle.scenes import PROMPT, SCENES, Places, generator, write


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places.make(tmp_path_factory.mktemp("lifecycle"))


@pytest.fixture
def nothing_else() -> Iterator[int]:
    """How much is alive already, of other tests, and stays so; from here on the cycle collector sleeps."""
    KEPT.clear()  # what other tests' answers kept to go on would give way to new ones
    gc.collect()
    gc.disable()
    others = [entry.reference() for entry in lifecycle._LIVE.values()]
    try:
        yield sum(other is not None for other in others)
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_is_dropped_is_freed_without_the_cycle_collector(
    scene: Callable[[Places], None], places: Places, nothing_else: int
) -> None:
    scene(places)
    assert len(og.live_objects()) == nothing_else, og.live_objects()


def test_an_answer_in_the_background_is_freed_with_its_trace(places: Places, nothing_else: int) -> None:
    model = og.Model(places.plain)
    trace = og.ask(model, "Hello", max_new_tokens=3).wait()
    assert len(og.live_objects()) == nothing_else + 2  # the model, and a generator kept to go on
    trace.close()
    assert len(og.live_objects()) == nothing_else + 1
    with pytest.raises(StateError, match=r"closed.*trace\.show\(model=model\)"):
        trace.again()
    assert len(trace.tokens()) == 3  # what was recorded stays
    trace.show(model=model)
    assert len(trace.again().wait().runs()) == 2
    with trace:
        pass
    del model
    assert len(og.live_objects()) == nothing_else


def test_a_running_adapter_outlives_the_adapters(places: Places) -> None:
    """Run options hold its address only."""
    model = og.Model(places.adapted)
    adapters = og.Adapters(model)
    adapters.load(places.adapter, "a")
    made = generator(model, max_length=20)
    made.set_active_adapter(adapters, "a")
    del adapters
    write(made)


# ---- the list


def test_each_kind_is_listed_with_its_bytes(places: Places, nothing_else: int) -> None:
    model = og.Model(places.plain)
    made = generator(model, max_length=100)
    engine = og.Engine(model)
    request = engine.create_request()
    request.begin_turn(PROMPT)
    engine.step()
    adapters = og.Adapters(model)
    adapters_with_one = og.Adapters(adapted_model := og.Model(places.adapted))
    adapters_with_one.load(places.adapter, "a")
    found = list(og.live_objects())[nothing_else:]
    assert [one.kind for one in found] == [
        "Model",
        "Generator",
        "Engine",
        "Request",
        "Adapters",
        "Model",
        "Adapters",
    ]
    sizes = [one.bytes for one in found]
    assert sizes[0] == sum(file.stat().st_size for file in Path(places.plain).glob("model.onnx*"))
    assert sizes[1] == made.kv_cache_bytes == 100 * model.kv_bytes_per_token
    assert sizes[2] >= engine.limits.max_batch_size * model.kv_bytes_per_token
    assert sizes[3] == len(PROMPT) * model.kv_bytes_per_token
    assert sizes[4] == 0
    assert sizes[6] == places.adapter.stat().st_size
    ages = [one.age_s for one in found]
    assert ages == sorted(ages, reverse=True)
    assert ages[-1] >= 0
    assert [one.words for one in found] == [
        repr(o) for o in (model, made, engine, request, adapters, adapted_model, adapters_with_one)
    ]
    engine.close()
    assert [one.kind for one in list(og.live_objects())[nothing_else:]].count("Request") == 0


def test_a_draft_is_listed_and_counted_once(places: Places, nothing_else: int) -> None:
    model = og.Model(places.pair)
    sizes = [one.bytes for one in list(og.live_objects())[nothing_else:]]
    assert len(sizes) == 2
    assert sorted(sizes)[0] == 0
    model.close()
    assert len(og.live_objects()) == nothing_else


def test_the_list_reads_as_a_table() -> None:
    found = LiveObjects([LiveObject("Model", 3 * 2**20, 1.25, "<m>"), LiveObject("Generator", 512, 0.5, "a & b")])
    assert repr(found).splitlines() == [
        "kind             memory      age  what",
        "Model           3.0 MiB    1.2 s  <m>",
        "Generator         512 B    0.5 s  a & b",
        "together        3.0 MiB",
    ]
    html = found._repr_html_()
    assert "&lt;m&gt;" in html
    assert "a &amp; b" in html
    assert found.total_bytes == 3 * 2**20 + 512
    assert list(found.frame().columns) == ["kind", "bytes", "age_s", "words"]
    assert found[0].kind == "Model"
    assert len(found[:1]) == 1
    assert repr(found[:0]) == "nothing is alive"
    assert in_units(5 * 2**40) == "5120.0 GiB"


# ---- after the end


def model_calls(places: Places) -> tuple[Any, list[Callable[[Any], object]]]:
    return og.Model(places.plain), [
        lambda m: m.graph,
        lambda m: m.describe(),
        lambda m: og.Generator(m, og.GeneratorParams(m)),
        lambda m: m.__enter__(),
    ]


def generator_calls(places: Places) -> tuple[Any, list[Callable[[Any], object]]]:
    made = generator(og.Model(places.plain))
    return made, [
        lambda g: g.append_tokens(PROMPT),
        lambda g: g.generate_next_token(),
        lambda g: g.is_done(),
        lambda g: g.get_logits(),
        lambda g: g.get_sequence(0),
        lambda g: g.rewind_to(0),
        lambda g: g.fork(),
        lambda g: g.set_hidden_states(None),
        lambda g: g.__enter__(),
    ]


def engine_calls(places: Places) -> tuple[Any, list[Callable[[Any], object]]]:
    engine = og.Engine(og.Model(places.plain))
    buffer = engine.create_event_buffer(1)
    return engine, [
        lambda e: e.create_request(),
        lambda e: e.run(buffer),
        lambda e: e.step(),
        lambda e: e.generate_all(["Hi"]),
        lambda e: e.submit("Hi"),
        lambda e: e.__enter__(),
    ]


def request_calls(places: Places) -> tuple[Any, list[Callable[[Any], object]]]:
    engine = og.Engine(og.Model(places.plain))
    request = engine.create_request()
    return request, [
        lambda r: r.begin_turn(PROMPT),
        lambda r: r.cancel_turn(1),
        lambda r: r.rewind_to_start_of_turn(1),
        lambda r: r.set_draft_tokens([5]),
        lambda r: r.fork(),
        lambda r: og.TurnOptions(r),
        lambda r: r.__enter__(),
    ]


def adapter_calls(places: Places) -> tuple[Any, list[Callable[[Any], object]]]:
    model = og.Model(places.adapted)
    adapters = og.Adapters(model)
    adapters.load(places.adapter, "a")
    return adapters, [
        lambda a: a.load(places.adapter, "b"),
        lambda a: a.unload("a"),
        lambda a: generator(model, max_length=20).set_active_adapter(a, "a"),
        lambda a: a.__enter__(),
    ]


@pytest.mark.parametrize("made", [model_calls, generator_calls, engine_calls, request_calls, adapter_calls])
def test_use_after_close_says_that_it_is_closed(
    made: Callable[[Places], tuple[Any, list[Callable[[Any], object]]]], places: Places
) -> None:
    thing, calls = made(places)
    with thing as entered:
        assert entered is thing
    thing.close()  # a second time is allowed
    assert "closed" in repr(thing)
    for number, call in enumerate(calls):
        with pytest.raises(StateError, match="closed"):
            call(thing)
            pytest.fail(f"call {number} was accepted")


def test_closing_the_model_is_said_by_what_was_made_from_it(places: Places) -> None:
    model = og.Model(places.plain)
    made, engine = generator(model), og.Engine(model)
    request = engine.create_request()
    request.begin_turn(PROMPT)
    model.close()
    for call in (lambda: made.append_tokens(PROMPT), engine.step, lambda: generator(model), lambda: og.Engine(model)):
        with pytest.raises(StateError, match="this Model is closed"):
            call()
    assert repr(og.live_objects())  # what is left can be listed


def test_adapters_in_use_are_not_closed(places: Places) -> None:
    model = og.Model(places.adapted)
    adapters = og.Adapters(model)
    adapters.load(places.adapter, "a")
    made = generator(model, max_length=20)
    made.set_active_adapter(adapters, "a")
    with pytest.raises(StateError, match="generators still run with a"):
        adapters.close()
    made.close()
    adapters.close()
