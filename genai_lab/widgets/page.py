"""One offline HTML file: the views of a trace, its data and the code as text. Nothing is fetched, by policy too.

Receives a recording. Returns the page. PROTOCOL.md, "Offline page", is the contract with the script that reads it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from genai_lab.tracing import Recording
from genai_lab.widgets.codec import encode_recording
from genai_lab.widgets.engine_still import picture
from genai_lab.widgets.models import STATIC, bundle, bundle_of

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
STYLE = (
    ":root{color-scheme:light dark}"
    "body{margin:0;padding:20px 16px;background:#f3f4f6;color:#1b1f24;font:14px/1.5 system-ui,sans-serif}"
    "@media(prefers-color-scheme:dark){body{background:#0e1115;color:#e6e9ed}}"
    ".genai-lab-slot{max-width:992px;margin:0 auto 20px}"
    "th,td{padding:1px 14px 1px 0}"
)


def offline_page(recording: Recording, kinds: Sequence[str] = ("all",), title: str = "genai_lab trace") -> str:
    """A page that shows `kinds` of views of one recording from a file, without a server, a kernel or a network."""
    bundles = [bundle_of(kind, recording) for kind in kinds]
    views = [
        {"id": f"view-{n}", "kind": "view", "state": view_state(kind, name)}
        for n, (kind, name) in enumerate(zip(kinds, bundles, strict=True))
    ]
    entries = [*(runtime_entry(name) for name in sorted(set(bundles))), trace_entry(recording), *views]
    slots = "".join(
        f'<div class="genai-lab-slot" data-widget="view-{n}">{picture(recording, kind)}</div>'
        for n, kind in enumerate(kinds)
    )
    host = (STATIC / "standalone.js").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{slots}</main>"
        f'<script type="application/json" class="genai-lab-widgets">{json_in_script(entries)}</script>'
        f'<script type="module">{host}</script></body></html>\n'
    )


def runtime_entry(name: str) -> dict[str, Any]:
    return {"id": f"runtime-{name}", "kind": "runtime", "esm": bundle(name), "state": {}}


def trace_entry(recording: Recording) -> dict[str, Any]:
    data = base64.b64encode(encode_recording(recording)).decode("ascii")
    state = {"selected": {"run": 0, "token": -1}, "at": {"step": -1, "request": -1, "block": None}}
    return {"id": "trace", "kind": "trace", "state": state, "buffers": [{"path": ["chunk"], "data": data}]}


def view_state(kind: str, name: str) -> dict[str, str]:
    return {"rt": f"anywidget:runtime-{name}", "trace": "anywidget:trace", "kind": kind}


def json_in_script(value: object) -> str:
    """JSON that no text in it can break out of a script element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))  # ASCII: U+2028 and U+2029 are escaped too
    return text.replace("<", "\\u003c")
