"""The Pythonic face: the same answers whoever steps, errors reach who waits, nothing hangs and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import math
import re
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_lab
from genai_lab.engine import Answer, Decision, Engine, Fcfs, QueueView, Reason, RequestOptions, StepPlan, Verdict
from genai_lab.errors import ArgumentError, ArgumentTypeError, CapacityError, GenaiLabError, StateError
from genai_lab.types import FinishReason
from tests.engine.asking import alone, drain, prompts, turn

WAIT = 60  # seconds; only a broken engine needs them


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> genai_lab.Model:
    return genai_lab.Model(tiny_folder)


@pytest.fixture
def engine(model: genai_lab.Model) -> Iterator[Engine]:
    with Engine(model, max_batch_size=3, max_session_tokens=120, block_size=8) as engine:
        yield engine


def test_generate_all_answers_in_order_and_in_kind(model: genai_lab.Model, engine: Engine) -> None:
    asked = prompts(20, 7, 12, 31)
    expected = [alone(model, prompt, 10) for prompt in asked]
    assert engine.generate_all(asked, max_generated_tokens=10) == expected
    texts = ["Hello world", "the wall"]
    found = engine.generate_all(texts, max_generated_tokens=6)
    tokens = [alone(model, model.tokenizer.encode(text), 6) for text in texts]
    assert found == [model.tokenizer.decode(np.array(answer, np.int32)) for answer in tokens]
    messages = [{"role": "user", "content": "Hello"}]
    prompt = model.tokenizer.apply_chat_template(messages)
    assert (
        engine.generate_all([messages, prompt], max_generated_tokens=6)[0]
        == engine.generate_all([prompt], max_generated_tokens=6)[0]
    )
    assert engine.generate_all([]) == []
    assert engine._states == {}


def test_turn_options_by_name(model: genai_lab.Model, engine: Engine) -> None:
    asked = prompts(9)
    sampled = {"do_sample": True, "top_k": 20, "temperature": 1.5}
    found = engine.generate_all(asked, max_generated_tokens=12, seed=7, **sampled)
    assert found == [alone(model, asked[0], 12, 7, **sampled)]
    urgent = RequestOptions()
    urgent.priority = -1
    answer = engine.submit(asked[0], max_generated_tokens=2, request_options=urgent)
    assert len(answer.result(WAIT)) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompt", "options", "error", "words"),
    [
        ([1, 2], {"max_tokens": 3}, ArgumentError, "max_tokens is not an option of a turn; did you mean"),
        ([1, 2], {"qqq": 3}, ArgumentError, "allowed are .*temperature"),
        ([1, 2], {"temperature": 0.5}, ArgumentError, "do_sample is False"),
        ([1, 2], {"max_generated_tokens": "3"}, ArgumentTypeError, "a whole number"),
        ([1, 2], {"request_options": {}}, ArgumentTypeError, "request_options is dict"),
        ([], {}, ArgumentError, "empty"),
        (3.5, {}, ArgumentTypeError, r"prompt.*: what was given is 3\.5 .* token ids"),
        ([1, 99999], {}, ArgumentError, "not in the vocabulary"),
        ([1] * 120, {}, CapacityError, "leave no room"),
    ],
)
def test_bad_arguments_begin_nothing(
    engine: Engine, prompt: object, options: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        engine.submit(prompt, **options)  # type: ignore[arg-type]
    with pytest.raises(error, match=words):
        engine.generate_all([[1, 2], prompt], **options)  # type: ignore[list-item]
    gc.collect()
    assert not engine.has_pending_requests()
    assert engine._states == {}


@pytest.mark.parametrize("wrong", ["", None, b"x", {1, 2}, [], [1.5], [[1, 2], [3, 4]], [10**6], [1] * 120, [{}]])
def test_the_error_says_which_prompt_it_is(engine: Engine, wrong: Any) -> None:
    with pytest.raises(GenaiLabError, match=r"^prompts\[2\]: ") as caught:
        engine.generate_all(["a", [1, 2], wrong])
    with pytest.raises(type(caught.value), match=r"^prompt: "):
        engine.submit(wrong)
    with pytest.raises(ArgumentError, match=r"^do_sample is False"):  # that is no prompt's
        engine.generate_all([[1, 2]], temperature=0.5)


@pytest.mark.parametrize("wrong", ["a", [], True, -1, math.nan, -math.inf])
def test_a_time_to_wait_is_checked(engine: Engine, wrong: Any) -> None:
    answer = engine.submit([5, 6, 7], max_generated_tokens=2)
    for wait in (answer.result, answer.exception):
        with pytest.raises((ArgumentError, ArgumentTypeError), match=r"timeout is .* seconds from 0 on, or None"):
            wait(wrong)
        for endless in (math.inf, 1e20, None, np.int64(WAIT)):
            wait(endless)


def test_numbers_and_flags_of_numpy(model: genai_lab.Model) -> None:
    sizes = {"max_batch_size": np.int64(2), "max_session_tokens": np.uint16(60), "exact": np.True_}
    flags = {"prefix_caching": np.False_, "check_invariants": np.True_}
    policy = Fcfs(skip_blocked=np.True_, read_once=np.False_)
    with Engine(model, policy=policy, **sizes, **flags) as engine:
        assert engine.exact is True and engine.limits.max_batch_size == 2
        request = engine.create_request()
        request.begin_turn([5, 6], turn(2))
        request.fork(seed=np.uint64(2**64 - 1)).close()
        sampled = {"do_sample": np.True_, "max_generated_tokens": np.int8(2), "seed": np.uint64(3)}
        assert len(engine.generate_all([[5, 6, 7]], n=np.int64(2), **sampled)[0]) == 2
        assert len(engine.submit_many([5, 6, 7], n=np.int64(2), **sampled)) == 2


def test_seeds_go_on_at_0_after_the_largest(engine: Engine) -> None:
    sampled = {"do_sample": True, "temperature": 1.5, "max_generated_tokens": 9}
    last, first = engine.generate_all([[5, 6, 7]], n=2, seed=2**64 - 1, **sampled)[0]
    alone_last, alone_first = (engine.generate_all([[5, 6, 7]], seed=s, **sampled)[0] for s in (2**64 - 1, 0))
    assert (last, first) == (alone_last, alone_first)
    assert last != first


def test_submit_is_for_one_answer(engine: Engine) -> None:
    with pytest.raises(ArgumentError, match=r"submit_many\(prompt, n=2\)"):
        engine.submit([5, 6], n=2)


def test_prompts_must_be_a_list(engine: Engine) -> None:
    with pytest.raises(ArgumentTypeError, match=r"such as \[prompt\]"):
        engine.generate_all("Why?")


def test_run_until_idle_leaves_the_events_for_run(engine: Engine) -> None:
    request = engine.create_request()
    turn = genai_lab.TurnOptions(request)
    turn.set_max_generated_tokens(4)
    request.begin_turn([5, 6, 7], turn)
    assert engine.run_until_idle() == 4
    assert len(engine.run(engine.create_event_buffer(10))) == 4
    assert engine.run_until_idle() == 0


# ---- threads


def test_submitting_from_many_threads_batches_and_equals_alone(model: genai_lab.Model, engine: Engine) -> None:
    asked = prompts(20, 7, 12, 31, 16, 9)
    engine.start()
    found: dict[int, list[int]] = {}

    def client(number: int) -> None:
        answer = engine.submit(asked[number], max_generated_tokens=12)
        found[number] = list(answer)
        assert answer.result(WAIT) == found[number]

    threads = [threading.Thread(target=client, args=(number,)) for number in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert [found[n] for n in range(len(asked))] == [alone(model, prompt, 12) for prompt in asked]
    assert engine._driver.running
    engine.stop()
    engine.stop()
    assert not engine._driver.running


def test_without_start_the_thread_comes_and_goes(model: genai_lab.Model, engine: Engine) -> None:
    answer = engine.submit([5, 6, 7], max_generated_tokens=5)
    thread = engine._driver._thread
    assert answer.result(WAIT) == alone(model, np.array([5, 6, 7], np.int32), 5)
    assert thread is None or thread.daemon
    if thread is not None:
        thread.join(WAIT)
    assert not engine._driver.running
    assert answer.done()
    assert answer.finish_reason is FinishReason.MAX_GENERATED_TOKENS
    assert answer.usage.generated_tokens == 5
    assert repr(answer).endswith("max_generated_tokens, 5 tokens>")


class Gate(Fcfs):
    """Lets nothing run until it is opened; counts the plans it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.plans, self.error = threading.Event(), 0, None

    def plan(self, view: QueueView) -> StepPlan:
        self.plans += 1
        assert self.open.wait(WAIT)
        if self.error is not None:
            raise self.error
        return super().plan(view)


