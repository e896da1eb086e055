"""The harness itself: a click reaches Python and back, another day is another day, and it sees what it must see."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.labpage import SCREENSHOTS, LabPage
from tests.browser.watch import PageWatch, leaves_the_machine

COUNTER = '''
import anywidget, traitlets

class Counter(anywidget.AnyWidget):
    _esm = """
    export default { render({ model, el }) {
        const button = document.createElement("button");
        button.className = "counter";
        const draw = () => { button.textContent = `count ${model.get("value")}`; };
        button.onclick = () => { model.set("value", model.get("value") + 1); model.save_changes(); };
        model.on("change:value", draw);
        draw();
        el.append(button);
    } };
    """
    value = traitlets.Int(3).tag(sync=True)

counter = Counter()
counter
'''
TRUSTED = "() => window.jupyterapp.shell.currentWidget.content.widgets[0].model.trusted"


def test_a_notebook_is_run_clicked_saved_and_opened_another_day(labpage: LabPage) -> None:
    labpage.open(labpage.server.write("counter.ipynb", COUNTER)).run_all()
    labpage.output("button.counter").click()
    labpage.eventually("counter.value", 4)  # the page reached Python
    labpage.py("setattr(counter, 'value', 40)")
    labpage.page.get_by_text("count 40").wait_for()  # and Python the page

    labpage.hide_sidebar()
    dark, light = (labpage.theme(theme).shot(theme) for theme in ("dark", "light"))
    assert dark == SCREENSHOTS / f"{labpage.name}-dark.png"
    assert dark.read_bytes() != light.read_bytes()

    labpage.save(widget_state=False).reopen(trusted=True)
    assert "widgets" not in labpage.server.read(labpage.notebook).metadata
    labpage.page.get_by_text("model not found").wait_for()

    labpage.run_all().save().reopen(trusted=True)
    labpage.page.get_by_text("count 3").wait_for()  # from the saved state: no kernel has run this

    labpage.reopen(trusted=False)
    assert labpage.page.evaluate(TRUSTED) is False
    labpage.output("pre").get_by_text("Counter object").wait_for()
    assert labpage.output("button.counter").count() == 0


def test_a_failing_cell_fails_the_run(labpage: LabPage) -> None:
    labpage.open(labpage.server.write("fails.ipynb", "1 / 0"))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        labpage.run_all()


def test_the_watch_sees_script_errors_and_outside_requests(browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    watch = PageWatch(page)
    with page.expect_event("requestfailed"), page.expect_event("pageerror"):
        page.set_content("<img src='http://elsewhere.example/x.png'><script>setTimeout(() => missing())</script>")
    context.close()
    assert watch.outside == ["http://elsewhere.example/x.png"]
    with pytest.raises(AssertionError, match="missing is not defined"):
        watch.verify()


@pytest.mark.parametrize(
    ("url", "outside"),
    [
        ("file:///a.html", False),
        ("data:text/plain,a", False),
        ("blob:http://127.0.0.1:1/a", False),
        ("http://127.0.0.1:8888/lab", False),
        ("ws://localhost:8888/api", False),
        ("http://[::1]/", False),
        ("https://cdn.example/x.js", True),
        ("http://127.0.0.1.example/", True),
        ("wss://example/api", True),
    ],
)
def test_what_leaves_the_machine(url: str, outside: bool) -> None:
    assert leaves_the_machine(url) is outside
