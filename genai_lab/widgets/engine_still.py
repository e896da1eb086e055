"""The still picture of an engine's run: who was served when, whose memory was where, and what each request got.

Receives a recording. Returns HTML under the same rules as `still`: inline styles, tables and details, no script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from genai_lab.analysis.engine_frames import state_at
from genai_lab.tracing import Recording
from genai_lab.tracing.texts import names_of
from genai_lab.widgets.codec import question_of
from genai_lab.widgets.still import BOX, SMALL, answers, still_picture, table
from genai_lab.widgets.words import milliseconds, plural, printable

ENGINE_KINDS = ("engine", "batching", "blocks")
HUES = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#808890")
MAX_REQUESTS = 16
MAX_BLOCKS = 240
MAX_ASKED = 60
STEPS_PIXELS = 480
BLOCKS_IN_ROW = 24
CROSS_PIXELS = 10
HEIGHTS = {"prefill": 14, "decode": 6, "wait": 2, "preempt": 14, "reject": 14}
CELL = "border:1px solid #80808080;padding:0 3px;font-size:10px;text-align:center"

NOTE = (
    "This is a still picture of an engine's run. For the one whose steps can be played, open the notebook in "
    "JupyterLab and run this cell again (Shift+Enter)."
)


def picture(recording: Recording, kind: str = "all") -> str:
    """HTML for any kind of view; "all" of an engine's run is its steps, its memory and its answers."""
    engine = len(recording.tables["steps"]["step"]) > 0
    if kind not in ENGINE_KINDS and not (kind == "all" and engine):
        return still_picture(recording, kind)
    if not engine:
        return f'<div style="{BOX}"><p style="{SMALL}">No step of an engine was recorded yet.</p></div>'
    parts: dict[str, tuple[Callable[[Recording], str], ...]] = {"batching": (served,), "blocks": (memory,)}
    drawn = [part(recording) for part in parts.get(kind, (served, memory, turns, answers))]
    return f'<div style="{BOX}">{"".join(drawn)}<p style="{SMALL}">{NOTE}</p></div>'


def letters(request: int) -> str:
    """How a request is called in every picture.

    >>> [letters(n) for n in (0, 25, 26, 701, 702)]
    ['A', 'Z', 'AA', 'ZZ', 'AAA']
    """
    text = ""
    while request >= 0:
        text = chr(65 + request % 26) + text
        request = request // 26 - 1
    return text


def served(recording: Recording) -> str:
    """One line a request: full bars read a prompt, low ones make tokens, thin ones wait."""
    decisions, steps = recording.tables["decisions"], recording.tables["steps"]["step"]
    requests = np.unique(decisions["request"])
    lines = [line(recording, int(request)) for request in requests[:MAX_REQUESTS]]
    more = (
        f'<p style="{SMALL}">and {plural(len(requests) - MAX_REQUESTS, "request")} more</p>'
        if len(requests) > MAX_REQUESTS
        else ""
    )
    title = f"Who is served in which step? {plural(len(requests), 'request')}, {plural(len(steps), 'step')}"
    key = "Full height: reads its prompt; low: makes a token a step; thin: waits; crossed: loses its place."
    rows = "".join(f"<tr>{one}</tr>" for one in lines)
    return f'<p style="margin:8px 0 0"><b>{title}</b></p><table>{rows}</table>{more}<p style="{SMALL}">{key}</p>'


def line(recording: Recording, request: int) -> str:
    """A request's stretches of equal steps, as wide as their share of all steps."""
    decisions, steps = recording.tables["decisions"], recording.tables["steps"]["step"]
    mine = np.flatnonzero(decisions["request"] == request)
    first = int(steps[0])
    verdicts = [recording.words[n] for n in decisions["verdict"][mine].tolist()]
    places = (decisions["step"][mine].astype(np.int64) - first).tolist()
    bars, scale, at = [], STEPS_PIXELS / len(steps), 0.0
    for start, stop, verdict in stretches(places, verdicts):
        left, width = start * scale - at, max(1.0, (stop - start) * scale)
        width = CROSS_PIXELS if verdict == "preempt" else width
        at += max(0.0, left) + width
        bars.append(bar(verdict, max(0.0, left), width, HUES[request % len(HUES)]))
    asked = asked_by(recording, request)
    name = f'<td style="{CELL};background:{HUES[request % len(HUES)]}80"><b>{letters(request)}</b></td>'
    text = f'<td align="left" style="font-size:12px">{asked}</td>'
    return f'{name}{text}<td align="left" style="white-space:nowrap;padding:0">{"".join(bars)}</td>'