@pytest.fixture
def gated(model: genai_lab.Model) -> Iterator[tuple[Engine, Gate]]:
    gate = Gate()
    with Engine(model, max_batch_size=2, max_session_tokens=120, policy=gate) as engine:
        yield engine, gate
        gate.open.set()


def test_result_times_out_and_the_answer_goes_on(gated: tuple[Engine, Gate]) -> None:
    engine, gate = gated
    answer = engine.submit([5, 6, 7], max_generated_tokens=5)
    with pytest.raises(TimeoutError, match="it goes on"):
        answer.result(timeout=0.01)
    assert not answer.done()
    assert "under way" in repr(answer)
    gate.open.set()
    assert len(answer.result(WAIT)) == 5


def test_cancelling_an_answer_that_ends_and_is_closed_meanwhile_is_false(engine: Engine) -> None:
    answer = engine.submit("Alice", max_generated_tokens=1)
    lock = engine._conversations.lock

    class Late:
        """The lock, which the canceller gets after the answer ended and its request was closed."""

        def __enter__(self) -> None:
            engine._conversations.lock = lock  # type: ignore[assignment]
            engine.run_until_idle()
            engine._conversations.close(answer.number)
            lock.__enter__()

        def __exit__(self, *what: object) -> None:
            lock.__exit__(*what)

    engine._conversations.lock = Late()  # type: ignore[assignment]
    assert answer.cancel() is False
    assert answer.done() and not answer.cancelled()


