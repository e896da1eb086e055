"""Random programs over the Generators API, driven through two libraries side by side.

A program is a model's name, options, and calls. `compare` drives both libraries call by call and looks at everything
that can be seen after each one: the outcome (a value, or the kind of error), tokens, counts, done flags, the last
tokens, logits. The first difference that no rule of `differences` explains is returned; `shortest` then drops whatever
is not needed for it.

    program = random_program(np.random.default_rng(7), WORLDS["tiny"])
    difference = compare(program, sides["tiny"], RULES)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Options = dict[str, Any]
LOGITS_TOLERANCE = 2e-4  # the same graph on the same processor; only the number of tokens in a run may differ

NOT_COUNTED_ALIKE = {
    "draft_forward_passes": "ours reads the draft's tokens in fewer runs",
    "target_reconciliation_forward_passes": "ours rebuilds nothing when tokens are appended in mid-round",
    "target_forward_passes": "the sum of the others",
    "ngram_history_syncs": "ours rebuilds nothing when tokens are appended in mid-round",
    "ngram_history_tokens_synced": "ours rebuilds nothing when tokens are appended in mid-round",
}


@dataclass(frozen=True)
class Call:
    """One call of a generator, by a name that `Driver` knows, with plain arguments."""

    name: str
    given: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(repr(one) for one in self.given)})"


@dataclass(frozen=True)
class Program:
    """What is made, with which options, and what is called."""

    world: str
    search: Options = field(default_factory=dict)
    speculative: Options = field(default_factory=dict)
    guidance: tuple[str, str, bool] | None = None
    calls: tuple[Call, ...] = ()

    @property
    def rows(self) -> int:
        return max(1, int(self.search.get("batch_size", 1)))

    @property
    def beams(self) -> int:
        return int(self.search.get("num_beams", 1))

    @property
    def results(self) -> int:
        return self.rows * int(self.search.get("num_return_sequences", 1))

    @property
    def speculates(self) -> bool:
        return bool(self.speculative.get("ngram_size")) or WORLDS[self.world].has_draft


@dataclass(frozen=True)
class World:
    """What a program may ask of one model."""

    name: str
    vocabulary: int
    end: int  # the end token
    pad: int
    context: int = 60  # tokens that programs write at most
    has_text: bool = False  # a tokenizer, so that grammars can be used
    has_draft: bool = False
    ngrams: bool = True  # gives the logits of every position
    outputs: tuple[str, ...] = ()
    alone: bool = False  # one sequence only: a row's numbers depend on the rows beside it
    has_ties: bool = False  # several texts have exactly the same score: beam search may take either
    least_prompt: int = 1  # tokens that are appended at least
    calls: int = 14


WORLDS = {
    world.name: world
    for world in (
        World("tiny", 288, 2, 2, has_text=True, ngrams=False, outputs=("logits", "present.1.value")),
        World("tiny every position", 288, 2, 2, has_text=True, outputs=("logits",)),
        World("tiny int8", 288, 2, 2, outputs=("logits",), ngrams=False),
        World("tiny int4", 288, 2, 2, ngrams=False, alone=True),
        World("plain apart", 40, 1, 0, outputs=("logits", "present.1.value")),
        World("plain combined", 40, 1, 0, outputs=("logits", "present_1")),
        World("plain without places", 40, 1, 0),
        World("plain float16", 40, 1, 0),
        World("table", 8, 7, 0, has_ties=True),
        World("table that ends", 8, 7, 0, has_ties=True),
        World("table with a draft", 8, 7, 0, has_draft=True, alone=True),
        World("smollm2", 49152, 2, 2, context=24, has_text=True, ngrams=False, calls=6, least_prompt=2),
    )
}


# ---- driving ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What a library shows after a call."""

    value: Any = None  # what the call returned
    error: BaseException | None = None
    count: int | None = None
    done: bool | None = None
    next_tokens: tuple[int, ...] = ()
    sequences: tuple[tuple[int, ...], ...] = ()

    def told(self) -> str:
        """In one line, for a report."""
        if self.error is not None:
            outcome = f"{type(self.error).__name__}: {self.error}"
        else:
            outcome = "" if self.value is None else _short(self.value)
        return f"{outcome} count={self.count} done={self.done} next={self.next_tokens} {self.sequences}"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {np.array2string(value.ravel()[:6], precision=4)}"
    return repr(value)


