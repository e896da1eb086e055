"""What people do with models, each scene from loading to dropping: what it made is garbage when it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import genai_lab as og
from tests.graphs import VOCABULARY, plain_decoder
from tests.tables import random_table, table_pair
from tests.tiny import tiny_model_folder

PROMPT = [5, 6, 7, 5, 6]
TOKENS = 200  # of a cache, so that it is larger than anything else that a scene makes


@dataclass(frozen=True)
class Places:
    """Folders of tiny models."""

    plain: Path  # GroupQueryAttention, the last position's logits
    all_logits: Path
    pair: Path  # with a draft
    adapted: Path  # with an input that an adapter gives
    adapter: Path

    @classmethod
    def make(cls, folder: Path) -> Places:
        adapter = folder / "a.onnx_adapter"
        values = np.zeros(VOCABULARY, np.float32)
        written = onnxruntime.AdapterFormat()
        written.set_adapter_version(1)
        written.set_model_version(1)
        written.set_parameters({"adapter_a": onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(values, 1)})
        written.export_adapter(str(adapter))
        return cls(
            tiny_model_folder(folder / "plain"),
            tiny_model_folder(folder / "all", extra_options={"prune_lm_head": False}),
            table_pair(folder / "pair", random_table(0), random_table(1)),
            plain_decoder(folder / "adapted", adapted=True),
            adapter,
        )


def generator(model: og.Model, **options: int | float | bool) -> og.Generator:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": TOKENS} | options)
    return og.Generator(model, params)


def write(made: og.Generator, prompt: list[int] | list[list[int]] = PROMPT) -> None:
    made.append_tokens(prompt)
    for _ in range(3):
        made.generate_next_token()
    made.get_logits()
    made.get_sequence(0)


def alone(places: Places) -> None:
    write(generator(og.Model(places.plain)))


def recorded(places: Places) -> None:
    with og.record() as trace:
        write(generator(og.Model(places.plain), do_sample=True, random_seed=1))
    assert len(trace.tokens()) == 3


def batch(places: Places) -> None:
    write(generator(og.Model(places.plain), batch_size=2), [PROMPT, PROMPT])


def beams(places: Places) -> None:
    write(generator(og.Model(places.plain), num_beams=2))


def guided(places: Places) -> None:
    model = og.Model(places.plain)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=TOKENS)
    params.set_guidance("regex", "[a-z]{20}")
    write(og.Generator(model, params))


def ngrams(places: Places) -> None:
    model = og.Model(places.all_logits)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=TOKENS)
    params.set_speculative_options(ngram_size=2)
    write(og.Generator(model, params))


def draft(places: Places) -> None:
    made = generator(og.Model(places.pair), max_length=40)
    write(made)


def adapted(places: Places) -> None:
    model = og.Model(places.adapted)
    adapters = og.Adapters(model)
    adapters.load(places.adapter, "a")
    made = generator(model, max_length=20)
    made.set_active_adapter(adapters, "a")
    write(made)


def rewound_and_forked(places: Places) -> None:
    made = generator(og.Model(places.plain))
    write(made)
    made.rewind_to(4)
    write(made.fork(2))


def own_callables(places: Places) -> None:
    model = og.Model(places.plain)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=TOKENS)
    params.add_logits_processor(lambda tokens, logits: None)
    made = og.Generator(model, params)
    params.add_stopping_criterion(lambda tokens: made.token_count() > 1000)
    write(made)


def refused(places: Places) -> None:
    made = generator(og.Model(places.plain))
    for bad in ([10**6], [], [5] * 999):
        try:
            made.append_tokens(bad)
        except og.GenaiLabError:
            continue
        raise AssertionError("was accepted")


def events(places: Places) -> None:
    engine = og.Engine(og.Model(places.plain))
    request = engine.create_request()
    options = og.TurnOptions(request)
    options.set_max_generated_tokens(3)
    request.begin_turn(np.array(PROMPT, np.int32), options)
    buffer = engine.create_event_buffer(2)
    while engine.has_pending_requests():
        for event in engine.run(buffer):
            assert event.request is request


def left_in_the_middle(places: Places) -> None:
    engine = og.Engine(og.Model(places.plain))
    request = engine.create_request()
    request.begin_turn(PROMPT)
    engine.run(engine.create_event_buffer(1))
    request.fork()


def answers(places: Places) -> None:
    with og.Engine(og.Model(places.plain)) as engine:
        assert len(engine.generate_all(["Hello", "Hi"], n=2, do_sample=True, seed=1, max_generated_tokens=3)) == 2


def submitted(places: Places) -> None:
    with og.Engine(og.Model(places.plain)) as engine:
        engine.submit("Hello", max_generated_tokens=3).result()


def awaited(places: Places) -> None:
    async def ask(engine: og.Engine) -> int:
        return len([token async for token in engine.generate("Hello", max_generated_tokens=3)])

    with og.Engine(og.Model(places.plain)) as engine:
        assert asyncio.run(ask(engine)) > 0


def engine_recorded(places: Places) -> None:
    with og.record() as trace, og.Engine(og.Model(places.plain)) as engine:
        engine.generate_all(["Hello"], max_generated_tokens=3)
    assert len(trace.steps()) > 0


SCENES: tuple[Callable[[Places], None], ...] = (
    alone,
    recorded,
    batch,
    beams,
    guided,
    ngrams,
    draft,
    adapted,
    rewound_and_forked,
    own_callables,
    refused,
    events,
    left_in_the_middle,
    answers,
    submitted,
    awaited,
    engine_recorded,
)