def test_cancelling_ends_the_iteration_and_result_says_so(engine: Engine) -> None:
    answer = engine.submit([5, 6, 7], max_generated_tokens=110)
    seen = [token for _, token in zip(range(3), answer, strict=False)]
    answer.cancel()
    assert answer.cancelled()
    assert not answer.cancel()
    assert list(answer)[:3] == seen
    with pytest.raises(CancelledError):
        answer.result(WAIT)
    assert engine.generate_all([[5, 6]], max_generated_tokens=2)


def test_an_error_in_the_thread_reaches_everybody_who_waits(gated: tuple[Engine, Gate]) -> None:
    engine, gate = gated
    engine.start()
    with engine._lock:  # both are in before the first step
        answers = [engine.submit([5, 6, n], max_generated_tokens=5) for n in (7, 8)]
    gate.error = ZeroDivisionError("the policy divided")
    gate.open.set()
    for answer in answers:
        with pytest.raises(ZeroDivisionError, match="the policy divided"):
            answer.result(WAIT)
        with pytest.raises(ZeroDivisionError):
            list(answer)
        assert answer.finish_reason is FinishReason.FAILED
    gate.error = None
    assert len(engine.submit([5, 6, 7], max_generated_tokens=3).result(WAIT)) == 3


def test_stop_and_close_end_what_waits(gated: tuple[Engine, Gate]) -> None:
    engine, gate = gated
    answer = engine.submit([5, 6, 7], max_generated_tokens=100)
    stopper = threading.Thread(target=engine.stop)
    stopper.start()
    gate.open.set()
    stopper.join(WAIT)
    with pytest.raises(StateError, match="stopped before the answer ended"):
        answer.result(WAIT)
    assert len(engine.submit([5, 6, 7], max_generated_tokens=3).result(WAIT)) == 3
    last = engine.submit([5, 6, 7], max_generated_tokens=100)
    engine.close()
    engine.close()
    with pytest.raises(StateError, match="closed before the answer ended"):
        last.result(WAIT)