def stretches(places: Sequence[int], verdicts: Sequence[str]) -> list[tuple[int, int, str]]:
    """Neighbouring steps of one kind as [start, stop).

    >>> stretches([0, 1, 2, 5], ["wait", "decode", "decode", "decode"])
    [(0, 1, 'wait'), (1, 3, 'decode'), (5, 6, 'decode')]
    """
    found: list[tuple[int, int, str]] = []
    for place, verdict in zip(places, verdicts, strict=True):
        if found and found[-1][1] == place and found[-1][2] == verdict:
            found[-1] = (found[-1][0], place + 1, verdict)
        else:
            found.append((place, place + 1, verdict))
    return found


def bar(verdict: str, left: float, width: float, hue: str) -> str:
    """One stretch: its height says what was done, its hue for whom."""
    if verdict == "preempt":
        style = f"display:inline-block;margin-left:{left:.1f}px;width:{width}px;font-size:11px;line-height:14px"
        return f'<b style="{style};text-align:center">✕</b>'
    height, colour = HEIGHTS.get(verdict, 6), "#80808080" if verdict == "wait" else hue
    style = f"display:inline-block;vertical-align:middle;margin-left:{left:.1f}px;width:{width:.1f}px"
    return f'<span style="{style};height:{height}px;background:{colour}"></span>'


def asked_by(recording: Recording, request: int) -> str:
    """What a request asks first, escaped."""
    columns = recording.tables["turns"]
    runs = columns["run"][(columns["request"] == request) & (columns["run"] >= 0)].tolist()
    if not runs or runs[0] >= len(recording.runs):
        return ""
    text = question_of(recording.runs[runs[0]], names_of(recording))
    return escape(printable(text if len(text) <= MAX_ASKED else f"{text[: MAX_ASKED - 1]}…").replace("\n", " "))


def memory(recording: Recording) -> str:
    """The pool in its fullest step: a cell a block, with the letter of whoever holds it."""
    steps = recording.tables["steps"]
    row = int(np.argmax(steps["blocks_used"]))
    state = state_at(recording, int(steps["step"][row]))
    size, owners = state.blocks_used + state.blocks_cached + state.blocks_free, state.owners()
    shared = sum(len(holders) > 1 for holders in owners.values())
    title = (
        f"Where does the memory of each answer live? {len(owners):,} of {plural(size, 'block')} in use in step "
        f"{state.step}, {shared} shared, {len(state.kept)} free but kept"
    )
    head = f'<p style="margin:8px 0 0"><b>{title}</b></p>'
    if size > MAX_BLOCKS:
        return head
    cells = [block(owners.get(number, ()), number in state.kept) for number in range(size)]
    lines = [cells[start : start + BLOCKS_IN_ROW] for start in range(0, size, BLOCKS_IN_ROW)]
    rows = "".join(f"<tr>{''.join(one)}</tr>" for one in lines)
    key = "A letter: the request that holds the block; &times;n: shared by n; ~: nobody's, but its content is kept."
    return f'{head}<table>{rows}</table><p style="{SMALL}">{key}</p>'


def block(holders: Sequence[int], kept: bool) -> str:
    """One cell of the pool."""
    if len(holders) > 1:
        return f'<td style="{CELL};background:#80808060"><b>&times;{len(holders)}</b></td>'
    if holders:
        return f'<td style="{CELL};background:{HUES[holders[0] % len(HUES)]}80">{letters(holders[0])}</td>'
    return f'<td style="{CELL};opacity:.6">{"~" if kept else "&nbsp;"}</td>'


def turns(recording: Recording) -> str:
    """What each turn got: how long it waited, how much was found in the cache, how long it took."""
    columns = recording.tables["turns"]
    lines = [turn(recording, row) for row in range(min(len(columns["request"]), 4 * MAX_REQUESTS))]
    head = ["request", "asks", "waited", "first token after", "tokens", "found in the cache", "lost its place", "end"]
    return table(f"What each of {plural(len(columns['request']), 'turn')} got", head, lines, words=(0, 1, 7))


def turn(recording: Recording, row: int) -> list[str]:
    """One line of that table."""
    columns = recording.tables["turns"]
    value = {name: columns[name][row] for name in columns}
    request = int(value["request"])
    cached, prompt = int(value["cached_prompt_tokens"]), int(value["prompt_tokens"])
    return [
        f"{letters(request)} ({request})",
        asked_by(recording, request),
        span(value["scheduled_ms"] - value["arrived_ms"]),
        span(value["first_token_ms"] - value["arrived_ms"]),
        f"{int(value['generated_tokens']):,}",
        f"{cached:,} of {prompt:,} tokens",
        f"{int(value['preemptions']):,}",
        escape(recording.words[int(value["finish"])].replace("_", " ")) or "under way",
    ]


def span(ms: float) -> str:
    """A time, when it has come."""
    return milliseconds(float(ms)) if np.isfinite(ms) else ""
