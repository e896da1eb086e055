"""Seeded draws follow the distribution that the options mean: chi-squared against theory worked out here from the
tables, and the same draws as onnxruntime-genai's where its random numbers are ours.

Each test would fail by chance once in 100,000 (`FALSE_ALARM`) if its seeds were drawn anew; they are fixed, so it fails
always or never. There are fewer than a hundred: all of them together, once in a thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_lab
from tests.tables import Table, random_table, table_model, table_pair

FALSE_ALARM = 1e-5
PROMPT = (1, 2, 3, 1, 2)
END, PAD = 7, 0
ROWS = 32  # of a batch
TABLE: Table = (random_table(11) / 2).astype(np.float32)  # flat enough for every text to be seen
TABLE[:, END] = -60  # never ends, at any temperature here
ENDING: Table = (random_table(12, ends=True) / 2).astype(np.float32)

Text = tuple[int, ...]
Options = dict[str, Any]
Distribution = dict[Text, float]


# ---- theory -----------------------------------------------------------------------------------------------------


def next_probabilities(logits: NDArray[np.float64], history: Text, options: Options) -> NDArray[np.float64]:
    """[V] what the options make of `logits` [V] after `history`, prompt included."""
    scores = logits.copy()
    if len(history) < options.get("min_length", 0):
        scores[END] = -np.inf
    penalty = options.get("repetition_penalty", 1.0)
    for token in set(history):
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    size = options.get("no_repeat_ngram_size", 0)
    if size:
        begun = history[len(history) - size + 1 :]
        for start in range(len(history) - size + 1):
            if history[start : start + size - 1] == begun:
                scores[history[start + size - 1]] = -np.inf
    order = np.argsort(-scores, kind="stable")
    kept = order[: options.get("top_k", 50) or None]
    shares = np.exp((scores[kept] - scores[kept[0]]) / options.get("temperature", 1.0))
    shares /= shares.sum()
    if 0 < options.get("top_p", 0.0) < 1:
        count = int(np.searchsorted(np.cumsum(shares), options["top_p"])) + 1
        kept, shares = kept[:count], shares[:count]
    likely = shares >= options.get("min_p", 0.0) * shares[0]
    found = np.zeros(len(logits))
    found[kept[likely]] = shares[likely] / shares[likely].sum()
    return found


def texts_of(table: Table, length: int, options: Options) -> Distribution:
    """The probability of every text of `length` tokens behind PROMPT; behind an end there is padding."""

    def grow(text: Text, probability: float) -> Iterator[tuple[Text, float]]:
        if len(text) == length:
            yield text, probability
        elif END in text:
            yield text + (PAD,) * (length - len(text)), probability
        else:
            history = PROMPT + text
            following = next_probabilities(table[history[-1]].astype(np.float64), history, options)
            for token in np.flatnonzero(following):
                yield from grow((*text, int(token)), probability * float(following[token]))

    return dict(grow((), 1.0))


def chi_squared(counts: Counter[Text], expected: Distribution) -> tuple[float, int]:
    """The statistic and its degrees of freedom; texts that are expected fewer than five times are counted as one."""
    draws = counts.total()
    assert set(counts) <= set(expected), "a text that cannot be"
    cells = [(counts[text], share * draws) for text, share in expected.items()]
    often = [cell for cell in cells if cell[1] >= 5]
    seldom = [cell for cell in cells if cell[1] < 5]
    rest = (sum(cell[0] for cell in seldom), sum(cell[1] for cell in seldom))
    if rest[1] >= 5:
        often.append(rest)
    assert rest[1] >= 5 or rest[0] < 25, "texts that hardly can be"
    return sum((seen - wanted) ** 2 / wanted for seen, wanted in often), len(often) - 1


def limit(degrees: int) -> float:
    """What chi-squared exceeds with a probability of FALSE_ALARM (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * degrees)
    return float(degrees * (1 - spread + NormalDist().inv_cdf(1 - FALSE_ALARM) * spread**0.5) ** 3)


def assert_follows(counts: Counter[Text], expected: Distribution) -> None:
    statistic, degrees = chi_squared(counts, expected)
    assert degrees == 0 or statistic < limit(degrees), (statistic, degrees, limit(degrees))


# ---- draws ------------------------------------------------------------------------------------------------------