def test_a_policy_that_lets_all_wait_is_told(model: genai_lab.Model) -> None:
    class Lazy(Fcfs):
        def plan(self, view: QueueView) -> StepPlan:
            words = "Not today."
            return StepPlan(
                (), tuple(Decision(r.request, Verdict.WAIT, Reason.POLICY, words=words) for r in view.waiting)
            )

    with Engine(model, max_batch_size=1, policy=Lazy()) as engine:
        with pytest.raises(StateError, match=r"scheduled nothing in 1000 steps.*Request 0: Not today"):
            engine.generate_all([[5, 6, 7]])
        with pytest.raises(StateError, match="scheduled nothing"):
            engine.submit([5, 6, 7]).result(WAIT)
        request = engine.create_request()
        request.begin_turn([5, 6, 7])
        with pytest.raises(StateError, match="scheduled nothing"):
            engine.run_until_idle()


class Mondays(Fcfs):
    """Rejects who has a certain number of tokens, however it came to that."""

    def __init__(self, words: str, reason: Reason, at: int) -> None:
        super().__init__()
        self.words, self.reason, self.at = words, reason, at

    def plan(self, view: QueueView) -> StepPlan:
        if all(r.num_tokens != self.at for r in (*view.waiting, *view.running)):
            return super().plan(view)
        operands = (("needs_blocks", 9), ("num_blocks", 5))
        return StepPlan(
            (),
            tuple(
                Decision(r.request, Verdict.REJECT, self.reason, operands=operands, words=self.words)
                for r in (*view.waiting, *view.running)
            ),
        )


@pytest.mark.parametrize(
    ("words", "reason", "told"),
    [
        ("not on {Mondays}", Reason.POLICY, r"not on \{Mondays\}"),
        ("", Reason.POLICY, "The policy decided so"),
        ("too big for us", Reason.NEVER_FITS, "too big for us"),
    ],
)
@pytest.mark.parametrize(("at", "answered"), [(3, 0), (5, 2)])
def test_a_policy_that_rejects_is_heard(
    model: genai_lab.Model, words: str, reason: Reason, told: str, at: int, answered: int
) -> None:
    said = f"policy rejected it after {answered} tokens of its answer, and says: {told}"
    with Engine(model, policy=Mondays(words, reason, at)) as engine:
        with pytest.raises(StateError, match=said):
            engine.generate_all([[5, 6, 7]])
        with pytest.raises(StateError, match=said):
            engine.submit([5, 6, 7]).result(WAIT)
        request = engine.create_request()
        request.begin_turn([5, 6, 7])
        *_, last = drain(engine)
        assert last.finish_reason is FinishReason.FAILED
        assert last.stop_reason is not None and re.search(told, last.stop_reason)
        assert engine._cache.usage().blocks_used == 0


def test_an_answer_that_outgrows_the_pool_fails_and_says_so(model: genai_lab.Model) -> None:
    with Engine(model, max_session_tokens=100, block_size=4, num_blocks=6) as engine:
        with pytest.raises(CapacityError, match="more blocks than the whole pool"):
            engine.generate_all([[5] * 10], max_generated_tokens=50)
        with pytest.raises(CapacityError, match="after 0 tokens"):
            engine.generate_all([[5] * 40], max_generated_tokens=5)
        assert engine._cache.usage().blocks_used == 0


def test_after_close_every_call_says_so(model: genai_lab.Model) -> None:
    engine = Engine(model, max_session_tokens=60)
    request = engine.create_request()
    request.begin_turn([5, 6, 7])
    engine.close()
    calls = (
        engine.create_request,
        engine.step,
        engine.start,
        engine.__enter__,
        lambda: engine.run(engine.create_event_buffer(1)),
        lambda: engine.submit("Why?"),
        lambda: engine.generate_all(["Why?"]),
        lambda: request.begin_turn([5]),
        lambda: request.cancel_turn(1),
        request.tokens,
    )
    for call in calls:
        with pytest.raises(StateError, match="engine is closed"):
            call()
    assert "closed" in repr(request)
    request.close()


def test_a_dropped_answer_frees_its_place(engine: Engine) -> None:
    answer: Answer | None = engine.submit([5, 6, 7], max_generated_tokens=110)
    assert answer is not None
    next(iter(answer))
    answer = None
    gc.collect()
    assert engine.generate_all([[5, 6]], max_generated_tokens=2)
    assert engine._states == {}
    assert engine._cache.usage().blocks_used == 0


