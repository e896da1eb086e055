"""Every difference between onnxruntime-genai 0.18 and genai_lab that a program may meet, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.parity.programs import LOGITS_TOLERANCE, WORLDS, Call, Moment, Rule, Seen, unlike


def one_raises(m: Moment, theirs: Seen, ours: Seen) -> bool:
    return True


def ours_refuses(m: Moment, theirs: Seen, ours: Seen) -> bool:
    return theirs.error is None and ours.error is not None


def theirs_refuses(m: Moment, theirs: Seen, ours: Seen) -> bool:
    return theirs.error is not None and ours.error is None


def samples(m: Moment) -> bool:
    search = m.program.search
    return bool(search.get("do_sample")) and search.get("temperature", 1.0) > 0


def other_tokens(m: Moment, theirs: Seen, ours: Seen) -> bool:
    return theirs.error is None and ours.error is None and theirs.count == ours.count


def same_text(theirs: Seen, ours: Seen) -> bool:
    return (theirs.error is None, theirs.count, theirs.sequences, theirs.done) == (
        ours.error is None,
        ours.count,
        ours.sequences,
        ours.done,
    )


def given(m: Moment) -> Any:
    """The call's argument."""
    return m.call.given[0] if m.call is not None else None


def flat(tokens: Any) -> list[int]:
    """The token ids of a list of them, or of a list of rows."""
    return np.ravel(np.array(tokens, np.int64)).tolist() if tokens else []


def called(m: Moment, name: str) -> bool:
    return m.call is not None and m.call.name.removesuffix("_anyway") == name


def stepped(m: Moment) -> bool:
    return called(m, "generate") or "generate" in m.moved


def repeats(m: Moment, seen: Seen) -> bool:
    """Whether the text has an n-gram twice that the options forbid."""
    size, text = int(m.program.search["no_repeat_ngram_size"]), seen.sequences[0]
    return tuple(text[-size:]) in [tuple(text[i : i + size]) for i in range(len(text) - size)]


COUNTING = {"repetition_penalty", "min_length", "no_repeat_ngram_size"}


def pad_of(m: Moment) -> int:
    return WORLDS[m.program.world].pad


def is_ragged(m: Moment) -> bool:
    """Whether prompts of several rows end in padding."""
    prompts = [call.given[0] for call in (*m.before, m.call) if call is not None and call.name == "append"]
    return m.program.rows > 1 and any(
        isinstance(row, list) and row[-1] == pad_of(m) for prompt in prompts for row in prompt
    )


def has_no_meaning(search: Mapping[str, Any]) -> bool:
    return (
        any(search.get(name, 0) < 0 for name in ("max_length", "min_length", "no_repeat_ngram_size", "top_k"))
        or search.get("repetition_penalty", 1) <= 0
        or search.get("random_seed", 0) < -1
    )


def reads_in_parts(m: Moment) -> bool:
    return m.moved.count("append") > 1 or "chunk_size" in m.program.search or m.program.rows > 1


def has_cache(m: Moment) -> bool:
    return not m.program.world.startswith("table")


def unread(m: Moment) -> bool:
    """Whether the last token of one sequence was generated, and its logits were not looked at."""
    return m.last_move == "generate"


