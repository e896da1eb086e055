"""The batching timeline in JupyterLab: it can be asked there, its keys stay in it, and it is there another day."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.labpage import LabPage

expect.set_options(timeout=PATIENCE_MS)

ENGINE = """
import genai_lab

model = genai_lab.Model({folder!r})
with genai_lab.record() as trace:
    engine = genai_lab.Engine(model, max_batch_size=3, max_session_tokens=100, max_scheduled_tokens=24, chunk_size=12,
                              block_size=4, num_blocks=22)
    requests = [engine.create_request() for _ in range(5)]
    for number, request in enumerate(requests):
        options = genai_lab.TurnOptions(request)
        options.set_max_generated_tokens(20)
        request.begin_turn([*range(40, 56), *range(60 + 9 * number, 68 + 9 * number)], options)
    engine.run_until_idle()
"""

PICKED_LINE_IS_DARK = """dark => {
    const canvas = document.querySelector('.gl-batch .gl-lanes canvas');
    const at = n => n * devicePixelRatio;
    return canvas.getContext('2d').getImageData(canvas.width - at(2), at(18), 1, 1).data[0] < 128 === dark;
}"""


def test_it_can_be_asked_keeps_its_keys_and_is_there_another_day(labpage: LabPage, tiny_folder: Path) -> None:
    name = f"{labpage.name}.ipynb"
    labpage.open(labpage.server.write(name, ENGINE.format(folder=str(tiny_folder)), "trace")).run_all()
    root = labpage.output(".gl[data-kind='all'][data-ready='1']")
    steps = int(labpage.py("len(trace.steps())"))
    expect(root).to_have_attribute("data-steps", str(steps))
    labpage.output(".gl-jump[data-kind='wait']").click()
    why = labpage.output(".gl-why h3")
    expect(why).to_contain_text("waits")

    canvas = labpage.output(".gl-batch .gl-lanes canvas")
    for key in ("d", "d", "w", "End", *["ArrowUp"] * 5):  # "d" twice would delete the cell
        canvas.press(key)
    expect(why).to_contain_text(f"in step {steps - 1}")
    labpage.hide_sidebar()
    for theme, is_dark in (("dark", True), ("light", False)):
        labpage.theme(theme)
        canvas.scroll_into_view_if_needed()  # a picture that was out of sight meanwhile
        labpage.page.wait_for_function(PICKED_LINE_IS_DARK, arg=is_dark)
        labpage.shot(theme, of=labpage.output(".gl-batch"))

    at = root.get_attribute("data-at") or ""
    labpage.save().reopen(trusted=True)  # no kernel has run this
    expect(root).to_have_attribute("data-at", at)
    labpage.output(".gl-jump[data-kind='preempt']").click()
    expect(why).to_contain_text("loses its place")
    assert labpage.py("1 + 1") == "2"  # a kernel that is still starting would hold up the server's end