def drawn(
    library: Any, model: Any, length: int, generators: int, options: Options, speculative: Options | None = None
) -> Counter[Text]:
    """How often each text of `length` tokens was drawn behind PROMPT, by generators with seeds 0, 1, 2, ..."""
    counts: Counter[Text] = Counter()
    rows = int(options.get("batch_size", 1))
    for seed in range(generators):
        params = library.GeneratorParams(model)
        params.set_search_options(do_sample=True, random_seed=seed, max_length=len(PROMPT) + length + 8, **options)
        if speculative:
            params.set_speculative_options(**speculative)
        made = library.Generator(model, params)
        made.append_tokens(np.array([PROMPT] * rows, np.int32))
        for _ in range(length):
            made.generate_next_token()
        for row in range(rows):
            counts[tuple(np.asarray(made.get_sequence(row))[len(PROMPT) :].tolist())] += 1
    return counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a table, of one with ends, of a pair."""
    root = tmp_path_factory.mktemp("tables")
    made = {
        "table": table_model(root / "table", TABLE),
        "ending": table_model(root / "ending", ENDING),
        "pair": table_pair(root / "pair", TABLE, (TABLE + random_table(13) / 4).astype(np.float32)),
    }
    return made.__getitem__


@pytest.fixture(scope="module")
def og() -> Any:
    return pytest.importorskip("onnxruntime_genai", reason="the oracle comes with the dev extra")


BOTH: list[Options] = [
    {"top_k": 8},
    {"top_k": 8, "temperature": 0.5},
    {"top_k": 8, "temperature": 2.0},
    {"top_k": 2},
    {"top_k": 3, "temperature": 1.7},
    {"top_k": 5, "temperature": 0.7},
    {"top_k": 8, "top_p": 0.5},
    {"top_k": 8, "top_p": 0.8},
    {"top_k": 8, "top_p": 0.95, "temperature": 1.5},
    {"top_k": 4, "top_p": 0.6},
    {"top_k": 4, "top_p": 0.9, "temperature": 3.0},
    {"top_k": 8, "repetition_penalty": 1.5},
    {"top_k": 8, "repetition_penalty": 0.7},
    {"top_k": 5, "repetition_penalty": 2.0, "top_p": 0.9},
    {"top_k": 8, "no_repeat_ngram_size": 2},
    {"top_k": 8, "no_repeat_ngram_size": 3, "temperature": 2.0},
    {"top_k": 6, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "top_p": 0.9, "temperature": 1.3},
    {"top_k": 8, "min_length": 6},
    {"top_k": 8, "min_length": 7, "repetition_penalty": 1.2},
]
OURS: list[Options] = [  # what onnxruntime-genai does not have, or does otherwise (README)
    {"top_k": 0},
    {"top_k": 0, "temperature": 2.0},
    {"top_k": 50},
    {"top_k": 0, "top_p": 0.6},
    {"top_k": 0, "top_p": 0.9, "temperature": 1.5},
    {"top_k": 0, "min_p": 0.1},
    {"top_k": 0, "min_p": 0.3, "temperature": 2.0},
    {"top_k": 5, "min_p": 0.05},
    {"top_k": 6, "top_p": 0.9, "min_p": 0.2, "temperature": 1.5},
    {"top_k": 0, "min_p": 0.1, "repetition_penalty": 1.4},
]


def named(options: Options) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())


@pytest.mark.slow
@pytest.mark.parametrize("options", BOTH + OURS, ids=named)
def test_the_rows_of_a_batch_follow_theory(folder: Callable[[str], Path], options: Options) -> None:
    model = genai_lab.Model(folder("ending"))
    counts = drawn(genai_lab, model, 2, 30, options | {"batch_size": ROWS})
    assert_follows(counts, texts_of(ENDING, 2, options))


@pytest.mark.og
@pytest.mark.parametrize("options", BOTH, ids=named)
def test_the_rows_of_a_batch_are_ogs(folder: Callable[[str], Path], og: Any, options: Options) -> None:
    """The very same draws: what theory says of ours holds for theirs."""
    wanted = options | {"batch_size": ROWS}
    ours = drawn(genai_lab, genai_lab.Model(folder("ending")), 3, 10, wanted)
    assert ours == drawn(og, og.Model(str(folder("ending"))), 3, 10, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("options", [BOTH[1], BOTH[8], BOTH[16], OURS[0], OURS[8]], ids=named)
def test_one_sequence_follows_theory(folder: Callable[[str], Path], options: Options) -> None:
    counts = drawn(genai_lab, genai_lab.Model(folder("table")), 2, 700, options)
    assert_follows(counts, texts_of(TABLE, 2, options))


SPECULATED: list[Options] = [
    {"top_k": 8},
    {"top_k": 8, "temperature": 2.0},
    {"top_k": 3, "temperature": 1.3},
    {"top_k": 8, "top_p": 0.8},
    {"top_k": 8, "repetition_penalty": 1.5},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", SPECULATED, ids=named)
@pytest.mark.parametrize("width", [1, 3])
def test_a_draft_model_keeps_the_distribution(folder: Callable[[str], Path], options: Options, width: int) -> None:
    model = genai_lab.Model(folder("pair"))
    counts = drawn(genai_lab, model, 3, 400, options, {"max_draft_tokens": width})
    assert_follows(counts, texts_of(TABLE, 3, options))


@pytest.mark.og
@pytest.mark.parametrize("options", SPECULATED, ids=named)
def test_ogs_draws_with_a_draft_model_follow_the_same_theory(
    folder: Callable[[str], Path], og: Any, options: Options
) -> None:
    counts = drawn(og, og.Model(str(folder("pair"))), 3, 600, options, {"max_draft_tokens": 3})
    assert_follows(counts, texts_of(TABLE, 3, options))


@pytest.mark.slow
@pytest.mark.parametrize("options", [*SPECULATED, {"top_k": 8, "no_repeat_ngram_size": 3}], ids=named)
@pytest.mark.parametrize("chained", [False, True])
def test_ngrams_keep_the_distribution(folder: Callable[[str], Path], options: Options, chained: bool) -> None:
    how = {"ngram_size": 2, "max_draft_tokens": 3, "ngram_chained_lookup": chained}
    counts = drawn(genai_lab, genai_lab.Model(folder("table")), 3, 400, options, how)
    assert_follows(counts, texts_of(TABLE, 3, options))


@pytest.mark.og
@pytest.mark.parametrize("options", SPECULATED, ids=named)
def test_draws_with_ngrams_are_ogs(folder: Callable[[str], Path], og: Any, options: Options) -> None:
    how = {"ngram_size": 2, "max_draft_tokens": 3}
    ours = drawn(genai_lab, genai_lab.Model(folder("table")), 6, 80, options, how)
    assert ours == drawn(og, og.Model(str(folder("table"))), 6, 80, options, how)


# ---- grammars ---------------------------------------------------------------------------------------------------


def guided(library: Any, model: Any, generators: int, options: Options) -> Counter[Text]:
    """Answers of two tokens that a grammar allows."""
    counts: Counter[Text] = Counter()
    for seed in range(generators):
        params = library.GeneratorParams(model)
        params.set_search_options(do_sample=True, random_seed=seed, max_length=9, batch_size=ROWS, **options)
        params.set_guidance("regex", "[a-e][0-4][x-z]")
        made = library.Generator(model, params)
        made.append_tokens(np.array([PROMPT_OF_BYTES] * ROWS, np.int32))
        for _ in range(2):
            made.generate_next_token()
        for row in range(ROWS):
            counts[tuple(np.asarray(made.get_sequence(row))[-2:].tolist())] += 1
    return counts


PROMPT_OF_BYTES = (40, 41, 42, 43)
GUIDED: list[Options] = [
    {"top_k": 288},
    {"top_k": 288, "temperature": 3.0},
    {"top_k": 3, "temperature": 2.0},
    {"top_k": 100, "top_p": 0.8, "temperature": 2.0},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", GUIDED, ids=named)
def test_a_grammar_leaves_the_shares_of_what_it_allows(tiny_folder: Path, options: Options) -> None:
    model = genai_lab.Model(tiny_folder)
    encode = genai_lab.Tokenizer(model).encode
    letters, digits = ([int(encode(one)[0]) for one in text] for text in ("abcde", "01234"))

    def shares(text: Text, allowed: list[int]) -> dict[int, float]:
        params = genai_lab.GeneratorParams(model)
        params.set_search_options(max_length=9)
        with genai_lab.Generator(model, params) as fresh:
            fresh.append_tokens(np.array(text, np.int32))
            logits = fresh.get_logits()[0, 0, allowed].astype(np.float64)
        wide = np.full(max(len(logits), END + 1), -np.inf)
        wide[: len(logits)] = logits
        found = next_probabilities(wide, (), options)
        return {token: float(found[place]) for place, token in enumerate(allowed) if found[place] > 0}

    expected: Distribution = {
        (letter, digit): first * second
        for letter, first in shares(PROMPT_OF_BYTES, letters).items()
        for digit, second in shares((*PROMPT_OF_BYTES, letter), digits).items()
    }
    assert_follows(guided(genai_lab, model, 40, options), expected)


@pytest.mark.og
@pytest.mark.parametrize("options", GUIDED, ids=named)
def test_guided_draws_are_ogs(tiny_folder: Path, og: Any, options: Options) -> None:
    theirs = guided(og, og.Model(str(tiny_folder)), 6, options)
    assert guided(genai_lab, genai_lab.Model(tiny_folder), 6, options) == theirs


# ---- the test's own sharpness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [1, 5, 20, 60])
def test_the_limit_is_passed_as_seldom_as_it_says(degrees: int) -> None:
    """Against a chi-squared quantile that is easy to have: with a false alarm of 1 in 100,000 none of 20,000."""
    sums = (np.random.default_rng(degrees).standard_normal((20_000, degrees)) ** 2).sum(axis=1)
    assert 0.5 * limit(degrees) < sums.max() < limit(degrees)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "thought"),
    [
        ({"top_k": 8, "temperature": 1.0}, {"top_k": 8, "temperature": 1.5}),
        ({"top_k": 8}, {"top_k": 8, "repetition_penalty": 1.7}),
        ({"top_k": 0, "min_p": 0.15}, {"top_k": 0, "min_p": 0.0}),
    ],
)
def test_another_distribution_is_noticed(folder: Callable[[str], Path], asked: Options, thought: Options) -> None:
    counts = drawn(genai_lab, genai_lab.Model(folder("table")), 2, 50, asked | {"batch_size": ROWS})
    statistic, degrees = chi_squared(counts, texts_of(TABLE, 2, thought))
    assert statistic > limit(degrees)
