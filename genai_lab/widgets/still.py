"""The still picture: what a notebook shows where no script may run (untrusted, on a code host, printed by nbconvert).

Receives a recording. Returns HTML of a bounded size that survives sanitisers: inline styles, tables and details, no
script, no style element, no SVG. It inherits the page's text colour and only tints, so it reads in light and in dark.
Every text of a model or a file is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import numpy as np

from genai_lab.analysis import candidate_frame
from genai_lab.tracing import Recording, RunFacts
from genai_lab.tracing.texts import names_of
from genai_lab.widgets.codec import question_of
from genai_lab.widgets.words import milliseconds, percent, plural, printable

MAX_TOKENS = 160  # of an answer
MAX_RUNS = 4
DOUBTFUL = 6  # tokens whose alternatives are listed
ALTERNATIVES = 5
MAX_QUESTION = 300
HUE = "#56a0e6"  # the probability tint; half opaque it is readable under black and under white text
BAR_PIXELS = 80
PART = re.compile(r"⟨part (\d) of (\d) of (.)⟩", re.DOTALL)  # see `tracing.texts`

NOTE = (
    "This is a still picture of a recorded run. For the one that answers to the pointer, open the notebook in "
    "JupyterLab and run this cell again (Shift+Enter)."
)
NO_ANSWER = "There are timed stages but no answer in this recording (beam search keeps none)."
# the live timeline's longest words for each stage (times.ts); any other name is a person's own processor
STAGES = {
    "chat_template": "chat template",
    "tokenize": "split into tokens",
    "run_vision": "look at the images",
    "run_speech": "listen to the sounds",
    "run_embedding": "put them into the prompt",
    "prepare_inputs": "prepare inputs",
    "run_prefill": "run model on the whole prompt (prefill)",
    "run_decode": "run model",
    "read_logits": "read scores",
    "repetition_penalty": "penalty",
    "no_repeat_ngram": "no repeats",
    "select": "temperature, filters, draw",
    "commit": "commit: put it into the text",
    "kv_append": "keep in cache",
    "detokenize": "turn into text",
    "recorder": "the recorder's own work",
}

BOX = "max-width:60em;line-height:1.5"
ANSWER = "font-size:17px;line-height:2;white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0 8px"
SMALL = "font-size:12px;opacity:.75;margin:4px 0"


def still_picture(recording: Recording, kind: str = "all") -> str:
    """HTML for one kind of view: "ribbon", "pipeline", "timeline", or "all" of them."""
    parts = {"ribbon": (answers,), "pipeline": (pipeline,), "timeline": (stage_times,)}
    drawn = [part(recording) for part in parts.get(kind, (answers, pipeline, stage_times))]
    return f'<div style="{BOX}">{"".join(drawn)}<p style="{SMALL}">{NOTE}</p></div>'


def answers(recording: Recording) -> str:
    """Every answer (up to four) with its tokens tinted by probability, and where the model hesitated."""
    if not len(recording.tokens["token"]):
        timed = len(recording.stages["stage"]) > 0 and not recording.runs
        words = NO_ANSWER if timed else "No token was recorded yet."
        return f'<p style="{SMALL}">{words}</p>'
    shown = [answer(recording, run) for run in recording.runs[:MAX_RUNS]]
    if len(recording.runs) > MAX_RUNS:
        shown.append(f'<p style="{SMALL}">and {plural(len(recording.runs) - MAX_RUNS, "answer")} more</p>')
    key = "The bluer a token, the likelier the model found it."
    return "".join(shown) + f'<p style="{SMALL}">{key}</p>' + doubts(recording)


def answer(recording: Recording, run: RunFacts) -> str:
    """One run: its question, or where it branches off, and its tokens."""
    rows = np.flatnonzero(recording.tokens["run"] == run.run)
    if run.parent is None:
        title = escape(printable(question_of(run, names_of(recording))[:MAX_QUESTION])) or f"Run {run.run}"
    else:
        title = branch_title(recording, run)
    shown = rows[:MAX_TOKENS].tolist()
    names = names_of(recording).in_a_row(recording.tokens["token"][shown].tolist())
    words = "".join(tinted(recording, row, name) for row, name in zip(shown, names, strict=True))
    more = f" … and {plural(len(rows) - MAX_TOKENS, 'token')} more" if len(rows) > MAX_TOKENS else ""
    failed = f'<p style="{SMALL}">{escape(run.error)}</p>' if run.error else ""
    return f'<p style="margin:8px 0 0"><b>{title}</b></p><p style="{ANSWER}">{words}{more}</p>{failed}'


def branch_title(recording: Recording, run: RunFacts) -> str:
    """Where a run leaves the one before it, in the live picture's words (branchTitle in tokens.ts)."""
    again = is_again(run)
    same = [r.run for r in recording.runs if r.parent is not None and is_again(r) == again]
    name = f"{'Again' if again else 'Branch'} {same.index(run.run) + 1}"
    if again:
        return f"{name}: the same question once more"
    place, parent = 1 + (run.fork or 0), run.parent
    while parent is not None:  # parents come first, so this ends
        place, parent = place + (recording.runs[parent].fork or 0), recording.runs[parent].parent
    if run.forced is None:
        return f"{name}: drawn anew from token {place} on"
    return f"{name} at token {place}: {quoted(recording, run.forced)}"