class Side:
    """One library with one model."""

    def __init__(self, api: Any, model: Any) -> None:
        self.api, self.model = api, model
        self.tokenizer: Any = None

    def encode(self, text: str) -> NDArray[np.int32]:
        self.tokenizer = self.tokenizer or self.api.Tokenizer(self.model)
        return np.asarray(self.tokenizer.encode(text), np.int32)


class Driver:
    """Makes the program's generator with one library and does its calls."""

    def __init__(self, side: Side, program: Program) -> None:
        self.side, self.program = side, program
        self.generator: Any = None

    def make(self) -> Seen:
        """The generator of the program's options."""
        try:
            params = self.side.api.GeneratorParams(self.side.model)
            params.set_search_options(**self.program.search)
            if self.program.speculative:
                params.set_speculative_options(**self.program.speculative)
            if self.program.guidance is not None:
                params.set_guidance(*self.program.guidance)
            self.generator = self.side.api.Generator(self.side.model, params)
        except Exception as error:
            return Seen(error=error)
        return self._look(None, None)

    def do(self, call: Call) -> Seen:
        """One call and a look at everything."""
        try:
            value = getattr(self, f"_{call.name}")(*call.given)
        except Exception as error:
            return self._look(None, error)
        return self._look(value, None)

    def _look(self, value: Any, error: Exception | None) -> Seen:
        g, results = self.generator, range(self.program.results)
        if self.program.beams > 1 and not g.is_done():
            results = range(0)  # a look at them before the end stops the search there
        return Seen(
            value,
            error,
            int(g.token_count()),
            bool(g.is_done()),
            tuple(np.asarray(g.get_next_tokens()).tolist()),
            tuple(tuple(np.asarray(g.get_sequence(index)).tolist()) for index in results),
        )

    def _append(self, tokens: Any) -> None:
        self.generator.append_tokens(np.array(tokens, np.int32))

    def _generate(self) -> None:
        """One step, where there is one."""
        if not self.generator.is_done():
            self.generator.generate_next_token()

    def _generate_anyway(self) -> None:
        self.generator.generate_next_token()

    def _logits(self) -> NDArray[np.float32]:
        return np.array(self.generator.get_logits())

    def _set_logits(self, seed: int, gain: float) -> None:
        rows = self.program.rows * self.program.beams
        shape = (rows, 1, WORLDS[self.program.world].vocabulary)
        self.generator.set_logits((np.random.default_rng(seed).standard_normal(shape) * gain).astype(np.float32))

    def _set_wrong_logits(self, size: int) -> None:
        self.generator.set_logits(np.zeros(size, np.float32))

    def _rewind(self, length: int) -> None:
        self.generator.rewind_to(length)

    def _output(self, name: str) -> NDArray[Any]:
        """An output; of keys and values only those of tokens that surely were read."""
        value = np.array(self.generator.get_output(name))
        return value[..., : max(1, self.generator.token_count() - 1), :] if name.startswith("present") else value

    def _sequence(self, index: int) -> tuple[int, ...]:
        return tuple(np.asarray(self.generator.get_sequence(index)).tolist())

    def _snapshot(self) -> None:
        self.generator.snapshot_state()

    def _stats(self) -> Options:
        """The counters: whole numbers, but for those of `NOT_COUNTED_ALIKE`."""
        found = self.generator.get_speculative_stats()
        kept = (name for name, value in found.items() if isinstance(value, int) and name not in NOT_COUNTED_ALIKE)
        return {name: found[name] for name in sorted(kept)}


# ---- comparing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """Where a program is: before `call`, which did or will give what is seen."""

    program: Program
    before: tuple[Call, ...]  # the calls that were made
    call: Call | None  # None: the generator is made
    last: Seen  # what ours showed before the call
    moved: tuple[str, ...] = ()  # names of the calls before that changed the text or its logits

    @property
    def last_move(self) -> str:
        return self.moved[-1] if self.moved else ""


@dataclass(frozen=True)
class Rule:
    """A known difference."""

    name: str
    reason: str
    applies: Callable[[Moment], bool]  # whether it may show at this call
    holds: Callable[[Moment, Seen, Seen], bool]  # what is true then of theirs and ours
    ends: bool = True  # the two have different texts from here on: the rest of the program is not compared
    hidden: bool = False  # nothing need show at this call; what follows differs
    readme: str = ""  # words of README's table that say it; "": told elsewhere, or too small for it

    def explains(self, moment: Moment, theirs: Seen, ours: Seen, differs: bool) -> bool:
        """Whether this is what differs, or begins to."""
        return (differs or self.hidden) and self.applies(moment) and self.holds(moment, theirs, ours)


