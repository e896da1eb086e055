"""A recording of speculation: every round, every proposed token, what decided, and what was thrown away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import genai_lab as og
from genai_lab.errors import ArgumentError, ArgumentTypeError
from genai_lab.tracing import Origin, Recorder
from tests.generation.test_speculative import PROMPT, finish, generator
from tests.tables import follow, random_table, table_model, table_pair

SAMPLING = {"do_sample": True, "top_k": 4, "random_seed": 5, "temperature": 1.5}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    target = random_table(1)
    draft = target + np.random.default_rng(1).standard_normal(target.shape).astype(np.float32)
    return og.Model(table_pair(tmp_path_factory.mktemp("pair") / "model", target, draft))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> og.Model:
    return og.Model(table_model(tmp_path_factory.mktemp("plain") / "model", random_table(1)))


def recorded(model: og.Model, options: dict[str, Any] | None = None, **speculative: Any) -> tuple[og.Trace, Any]:
    with og.record() as trace:
        made = generator(model, options, **speculative)
        made.append_tokens(PROMPT)
        finish(made)
    return trace, made


@pytest.mark.parametrize("options", [{}, SAMPLING, {"repetition_penalty": 1.3}])
@pytest.mark.parametrize("by", ["draft", "ngram"])
def test_rounds_and_proposals_add_up_to_the_counters(
    plain: og.Model, pair: og.Model, by: str, options: dict[str, Any]
) -> None:
    speculative = {"max_draft_tokens": 3} | ({"ngram_size": 2} if by == "ngram" else {})
    trace, made = recorded(pair if by == "draft" else plain, options, **speculative)
    rounds, proposals, stats = trace.rounds(), trace.proposals(), made.get_speculative_stats()
    assert len(rounds) == stats["rounds"] > 3 and set(rounds["by"]) == {by}
    assert rounds["proposed"].sum() == len(proposals) == stats["draft_tokens_proposed"]
    assert (proposals["verdict"] == "accepted").sum() == rounds["accepted"].sum() == stats["draft_tokens_accepted"]
    assert (proposals["verdict"] != "not looked at").sum() == stats["draft_tokens_evaluated"]
    assert rounds["emitted"].sum() == stats["tokens_emitted"]
    assert rounds["discarded"].sum() == stats["tokens_discarded"]
    assert (rounds["kind"] == "bonus").sum() == stats["bonus_tokens"]
    assert rounds["source"].isna().all() == (by == "draft")


@pytest.mark.parametrize("options", [{}, SAMPLING])
def test_what_is_in_the_text_is_what_the_tokens_say(pair: og.Model, options: dict[str, Any]) -> None:
    trace, _ = recorded(pair, options, max_draft_tokens=3)
    tokens, proposals = trace.tokens().set_index("index"), trace.proposals()
    taken = proposals[proposals["in_text"]]
    assert tokens.loc[taken["index"], "token"].tolist() == taken["token"].tolist()
    np.testing.assert_allclose(tokens.loc[taken["index"], "prob"], taken["prob"], rtol=1e-4)
    origin = trace.recording.tokens["origin"]
    assert (origin == Origin.ACCEPTED).sum() == len(taken)
    rounds = trace.rounds()
    for number, row in enumerate(rounds.itertuples()):
        if row.emitted == row.accepted + 1:
            own = {"bonus": Origin.BONUS, "correction": Origin.CORRECTION}[row.kind]
            assert origin[row.index + row.accepted] == own, number
            assert tokens.loc[row.index + row.accepted, "token"] == row.token


def test_the_rule_of_acceptance_can_be_checked_by_hand(pair: og.Model) -> None:
    trace, _ = recorded(pair, SAMPLING | {"temperature": 4.0, "max_length": 100}, max_draft_tokens=4)
    seen = trace.proposals()
    seen = seen[seen["verdict"] != "not looked at"]
    assert 0 < (seen["verdict"] == "accepted").sum() < len(seen)
    assert seen["drawn"].between(0, 1).all() and (seen["p_draft"] > 0).all()
    np.testing.assert_array_equal(seen["drawn"] * seen["p_draft"] < seen["p_target"], seen["verdict"] == "accepted")


def test_greedy_compares_certainties(pair: og.Model) -> None:
    trace, _ = recorded(pair, {}, max_draft_tokens=4)
    seen = trace.proposals()
    seen = seen[seen["verdict"] != "not looked at"]
    assert (seen["p_draft"] == 1).all() and seen["drawn"].isna().all()
    np.testing.assert_array_equal(seen["p_target"] == 1, seen["verdict"] == "accepted")


def test_ngrams_under_sampling_say_how_likely_the_rejected_token_was(plain: og.Model) -> None:
    trace, _ = recorded(plain, SAMPLING, ngram_size=2, max_draft_tokens=4)
    rejected = trace.proposals().query("verdict == 'rejected'")
    candidates = trace.candidates(int(rejected["index"].iloc[0]))
    told = candidates.set_index("token")["min_p"].fillna(0.0)  # the last filter
    first = rejected.iloc[0]
    assert first["p_target"] == pytest.approx(told[first["token"]], abs=1e-6)


def test_an_ngram_says_where_it_was_found(plain: og.Model) -> None:
    trace, made = recorded(plain, {}, ngram_size=3, max_draft_tokens=4)
    text = made.get_sequence(0).tolist()
    for row in trace.rounds().itertuples():
        assert text[row.source - 2 : row.source] == text[row.position - 2 : row.position]
        mine = trace.proposals().query(f"round == {row.round}")["token"].tolist()
        assert text[row.source : row.source + len(mine)] == mine


@pytest.mark.parametrize("why", ["tokens were appended", "the text was rewound", "the logits were replaced"])
def test_what_was_thrown_away_and_why(tmp_path: Path, why: str) -> None:
    model = og.Model(table_pair(tmp_path / "model", follow({}), follow({})))
    with og.record() as trace:
        made = generator(model, max_draft_tokens=4)
        made.append_tokens([1])
        made.generate_next_token()
        made.generate_next_token()
        assert trace.rounds()["why"].tolist() == [""]
        if why == "tokens were appended":
            made.append_tokens([3])
        elif why == "the text was rewound":
            made.rewind_to(2)
        else:
            made.set_logits(made.get_logits())
    row = trace.rounds().iloc[0]
    assert (row["accepted"], row["emitted"], row["discarded"], row["why"]) == (4, 2, 3, why)
    assert trace.proposals()["in_text"].tolist() == [True, True, False, False]


def test_the_end_of_the_text_ends_a_round(tmp_path: Path) -> None:
    model = og.Model(table_pair(tmp_path / "model", follow({3: 9}), follow({3: 9})))
    trace, made = recorded(model, {}, max_draft_tokens=6)
    assert made.finish_reason is og.FinishReason.EOS
    last = trace.rounds().iloc[-1]
    assert last["why"] == "the text ended"
    assert last["discarded"] == last["accepted"] + 1 - last["emitted"] > 0
    assert last["emitted"] + last["discarded"] == last["accepted"] + 1


def test_files_keep_it_and_a_recorder_goes_on_from_them(pair: og.Model, tmp_path: Path) -> None:
    trace, _ = recorded(pair, SAMPLING, max_draft_tokens=3)
    loaded = og.Trace.load(trace.save(tmp_path / "trace.npz"))
    resumed = og.Trace(Recorder.resumed(loaded.recording))
    for name in ("rounds", "proposals"):
        pd.testing.assert_frame_equal(getattr(loaded, name)(), getattr(trace, name)())
        pd.testing.assert_frame_equal(getattr(resumed, name)(), getattr(trace, name)(), atol=1e-5, rtol=1e-5)
    np.testing.assert_array_equal(resumed.recording.tokens["origin"], trace.recording.tokens["origin"])
    events = json.loads(trace.to_chrome(tmp_path / "trace.json").read_text())["traceEvents"]
    told = [event for event in events if event.get("cat") == "speculation"]
    assert len(told) == len(trace.rounds())
    first = trace.rounds().iloc[0]
    assert told[0]["name"] == f"round 1: {first['accepted']} of 3 accepted" and told[0]["args"]["by"] == "draft"


def test_a_damaged_file_is_refused(pair: og.Model, tmp_path: Path) -> None:
    trace, _ = recorded(pair, {}, max_draft_tokens=3)
    path = trace.save(tmp_path / "trace.npz")
    for name, value in (("rounds.by", 9), ("rounds.why", 77), ("proposals.row", 5000), ("tokens.origin", 4)):
        with np.load(path) as file:
            arrays = dict(file)
        arrays[name] = np.full_like(arrays[name], value)
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(og.GenaiLabError, match=name):
            og.Trace.load(tmp_path / "bad.npz")


def test_files_from_before_have_no_rounds(pair: og.Model, tmp_path: Path) -> None:
    trace, _ = recorded(pair, {}, max_draft_tokens=3)
    with np.load(trace.save(tmp_path / "trace.npz")) as file:
        kept = {n: a for n, a in file.items() if not n.startswith(("rounds.", "proposals.")) and n != "tokens.origin"}
    np.savez(tmp_path / "old.npz", **kept)
    old = og.Trace.load(tmp_path / "old.npz")
    assert old.rounds().empty and old.proposals().empty and not old.recording.tokens["origin"].any()
    assert old.tokens()["token"].tolist() == trace.tokens()["token"].tolist()


def test_recorded_or_not_the_same_tokens_and_counters(pair: og.Model) -> None:
    for options in ({}, SAMPLING):
        _, watched = recorded(pair, options, max_draft_tokens=3)
        alone = generator(pair, options, max_draft_tokens=3)
        alone.append_tokens(PROMPT)
        assert finish(alone) == watched.get_sequence(0).tolist()
        counts = [made.get_speculative_stats() for made in (alone, watched)]
        a, b = ({name: c[name] for name in c if isinstance(c[name], int)} for c in counts)
        assert a == b


def test_the_recorder_keeps_no_more_rounds_than_tokens(pair: og.Model) -> None:
    with og.record(max_tokens=4) as trace:
        made = generator(pair, {"max_length": 60}, max_draft_tokens=1)
        made.append_tokens(PROMPT)
        finish(made)
    assert len(trace.rounds()) == 4
    assert trace.rounds()["round"].iloc[-1] == made.get_speculative_stats()["rounds"]


def test_the_figure_shows_the_rounds(pair: og.Model, plain: og.Model) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    trace, _ = recorded(pair, {}, max_draft_tokens=3)
    figure = trace.plot.speculation()
    bars = figure.axes[0].containers
    assert [bar.get_height() for bar in bars[1]] == trace.rounds()["accepted"].tolist()
    assert "a smaller model" in figure.axes[0].get_xlabel()
    assert matplotlib.pyplot.get_fignums() == []
    with pytest.raises(ArgumentTypeError, match="run is 'a'"):
        trace.plot.speculation("a")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no rounds of speculation"):
        recorded(plain)[0].plot.speculation()
    with pytest.raises(ArgumentError, match="run 7"):
        trace.plot.speculation(7)


def test_a_token_put_there_by_hand_was_not_proposed(tmp_path: Path) -> None:
    model = og.Model(table_pair(tmp_path / "model", follow({}), follow({})))
    with og.record() as trace:
        made = generator(model, max_draft_tokens=4)
        made.append_tokens([1])
        for _ in range(3):
            made.generate_next_token()
        made.rewind_to(2)
        made.append_tokens([5])
        made.generate_next_token()
    tokens = trace.recording.tokens
    branch = tokens["run"] == 1
    assert tokens["token"][branch].tolist() == [5, 6]
    assert tokens["origin"][branch].tolist() == [Origin.ALONE, Origin.ACCEPTED]
    assert trace.rounds()["index"].tolist() == [0, 1]


@pytest.mark.parametrize("options", [{}, SAMPLING])
def test_choosing_is_a_stage(pair: og.Model, options: dict[str, Any]) -> None:
    trace, _ = recorded(pair, options, max_draft_tokens=3)
    stages, rounds = trace.stages(), trace.rounds()
    assert set(rounds["index"]) <= set(stages[stages["stage"] == "run_decode"]["token"])
    if not options:
        chosen = stages[stages["stage"] == "select"]
        assert chosen["token"].tolist() == rounds["index"].tolist()
        assert chosen["n"].tolist() == (rounds["accepted"] + 1).tolist()