RULES: tuple[Rule, ...] = (
    Rule(
        "a step after the end",
        "there the model runs before the call is refused, and what follows is spoiled; here nothing is changed",
        lambda m: m.call == Call("generate_anyway") and bool(m.last.done),
        lambda m, theirs, ours: ours.error is not None and ours.sequences == m.last.sequences,
        hidden=True,
    ),
    Rule(
        "top_k above the vocabulary",
        "there the generator cannot be made; here it keeps all, so that the default of 50 works with any vocabulary",
        lambda m: (
            m.call is None
            and m.program.search.get("do_sample", False)
            and m.program.search.get("top_k", 50) > WORLDS[m.program.world].vocabulary
        ),
        theirs_refuses,
    ),
    Rule(
        "ids outside the vocabulary",
        "there they are accepted, and the model's answer to them has no meaning",
        lambda m: called(m, "append") and any(not 0 <= t < WORLDS[m.program.world].vocabulary for t in flat(given(m))),
        lambda m, theirs, ours: ours.error is not None,
        hidden=True,
        readme="token ids outside the vocabulary are accepted",
    ),
    Rule(
        "sampling without a filter",
        "there do_sample with top_k 0 and top_p 0 is silently argmax; here it samples",
        lambda m: called(m, "generate") and samples(m) and m.program.search.get("top_k", 50) == 0,
        other_tokens,
        readme="is silently argmax",
    ),
    Rule(
        "the last token after a rewind",
        "there it is the token that was cut off, which the next call puts back; here the last one that is left",
        lambda m: m.program.rows == m.program.beams == 1 and (called(m, "rewind") or m.last_move == "rewind"),
        lambda m, theirs, ours: ours.next_tokens == (ours.sequences[0][-1:] or (0,)) and same_text(theirs, ours),
        ends=False,
        readme="puts the cut token back first",
    ),
    Rule(
        "generating right after a rewind",
        "there the token that was cut off is put back first, so that a call makes two tokens; here it is chosen anew",
        lambda m: (called(m, "generate") or called(m, "logits")) and m.last_move == "rewind",
        lambda m, theirs, ours: (
            ours.error is None
            and (theirs.count or 0) - (ours.count or 0) in ((0, 1, 2) if theirs.done or ours.done else (1,))
        ),
        readme="puts the cut token back first",
    ),
    Rule(
        "appending after a generated token",
        "there that token is never read: a hole in the cache; here it is read, and the logits are a fresh generator's",
        lambda m: called(m, "append") and has_cache(m) and not m.last.done and unread(m),
        lambda m, theirs, ours: ours.error is None and theirs.sequences == ours.sequences,
        hidden=True,
        readme="leaves that token out of the cache",
    ),
    Rule(
        "a shared buffer for a graph that has none",
        "there past_present_share_buffer breaks graphs that join past and present; here it is ignored for them",
        lambda m: m.program.world.startswith("plain") and m.program.search.get("past_present_share_buffer", False),
        theirs_refuses,
    ),
    Rule(
        "the logits as an output after a token was chosen",
        "there they are the processed ones, changed in place; here what the graph gave",
        lambda m: m.call == Call("output", ("logits",)) and bool({"generate", "set_logits"} & set(m.moved)),
        lambda m, theirs, ours: unlike(theirs, ours) == "other numbers",
        ends=False,
    ),
    Rule(
        "options without a meaning",
        "there a negative max_length stands for the context length, other negative numbers for nothing, a penalty may "
        "be 0 or less, a seed below -1; here they are refused",
        lambda m: m.call is None and has_no_meaning(m.program.search),
        ours_refuses,
    ),
    Rule(
        "padding counts",
        "there a shorter row's padding is penalised, counted and scored as text; here each row is as if alone",
        lambda m: is_ragged(m) and (m.program.beams > 1 or bool(COUNTING & set(m.program.search))),
        lambda m, theirs, ours: theirs.error is None and ours.error is None,
    ),
    Rule(
        "after a refused prompt of several rows",
        "there what follows may end the process; here nothing is changed",
        lambda m: called(m, "append") and m.program.rows > 1,
        lambda m, theirs, ours: theirs.error is not None and ours.error is not None,
        hidden=True,
    ),
    Rule(
        "a prompt read in parts",
        "there a last token may be read alone; here it is read with others as when the prompt is read at once, and "
        "of a batch only the last positions are kept",
        lambda m: called(m, "output") and reads_in_parts(m),
        lambda m, theirs, ours: (
            unlike(theirs, ours) == "another shape"
            and bool(np.allclose(theirs.value[:, -1], ours.value[:, -1], rtol=1e-4, atol=LOGITS_TOLERANCE))
        ),
        ends=False,
    ),
    Rule(
        "forced tokens while speculating",
        "there a call may hand out all tokens that the grammar forces at once; here one a call",
        lambda m: (
            called(m, "generate") and m.program.speculates and m.program.guidance is not None and m.program.guidance[2]
        ),
        lambda m, theirs, ours: theirs.sequences[0][: ours.count] == ours.sequences[0],
    ),
    Rule(
        "keys and values of padding",
        "there padding is read; here it is not",
        lambda m: called(m, "output") and given(m).startswith("present") and is_ragged(m),
        lambda m, theirs, ours: unlike(theirs, ours) == "other numbers",
        ends=False,
    ),
    Rule(
        "n-grams with keys and values in one tensor",
        "there such a graph cannot speculate; here it can",
        lambda m: m.call is None and m.program.world == "plain combined" and m.program.speculates,
        theirs_refuses,
    ),
    Rule(
        "a grammar's end in a batch",
        "there a row whose grammar is at its end fails while others go on; here it is filled up",
        lambda m: called(m, "generate") and m.program.rows > 1 and m.program.guidance is not None,
        lambda m, theirs, ours: "after stop" in str(theirs.error) and ours.error is None,
        readme="rows that end at different times",
    ),
    Rule(
        "outputs before any run",
        "there they are zeros; here there are none yet",
        lambda m: called(m, "output") and m.last.count == 0,
        ours_refuses,
        ends=False,
    ),
    Rule(
        "no token is left",
        "there a grammar together with other rules may forbid every token, and one is taken all the same; here an "
        "error says which settings leave none",
        lambda m: called(m, "generate") and m.program.guidance is not None,
        lambda m, theirs, ours: "no token is left" in str(ours.error),
        readme="min_length past its end is an error of the library",
    ),
    Rule(
        "a rewind to where the text is",
        "there nothing happens, or an error with a cache that grows; here a text that "
        "ended goes on, and what speculation has decided is thrown away",
        lambda m: (
            m.call == Call("rewind", (m.last.count,))
            and (bool(m.last.done) or m.program.speculates or m.program.world.startswith("plain"))
        ),
        lambda m, theirs, ours: theirs.sequences == ours.sequences and ours.error is None,
        hidden=True,
    ),
    Rule(
        "refused logits in the middle of a round",
        "there what was decided is thrown away before the call is refused; here nothing is changed",
        lambda m: called(m, "set_wrong_logits") and m.program.speculates,
        lambda m, theirs, ours: ours.error is not None and ours.sequences == m.last.sequences,
        hidden=True,
    ),
    Rule(
        "appending in the middle of a guided answer",
        "there what was generated last is not counted, and what the grammar does not allow may be taken, or "
        "refused and left in the text; here it is refused and nothing is changed",
        lambda m: called(m, "append") and m.program.guidance is not None and "generate" in m.moved and not m.last.done,
        lambda m, theirs, ours: ours.error is not None or theirs.error is None,
        hidden=True,
        readme="tokens appended in the middle of a guided answer",
    ),
    Rule(
        "logits before any token",
        "there they can be had, of nothing, and set, and the text begins without a prompt; here a prompt comes first",
        lambda m: m.call is not None and m.call.name in ("logits", "set_logits") and m.last.count == 0,
        ours_refuses,
    ),
    Rule(
        "beams with a grammar",
        "there all beams share one state of it, and it fails at its end; here each beam follows it",
        lambda m: called(m, "generate") and m.program.beams > 1 and m.program.guidance is not None,
        lambda m, theirs, ours: ours.error is None,
        hidden=True,
        readme="it fails at its end",
    ),
    Rule(
        "draws with a draft model",
        "both keep the model's distribution (test_distributions.py), from random numbers in another order",
        lambda m: called(m, "generate") and WORLDS[m.program.world].has_draft and samples(m),
        lambda m, theirs, ours: theirs.error is None and ours.error is None,
        hidden=True,
    ),
    Rule(
        "several rows for one sequence",
        "there they are read as one long row; here they are refused",
        lambda m: called(m, "append") and m.program.rows == 1 and isinstance((given(m) or [0])[0], list),
        lambda m, theirs, ours: ours.error is not None,
    ),
    Rule(
        "logits of no size",
        "there an empty array is taken; here it is refused",
        lambda m: called(m, "set_wrong_logits"),
        ours_refuses,
    ),
    Rule(
        "the last tokens of a beam search that is done",
        "there they are beams that were given up; here padding",
        lambda m: m.program.beams > 1,
        lambda m, theirs, ours: (
            same_text(theirs, ours)
            and all(o in (t, pad_of(m)) for t, o in zip(theirs.next_tokens, ours.next_tokens, strict=True))
        ),
        ends=False,
    ),
    Rule(
        "proposed tokens may repeat an n-gram",
        "there what is proposed is not checked against no_repeat_ngram_size; here the text is that of plain decoding",
        lambda m: called(m, "generate") and m.program.speculates and "no_repeat_ngram_size" in m.program.search,
        lambda m, theirs, ours: repeats(m, theirs) and not repeats(m, ours),
    ),
    Rule(
        "logits in the middle of speculation",
        "there they cannot be had between two rounds, nor set while a guided one is under way; here they can be had at "
        "any time, and set when they were computed. After they were set, they are those of an earlier token there",
        lambda m: (called(m, "logits") or called(m, "set_logits")) and m.program.speculates,
        lambda m, theirs, ours: (
            (theirs.error is None) != (ours.error is None)
            or ("set_logits" in m.moved and unlike(theirs, ours) == "other numbers")
        ),
    ),
    Rule(
        "logits of a generation that is done",
        "there a look at them makes is_done() False; here it changes nothing",
        lambda m: called(m, "logits") and bool(m.last.done),
        lambda m, theirs, ours: bool(ours.done) and ours.error is None and not (theirs.done and theirs.error is None),
    ),
    Rule(
        "the last tokens before a beam search's first step",
        "there they are whatever was in the memory",
        lambda m: m.program.beams > 1 and (m.last.count is None or m.last.count == 0 or not stepped(m)),
        lambda m, theirs, ours: theirs.next_tokens != ours.next_tokens,
        ends=False,
    ),
)