@dataclass(frozen=True)
class Difference:
    """The first thing in which two libraries differ."""

    program: Program
    at: int  # index of the call; -1: making the generator
    what: str
    theirs: Seen
    ours: Seen

    def __str__(self) -> str:
        calls = "\n".join(f"    {'->' if i == self.at else '  '} {call}" for i, call in enumerate(self.program.calls))
        return (
            f"{self.what}\n  world {self.program.world!r} search {self.program.search} "
            f"speculative {self.program.speculative} guidance {self.program.guidance}\n{calls}\n"
            f"  theirs: {self.theirs.told()}\n  ours:   {self.ours.told()}"
        )


MOVES = ("append", "generate", "generate_anyway", "logits", "set_logits", "rewind")


@dataclass
class Tally:
    """How often each rule explained something, and how much was compared."""

    programs: int = 0
    calls: int = 0
    rules: dict[str, int] = field(default_factory=dict)


def compare(program: Program, theirs: Side, ours: Side, rules: Sequence[Rule], tally: Tally) -> Difference | None:
    """Drive both; the first difference that no rule explains."""
    drivers = Driver(theirs, program), Driver(ours, program)
    tally.programs += 1
    last = Seen()
    moved: list[str] = []
    for at in range(-1, len(program.calls)):
        call = program.calls[at] if at >= 0 else None
        moment = Moment(program, program.calls[: max(at, 0)], call, last, tuple(moved))
        found = tuple(driver.make() if call is None else driver.do(call) for driver in drivers)
        tally.calls += 1
        what = unlike(found[0], found[1])
        rule = next((one for one in rules if one.explains(moment, found[0], found[1], bool(what))), None)
        if what and rule is None:
            return Difference(program, at, what, found[0], found[1])
        if rule is not None:
            tally.rules[rule.name] = tally.rules.get(rule.name, 0) + 1
            if rule.ends:
                return None
        if found[1].count is None:
            return None  # neither made a generator
        stays = call == Call("rewind", (last.count,))
        last = found[1]
        if call is not None and last.error is None and call.name in MOVES and not stays:
            moved.append(call.name.removesuffix("_anyway"))
    return None


def unlike(theirs: Seen, ours: Seen) -> str:
    """In which way the two differ; "" when they do not."""
    if (theirs.error is None) != (ours.error is None):
        return "one raises"
    if theirs.error is not None and not isinstance(ours.error, type(theirs.error)):
        return "another kind of error"
    for name in ("count", "done", "next_tokens", "sequences"):
        if getattr(theirs, name) != getattr(ours, name):
            return f"another {name}"
    if isinstance(theirs.value, np.ndarray) and isinstance(ours.value, np.ndarray):
        if theirs.value.shape != ours.value.shape:
            return "another shape"
        if not np.allclose(theirs.value, ours.value, rtol=1e-4, atol=LOGITS_TOLERANCE, equal_nan=True):
            return "other numbers"
    elif theirs.value != ours.value:
        return "another value"
    return ""


# ---- shrinking --------------------------------------------------------------------------------------------------