def is_again(run: RunFacts) -> bool:
    """The prompt of its parent answered once more, and not a branch of the answer."""
    return run.parent is not None and run.fork == 0 and run.forced is None


def tinted(recording: Recording, row: int, name: str) -> str:
    """A token, underlined to show where it ends, tinted by its probability. A character of several tokens stands in the
    first, the others say which part they are."""
    opacity = round(128 * float(np.nan_to_num(recording.tokens["prob"][row])))
    text = PART.sub(lambda m: f"{m[3] if m[1] == '1' else ''}<small>{m[1]}/{m[2]}</small>", escape(printable(name)))
    return f'<u style="background:{HUE}{opacity:02x}">{text}</u>'


def doubts(recording: Recording) -> str:
    """The tokens where the model hesitated most, with what else it might have said."""
    tokens = recording.tokens
    rows = np.argsort(-tokens["entropy"], kind="stable")[:DOUBTFUL].tolist()
    lines = [doubt(recording, row) for row in sorted(rows)]
    title = f"What else could it have said? The {plural(len(rows), 'token')} where it hesitated most"
    return table(title, ["token", "said", "could have said"], lines, words=(1, 2))


def doubt(recording: Recording, row: int) -> list[str]:
    """One line of that table."""
    tokens = recording.tokens
    ids, logits = tokens["top_ids"][row], tokens["top_logits"][row].astype(np.float64)
    probs = np.exp(logits - logits[0] - tokens["log_z"][row])
    others = [(int(i), p) for i, p in zip(ids, probs, strict=True) if i != tokens["token"][row] and p > 0]
    listed = ", ".join(f"{quoted(recording, token)} {percent(p)}" for token, p in others[:ALTERNATIVES])
    said = f"{quoted(recording, int(tokens['token'][row]))} {percent(float(tokens['prob'][row]))}"
    return [f"{int(tokens['index'][row]) + 1}", said, listed]


def pipeline(recording: Recording) -> str:
    """The candidates of the most doubtful token, after each processor and filter."""
    tokens = recording.tokens
    if not len(tokens["token"]):
        return ""
    row = int(np.argmax(np.nan_to_num(tokens["entropy"], nan=-1)))
    columns = {"prob": "raw", "temperature": "after temperature", "top_k": "top-k", "top_p": "top-p"}
    columns["min_p"] = "min-p"
    lines = []
    for _, candidate in candidate_frame(recording, row).head(DOUBTFUL + 2).iterrows():
        name = quoted(recording, int(candidate["token"]))
        shares = [share(float(candidate[column])) for column in columns]
        lines.append([f"<b>{name}</b>" if candidate["chosen"] else name, *shares])
    title = f"How token {int(tokens['index'][row]) + 1} was picked: candidates after each setting"
    return table(title, ["candidate", *columns.values()], lines, words=(0,))


def share(prob: float) -> str:
    """A probability after a filter; a candidate that was cut has none."""
    return "cut" if np.isnan(prob) else percent(prob)


def stage_times(recording: Recording) -> str:
    """How long each stage took, all tokens together."""
    stages = recording.stages
    if not len(stages["stage"]):
        return ""
    total = float(stages["dur_ms"].sum()) or 1.0
    lines = []
    for number, name in enumerate(recording.stage_names):
        took = stages["dur_ms"][stages["stage"] == number]
        if took.size:
            whole = float(took.sum())
            median, width = milliseconds(float(np.median(took))), round(BAR_PIXELS * whole / total)
            bar = f'<div style="background:{HUE};width:{width}px;height:9px"></div>'
            numbers = [milliseconds(whole), f"{took.size:,}", median, percent(whole / total)]
            lines.append([escape(printable(STAGES.get(name, name.replace("_", " ")))), *numbers, bar])
    title = f"Where the time went: {milliseconds(total)} in {plural(len(lines), 'stage')}"
    return table(title, ["stage", "in all", "times", "median", "share", ""], lines, words=(0, 5))


def table(title: str, head: Sequence[str], lines: Sequence[Sequence[str]], words: Sequence[int]) -> str:
    """A folded table of ready HTML; the columns in `words` begin at the left, numbers end at the right."""
    sides = ["left" if column in words else "right" for column in range(len(head))]
    rows = [cells("th", head, sides), *(cells("td", line, sides) for line in lines)]
    return f"<details><summary>{title}</summary><table>{''.join(rows)}</table></details>"


def cells(tag: str, line: Sequence[str], sides: Sequence[str]) -> str:
    made = (f'<{tag} align="{side}">{cell}</{tag}>' for cell, side in zip(line, sides, strict=True))
    return f"<tr>{''.join(made)}</tr>"


def text_of(recording: Recording, token: int) -> str:
    """A token's text, with characters that would not show made visible."""
    return printable(names_of(recording).alone(token))


def quoted(recording: Recording, token: int) -> str:
    """A token's text in quotes, escaped, spaces visible."""
    return f"“{escape(text_of(recording, token).replace(' ', '·').replace(chr(10), ''))}”"
