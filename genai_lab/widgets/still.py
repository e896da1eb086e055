"""The still picture: what a notebook shows where no script may run (untrusted, on a code host, printed by nbconvert).

Receives a recording. Returns HTML of a bounded size that survives sanitisers: inline styles, tables and details, no
script, no style element, no SVG. It inherits the page's text colour and only tints, so it reads in light and in dark.
Every text of a model or a file is escaped.
"""

from __future__ import annotations

from html import escape

import numpy as np

from genai_lab.analysis import candidate_frame
from genai_lab.tracing import Recording, RunFacts
from genai_lab.widgets.codec import question_of
from genai_lab.widgets.words import milliseconds, percent, plural, printable

MAX_TOKENS = 160  # of an answer
MAX_RUNS = 4
DOUBTFUL = 6  # tokens whose alternatives are listed
ALTERNATIVES = 5
MAX_QUESTION = 300
HUE = "86,160,230"  # the probability tint, readable under black and under white text

BOX = "max-width:60em;line-height:1.5"
ANSWER = "font-size:17px;line-height:2;white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0 8px"
SMALL = "font-size:12px;opacity:.75;margin:4px 0"
CELL = "padding:1px 12px 1px 0;text-align:left"
NUMBER = "padding:1px 12px 1px 0;text-align:right;white-space:nowrap"
BAR_PIXELS = 80


def still_picture(recording: Recording, kind: str = "all") -> str:
    """HTML for one kind of view: "ribbon", "pipeline", "timeline", or "all" of them."""
    parts = {"ribbon": (answers,), "pipeline": (pipeline,), "timeline": (stage_times,)}
    drawn = [part(recording) for part in parts.get(kind, (answers, pipeline, stage_times))]
    note = "A still picture of a recorded run. Run the notebook, or trust it, for the one that answers to the pointer."
    return f'<div style="{BOX}">{"".join(drawn)}<p style="{SMALL}">{note}</p></div>'


def answers(recording: Recording) -> str:
    """Every answer (up to four) with its tokens tinted by probability, and where the model hesitated."""
    if not len(recording.tokens["token"]):
        return f'<p style="{SMALL}">No token was recorded yet.</p>'
    shown = [answer(recording, run) for run in recording.runs[:MAX_RUNS]]
    if len(recording.runs) > MAX_RUNS:
        shown.append(f'<p style="{SMALL}">and {plural(len(recording.runs) - MAX_RUNS, "answer")} more</p>')
    key = "The bluer a token and the thicker its line, the likelier the model found it."
    return "".join(shown) + f'<p style="{SMALL}">{key}</p>' + doubts(recording)


def answer(recording: Recording, run: RunFacts) -> str:
    """One run: its question, or where it branches off, and its tokens."""
    rows = np.flatnonzero(recording.tokens["run"] == run.run)
    if run.parent is None:
        title = escape(printable(question_of(run, recording.texts)[:MAX_QUESTION])) or f"Run {run.run}"
    else:
        title = f"Branch of answer {run.parent} at token {(run.fork or 0) + 1}"
    spans = "".join(token_span(recording, row) for row in rows[:MAX_TOKENS].tolist())
    more = f" … and {plural(len(rows) - MAX_TOKENS, 'token')} more" if len(rows) > MAX_TOKENS else ""
    failed = f'<p style="{SMALL}">{escape(run.error)}</p>' if run.error else ""
    return f'<p style="margin:8px 0 0"><b>{title}</b></p><p style="{ANSWER}">{spans}{more}</p>{failed}'


def token_span(recording: Recording, row: int) -> str:
    """A token: tint and line thickness say its probability."""
    prob = float(np.nan_to_num(recording.tokens["prob"][row]))
    tint, line = f"rgba({HUE},{0.5 * prob:.2f})", f"{1 + round(2 * prob)}px solid rgba({HUE},.9)"
    text = escape(text_of(recording, int(recording.tokens["token"][row])))
    return f'<span style="background-color:{tint};border-bottom:{line}">{text}</span>'


