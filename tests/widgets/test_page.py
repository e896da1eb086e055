"""The offline page: nothing in a recording breaks out of its script element, and nothing may be fetched."""

from __future__ import annotations

import base64
import json
import re

from genai_lab.tracing import Recorder
from genai_lab.widgets.page import json_in_script, offline_page
from tests.widgets.chunks import decode
from tests.widgets.recorded import ScriptedRun


def page(title: str = "a trace", kinds: tuple[str, ...] = ("all",)) -> str:
    recorder = Recorder()
    recorder.question("</script><script>alert(2)</script> \u2028")
    ScriptedRun(recorder, vocabulary=80).write(30)
    return offline_page(recorder.snapshot(), kinds, title)


def entries(html: str) -> list[dict[str, object]]:
    found = re.search(r'<script type="application/json" class="genai-lab-widgets">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    made: list[dict[str, object]] = json.loads(found[1])
    return made


def test_it_carries_the_code_the_data_and_one_slot_a_view() -> None:
    html = page(kinds=("ribbon", "timeline"))
    runtime, trace, *views = entries(html)
    assert "createStore" in str(runtime["esm"])
    chunk = trace["buffers"][0]  # type: ignore[index]
    header, columns = decode(base64.b64decode(chunk["data"]))
    assert header["runs"][0]["question"].startswith("</script>")
    assert len(columns["tokens.token"]) == 30
    assert [view["state"]["kind"] for view in views] == ["ribbon", "timeline"]  # type: ignore[index]
    assert re.findall(r'data-widget="([^"]+)"', html) == [view["id"] for view in views]


def test_only_its_own_two_scripts_are_scripts() -> None:
    html = page(title="<script>alert(3)</script>")
    assert re.findall(r"<script[^>]*>", html) == [
        '<script type="application/json" class="genai-lab-widgets">',
        '<script type="module">',
    ]
    assert html.count("</script>") == 2
    assert "<!--" not in html  # it would hide the end of a script element


def test_its_policy_forbids_every_request() -> None:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page())
    assert found is not None
    assert "default-src 'none'" in found[1] and "http" not in found[1]


def test_json_in_a_script_element_is_still_json() -> None:
    value = {"a": "</script><!--\u2028\u2029é日"}
    text = json_in_script(value)
    assert json.loads(text) == value
    assert "<" not in text and text.isascii()