def test_who_asks_while_the_engine_closes_hears_of_it(model: genai_lab.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between failing the answers and closing their requests nobody can come in."""
    engine, asked = Engine(model, max_session_tokens=60), []
    give_back = engine._give_back

    def ask() -> None:
        try:
            asked.append(engine.submit([5, 6, 7], max_generated_tokens=3).exception(WAIT))
        except StateError as error:
            asked.append(error)

    thread = threading.Thread(target=ask)

    def with_one_more() -> None:
        thread.start()
        while not engine._lock._queue:  # it waits for the lock
            thread.join(0.001)
        give_back()

    monkeypatch.setattr(engine, "_give_back", with_one_more)
    engine.close()
    thread.join(WAIT)
    assert [type(error) for error in asked] == [StateError]
    assert "closed" in str(asked[0])


def test_a_dropped_engine_goes_and_its_thread_with_it(model: genai_lab.Model) -> None:
    engine = Engine(model, max_session_tokens=60)
    engine.start()
    assert len(engine.submit([5, 6, 7], max_generated_tokens=3).result(WAIT)) == 3
    thread, alive = engine._driver._thread, weakref.ref(engine)
    assert thread is not None
    del engine
    thread.join(WAIT) if alive() is None else None
    gc.collect()
    thread.join(WAIT)
    assert alive() is None
    assert not thread.is_alive()


def test_garbage_collected_in_the_middle_of_a_step_is_closed_after_it(model: genai_lab.Model) -> None:
    """A handle in a reference cycle may be collected anywhere, also while its blocks are reserved."""
    engine = Engine(model, max_batch_size=2, max_session_tokens=60)
    kept, lost = engine.create_request(), engine.create_request()
    for request in (kept, lost):
        request.begin_turn([5, 6, 7])
    cycle: list[object] = [lost]
    cycle.append(cycle)
    run = engine._runner.run

    def collecting(*args: object) -> None:
        run(*args)  # type: ignore[arg-type]
        gc.collect()

    engine._runner.run = collecting  # type: ignore[method-assign]
    del cycle, lost, request
    assert len(engine.step()) == 2
    assert list(engine._states) == [kept.number]
    engine.step()
    assert engine._cache.check() == []


# ---- event loops


def test_several_generators_in_one_loop_are_batched(model: genai_lab.Model, engine: Engine) -> None:
    asked = prompts(20, 7, 12, 31)
    most = 0
    advance = engine._advance

    def watching() -> tuple[Decision, ...]:
        nonlocal most
        decisions = advance()
        most = max(most, sum(d.num_tokens > 0 for d in decisions))
        return decisions

    engine._advance = watching  # type: ignore[method-assign]

    async def one(prompt: object) -> list[int]:
        return [token async for token in engine.generate(prompt, max_generated_tokens=15)]  # type: ignore[arg-type]

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*(one(prompt) for prompt in asked))

    assert asyncio.run(all_of_them()) == [alone(model, prompt, 15) for prompt in asked]
    assert most > 1
    with engine._lock:
        assert engine._states == {}


def test_leaving_the_loop_or_cancelling_the_task_cancels_the_turn(engine: Engine) -> None:
    async def leave() -> None:
        answer = engine.generate([5, 6, 7], max_generated_tokens=110)
        async for _ in answer:
            break
        await answer.aclose()  # type: ignore[attr-defined]

    async def cancel() -> None:
        first = asyncio.Event()

        async def read() -> None:
            async for _ in engine.generate([5, 6, 7], max_generated_tokens=110):
                first.set()

        task = asyncio.create_task(read())
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for way in (leave, cancel):
        asyncio.run(way())
        with engine._lock:
            assert engine._states == {}
        assert engine._cache.usage().blocks_used == 0


def test_errors_reach_the_event_loop(gated: tuple[Engine, Gate]) -> None:
    engine, gate = gated
    gate.error = ZeroDivisionError("the policy divided")
    gate.open.set()

    async def read() -> list[int]:
        return [token async for token in engine.generate([5, 6, 7])]

    with pytest.raises(ZeroDivisionError, match="the policy divided"):
        asyncio.run(read())
    engine.close()
    with pytest.raises(StateError, match="engine is closed"):
        asyncio.run(read())