def doubts(recording: Recording) -> str:
    """The tokens where the model hesitated most, with what else it might have said."""
    tokens = recording.tokens
    rows = np.argsort(-tokens["entropy"], kind="stable")[:DOUBTFUL].tolist()
    lines = "".join(doubt(recording, row) for row in sorted(rows))
    head = f'<th style="{NUMBER}">token</th><th style="{CELL}">said</th><th style="{CELL}">could have said</th>'
    return (
        f"<details><summary>What else could it have said? The {plural(len(rows), 'token')} where it hesitated most"
        f"</summary><table><tr>{head}</tr>{lines}</table></details>"
    )


def doubt(recording: Recording, row: int) -> str:
    """One line of that table."""
    tokens = recording.tokens
    ids, logits = tokens["top_ids"][row], tokens["top_logits"][row].astype(np.float64)
    probs = np.exp(logits - logits[0] - tokens["log_z"][row])
    others = [(int(i), p) for i, p in zip(ids, probs, strict=True) if i != tokens["token"][row] and p > 0]
    listed = ", ".join(f"{quoted(recording, token)} {percent(p)}" for token, p in others[:ALTERNATIVES])
    said = f"{quoted(recording, int(tokens['token'][row]))} {percent(float(tokens['prob'][row]))}"
    cells = f'<td style="{CELL};white-space:nowrap">{said}</td><td style="{CELL}">{listed}</td>'
    return f'<tr><td style="{NUMBER}">{int(tokens["index"][row]) + 1}</td>{cells}</tr>'


def pipeline(recording: Recording) -> str:
    """The candidates of the most doubtful token, after each processor and filter."""
    tokens = recording.tokens
    if not len(tokens["token"]):
        return ""
    row = int(np.argmax(np.nan_to_num(tokens["entropy"], nan=-1)))
    frame = candidate_frame(recording, row).head(DOUBTFUL + 2)
    columns = {"prob": "the model's own", "temperature": "after temperature", "top_k": "top-k", "top_p": "top-p"}
    columns["min_p"] = "min-p"
    head = "".join(f'<th style="{NUMBER}">{words}</th>' for words in columns.values())
    lines = []
    for _, candidate in frame.iterrows():
        name = quoted(recording, int(candidate["token"]))
        cells = "".join(f'<td style="{NUMBER}">{share(float(candidate[column]))}</td>' for column in columns)
        bold = f"<b>{name}</b>" if candidate["chosen"] else name
        lines.append(f'<tr><td style="{CELL}">{bold}</td>{cells}</tr>')
    place = int(tokens["index"][row]) + 1
    return (
        f"<details><summary>How token {place} was picked: candidates after each setting</summary>"
        f'<table><tr><th style="{CELL}">candidate</th>{head}</tr>{"".join(lines)}</table></details>'
    )


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
        if not took.size:
            continue
        whole = float(took.sum())
        median, part = milliseconds(float(np.median(took))), percent(whole / total)
        numbers = (milliseconds(whole), f"{took.size:,}", median, part)
        cells = "".join(f'<td style="{NUMBER}">{value}</td>' for value in numbers)
        size = f"width:{round(BAR_PIXELS * whole / total)}px;height:9px"
        bar = f'<td><div style="background-color:rgba({HUE},.9);{size}"></div></td>'
        lines.append(f'<tr><td style="{CELL}">{escape(name)}</td>{cells}{bar}</tr>')
    head = "".join(f'<th style="{NUMBER}">{words}</th>' for words in ("in all", "times", "median", "share"))
    return (
        f"<details><summary>Where the time went: {milliseconds(total)} in {plural(len(lines), 'stage')}</summary>"
        f'<table><tr><th style="{CELL}">stage</th>{head}<th></th></tr>{"".join(lines)}</table></details>'
    )


def text_of(recording: Recording, token: int) -> str:
    """A token's text, with characters that would not show made visible."""
    return printable(recording.texts.get(token, (f"[{token}]", False))[0])


def quoted(recording: Recording, token: int) -> str:
    """A token's text in quotes, escaped, spaces visible."""
    return f"“{escape(text_of(recording, token).replace(' ', '·').replace(chr(10), ''))}”"