def shortest(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The program with nothing in it that the failure does not need."""
    going_on = True
    while going_on:
        going_on = False
        for smaller in _smaller(program):
            if why_not_asked(smaller) is None and fails(smaller):
                program, going_on = smaller, True
                break
    return program


def _without(options: Options, name: str) -> Options:
    return {key: value for key, value in options.items() if key != name}


def _smaller(program: Program) -> Iterator[Program]:
    calls = program.calls
    for size in (len(calls) // 2, len(calls) // 4, 1):
        for start in range(0, len(calls) if size else 0, max(size, 1)):
            yield replace(program, calls=calls[:start] + calls[start + size :])
    if program.guidance is not None:
        yield replace(program, guidance=None)
    for name in program.search:
        yield replace(program, search=_without(program.search, name))
    for name in program.speculative:
        yield replace(program, speculative=_without(program.speculative, name))
    for place, call in enumerate(calls):
        if call.name == "append" and isinstance(call.given[0], list) and len(call.given[0]) > 1 and program.rows == 1:
            for half in (call.given[0][: len(call.given[0]) // 2], call.given[0][1:]):
                yield replace(program, calls=(*calls[:place], Call("append", (half,)), *calls[place + 1 :]))


# ---- what is never asked ----------------------------------------------------------------------------------------


def _begins_with_a_prompt(program: Program) -> bool:
    return bool(program.calls) and program.calls[0].name == "append" and bool(program.calls[0].given[0])


NOT_ASKED: dict[str, Callable[[Program], bool]] = {
    "do_sample without a seed: no two runs are alike": lambda p: (
        p.search.get("do_sample", False) and "random_seed" not in p.search
    ),
    "several rows with a chunk_size: an error there, and sometimes the end of the process": (
        lambda p: p.rows * p.beams > 1 and "chunk_size" in p.search
    ),
    "logits or steps of a beam search without a prompt: they end the process there": (
        lambda p: p.beams > 1 and bool(p.calls) and not _begins_with_a_prompt(p)
    ),
    "a second prompt, or a rewind, of a beam search: they end the process there": (
        lambda p: p.beams > 1 and bool({"append", "rewind"} & {call.name for call in p.calls[1:]})
    ),
}
NOT_VARIED = {
    "min_adaptive_k": "the width follows the time that rounds take: no two runs are alike",
    "outputs while speculating": "the tokens are cut into runs elsewhere",
    "keys and values of the last token": "who computes them when differs; a shared buffer is longer than the text",
    "beams of a table model": "other texts have exactly the same score, and either may be taken",
    "prompts of one token in rows of the default model": "4-bit weights: one token alone takes another numeric path",
    "rows of an int4 model": "a row's numbers depend on how many rows are read beside it (up to 0.05)",
    "get_sequence outside the rows": "there it reads memory that is not its own",
}


def why_not_asked(program: Program) -> str | None:
    """Why onnxruntime-genai cannot be asked this; None when it can."""
    return next((reason for reason, applies in NOT_ASKED.items() if applies(program)), None)


# ---- making -----------------------------------------------------------------------------------------------------

GRAMMARS = (
    ("regex", "[0-9]{4}"),
    ("regex", r"(The|A) [a-z]{2,6} (is|was) [a-z]{3,9}\."),
    ("json_schema", '{"enum": ["red", "green", "blue"]}'),
    ("lark_grammar", 'start: "<" /[a-z]{1,5}/ ">"'),
)
WRONG_OPTIONS: tuple[Options, ...] = (
    {"num_return_sequences": 3, "num_beams": 2},
    {"max_length": 0},
    {"max_length": -1},
    {"max_length": 10**6},
    {"top_k": -1, "do_sample": True},
    {"top_p": 1.5, "do_sample": True},
    {"top_p": -0.5, "do_sample": True},
    {"temperature": -1.0, "do_sample": True},
    {"repetition_penalty": 0.0},
    {"repetition_penalty": -1.0},
    {"batch_size": 0},
    {"num_beams": 0},
    {"num_beams": 2, "do_sample": True},
    {"no_such_option": 1},
    {"do_sample": 1},
    {"top_k": True},
    {"temperature": "hot"},
    {"no_repeat_ngram_size": -1},
    {"min_length": -1},
    {"min_length": 100},
    {"random_seed": -2},
    {"num_return_sequences": 0},
    {"top_k": 10**6, "do_sample": True},
)


def random_program(rng: np.random.Generator, world: World) -> Program:
    """A program that may ask anything of this model."""
    program = Program(world.name, _search(rng, world))
    if rng.random() < 0.04:
        wrong = WRONG_OPTIONS[int(rng.integers(len(WRONG_OPTIONS)))]
        program = replace(program, search=program.search | wrong)
    if program.beams == 1 and program.rows == 1 and (world.has_draft or (world.ngrams and rng.random() < 0.4)):
        program = replace(program, speculative=_speculative(rng, world))
    if world.has_text and rng.random() < 0.3:
        kind, text = GRAMMARS[int(rng.integers(len(GRAMMARS)))]
        program = replace(program, guidance=(kind, text, bool(rng.random() < 0.4)))
    return replace(program, calls=tuple(_calls(rng, world, program)))


def _search(rng: np.random.Generator, world: World) -> Options:
    search: Options = {"max_length": int(rng.integers(8, world.context + 1))}
    shape = 1.0 if world.alone else rng.random()
    if shape < 0.25:
        search["batch_size"] = int(rng.integers(2, 5))
    if 0.15 < shape < 0.4 and not world.has_ties:
        search |= {"num_beams": int(rng.choice([2, 3, 5])), "length_penalty": float(rng.choice([0.0, 0.5, 1.0, 2.0]))}
        search |= {
            "num_return_sequences": int(rng.integers(1, search["num_beams"] + 1)),
            "early_stopping": bool(rng.random() < 0.5),
        }
    elif rng.random() < 0.5:
        search |= {
            "do_sample": True,
            "random_seed": int(rng.integers(1000)),
            "top_k": int(rng.choice([0, 1, 2, 3, 5, 7, 7, 7])),
        }
        search |= {"top_p": float(rng.choice([0.0, 0.5, 0.9, 1.0])), "temperature": float(rng.choice([0.0, 0.5, 1, 3]))}
    for name, chance, values in (
        ("repetition_penalty", 0.25, (0.7, 1.3, 2.0)),
        ("min_length", 0.25, (1, 10, 30)),
        ("no_repeat_ngram_size", 0.2, (1, 2, 3)),
        ("chunk_size", 0.0 if {"num_beams", "batch_size"} & set(search) else 0.2, (2, 3, 5)),
        ("past_present_share_buffer", 0.1, (True, False)),
    ):
        if rng.random() < chance:
            search[name] = values[int(rng.integers(len(values)))]
    return search


def _speculative(rng: np.random.Generator, world: World) -> Options:
    made: Options = {"max_draft_tokens": int(rng.integers(1, 7)), "cooldown": bool(rng.random() < 0.5)}
    if not world.has_draft or rng.random() < 0.03:
        made |= {"ngram_size": int(rng.choice([2, 3, 4])), "ngram_chained_lookup": bool(rng.random() < 0.5)}
    if rng.random() < 0.03:
        made |= {"ngram_chained_lookup": True}
    return made


def _calls(rng: np.random.Generator, world: World, program: Program) -> Iterator[Call]:
    if program.beams > 1 or rng.random() < 0.97:
        yield _prompt(rng, world, program)
    for _ in range(int(rng.integers(1, world.calls + 1))):
        dice = rng.random() * (0.7 if program.beams > 1 else 1.0)  # a beam search reads its prompt once
        if dice < 0.5:
            for _ in range(int(rng.integers(1, 6))):
                yield Call("generate")
        elif dice < 0.62:
            yield Call("logits")
        elif dice < 0.7:
            yield Call("set_logits", (int(rng.integers(1000)), float(rng.choice([1.0, 5.0]))))
        elif dice < 0.82:
            length = int(rng.integers(0, 12))
            yield Call("rewind", (length,))
            if rng.random() < 0.7 or length == 0:
                yield _prompt(rng, world, program)
        elif dice < 0.86:
            yield _prompt(rng, world, program)
        elif dice < 0.92 and world.outputs and not program.speculates:  # others' runs are cut elsewhere
            yield Call("output", (world.outputs[int(rng.integers(len(world.outputs)))],))
        elif dice < 0.94 and program.speculates:
            yield Call("stats")
        else:
            yield _odd_call(rng, world)


def _prompt(rng: np.random.Generator, world: World, program: Program) -> Call:
    """Tokens to append: for several rows of one width, some padded on the right."""
    low = 3 if world.end == 2 else 1 if world.end == world.vocabulary - 1 else 2
    high = world.vocabulary - (1 if world.end == world.vocabulary - 1 else 33 if world.end == 2 else 0)
    width = int(rng.integers(world.least_prompt, 8))
    tokens = rng.integers(low, high, (program.rows, width))
    if program.rows > 1 and rng.random() < 0.5:
        for row in range(1, program.rows):
            tokens[row, int(rng.integers(world.least_prompt, width + 1)) :] = world.pad
    return Call("append", (tokens.tolist() if program.rows > 1 else tokens[0].tolist(),))


def _odd_call(rng: np.random.Generator, world: World) -> Call:
    odd = (
        Call("generate_anyway"),
        Call("append", ([],)),
        Call("append", ([world.vocabulary],)),
        Call("append", ([-1],)),
        Call("append", ([[5, 6], [5, 6], [5, 6], [5, 6], [5, 6], [5, 6]],)),
        Call("append", ([5] * 300,)),
        Call("rewind", (-1,)),
        Call("rewind", (500,)),
        Call("set_wrong_logits", (world.vocabulary - 1,)),
        Call("set_wrong_logits", (0,)),
        Call("output", ("no such output",)),
        Call("snapshot"),
    )
    return odd[int(rng.integers(len(odd)))]
