"""A person at JupyterLab: opens a notebook, runs it, clicks, saves, comes back another day.

No sleeps: it waits for promises of JupyterLab's own objects, for attributes that a widget sets, or for the kernel's
answer.
"""

from __future__ import annotations

import ast
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page

from tests.browser.jupyter import ROOT, JupyterLab

SCREENSHOTS = ROOT / "build" / "screenshots"
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
FAILED_OUTPUT = ", ".join(f"{PANEL} [data-mime-type='application/vnd.jupyter.{kind}']" for kind in ("stderr", "error"))
SAVE_STATE = "@jupyter-widgets/jupyterlab-manager:saveWidgetState"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

NO_SPLASH = "document.querySelector('#jupyterlab-splash') === null"
THEME_SHOWN = f"light => document.body.dataset.jpThemeLight === light && {NO_SPLASH}"
KERNEL_CONNECTED = """async () => {
    const panel = window.jupyterapp.shell.currentWidget;
    if (!panel?.sessionContext) return false;
    await panel.context.ready;
    await panel.sessionContext.ready;
    return panel.sessionContext.session?.kernel?.connectionStatus === 'connected';
}"""
EVALUATE = """async (expression) => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const content = {code: '', user_expressions: {answer: expression}, silent: false, store_history: false};
    const reply = await kernel.requestExecute(content).done;
    if (reply.content.status !== 'ok') throw new Error(reply.content.ename + ': ' + reply.content.evalue);
    const answer = reply.content.user_expressions.answer;
    if (answer.status !== 'ok') throw new Error(answer.ename + ': ' + answer.evalue);
    return answer.data['text/plain'];
}"""
SAVE = """async ([command, state]) => {
    const {commands, shell} = window.jupyterapp;
    if (commands.isToggled(command) !== state) await commands.execute(command);
    await commands.execute('docmanager:save');
    return shell.currentWidget.context.model.dirty;
}"""
# control requests are answered in order, and one that a shutdown or a restart cancels is an error in the page:
# JupyterLab asks for a thread of its own for every widget that it meets
ANSWERED = """const kernel = panel.sessionContext.session?.kernel;
    const hears = kernel?.supportsSubshells && kernel.connectionStatus === 'connected';
    if (hears) await kernel.requestListSubshell({}).done;"""
RESTART = f"""async () => {{
    const panel = window.jupyterapp.shell.currentWidget;
    {ANSWERED}
    await kernel.restart();
}}"""
SHUTDOWN = f"""async () => {{
    const panel = window.jupyterapp?.shell.currentWidget;
    if (!panel?.sessionContext) return;
    {ANSWERED}
    await panel.sessionContext.shutdown();
}}"""
CLOSE = f"""async () => {{
    const panel = window.jupyterapp.shell.currentWidget;
    {ANSWERED}
    await panel.sessionContext.shutdown();
    panel.context.model.dirty = false;
    panel.close();
}}"""


def screenshot(of: Page | Locator, name: str) -> Path:
    """Saves a page, or one thing in it, as build/screenshots/<name>.png."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    of.screenshot(path=path)
    return path


class LabPage:
    """One notebook in one browser page.

    labpage.open(labpage.server.write("sum.ipynb", "a = 1 + 1")).run_all()
    labpage.eventually("a", 2)
    labpage.save().reopen(trusted=False)
    """

    def __init__(self, page: Page, server: JupyterLab, name: str) -> None:
        self.page, self.server, self.name = page, server, name
        self.notebook = ""

    def open(self, notebook: str) -> LabPage:
        """Opens a notebook of the server's root in a fresh workspace and waits until its kernel is connected."""
        self.notebook = notebook
        query = f"?token={self.server.token}&reset"
        self.page.goto(f"{self.server.url}/lab/workspaces/{self.name}/tree/{notebook}{query}")
        self.page.wait_for_function(f"() => window.jupyterapp && {NO_SPLASH}")
        self.page.evaluate("() => window.jupyterapp.restored")
        self.page.wait_for_selector(f"{PANEL} .jp-Notebook")
        self.page.wait_for_function(KERNEL_CONNECTED)
        return self

    def execute(self, command: str, **arguments: Any) -> Any:
        """Runs one of JupyterLab's commands, as a menu would, and waits for it."""
        script = "([command, args]) => window.jupyterapp.commands.execute(command, args).then(() => null)"
        return self.page.evaluate(script, [command, arguments])

    def run_all(self, errors_allowed: bool = False) -> LabPage:
        """Runs every cell and waits for the last; a cell that fails or writes to stderr fails the test."""
        self.execute("notebook:run-all-cells")
        failed = self.page.locator(FAILED_OUTPUT)
        assert errors_allowed or failed.count() == 0, failed.first.inner_text()
        return self

    def output(self, selector: str) -> Locator:
        """What matches in the outputs of the notebook that is in front."""
        return self.page.locator(f"{PANEL} .jp-OutputArea {selector}")

    def py(self, expression: str) -> str:
        """repr() of an expression in the notebook's kernel. Messages that the page sent earlier arrive first."""
        return str(self.page.evaluate(EVALUATE, expression))

    def eventually(self, expression: str, expected: object, seconds: float = 30.0) -> None:
        """Asks the kernel until a literal is what it should be.

        Needed because ipywidgets has one update in flight: a later one waits in the browser, and a question asked after
        a click may overtake the click's own update.
        """
        end = time.monotonic() + seconds
        while (got := ast.literal_eval(self.py(expression))) != expected:
            assert time.monotonic() < end, f"{expression} is {got!r}, expected {expected!r}"
            self.page.wait_for_timeout(50)

    def theme(self, name: str) -> LabPage:
        """Switches to "light" or "dark" and waits until the page says so and its splash has gone."""
        self.execute("apputils:change-theme", theme=THEMES[name])
        light = "true" if name == "light" else "false"
        self.page.wait_for_function(THEME_SHOWN, arg=light)
        return self

    def hide_sidebar(self) -> LabPage:
        """Leaves the width to the notebook, for a picture."""
        if self.page.evaluate("() => !window.jupyterapp.shell.leftCollapsed"):
            self.execute("application:toggle-left-area")
        return self

    def save(self, widget_state: bool = True) -> LabPage:
        """Saves the notebook, with the widgets' state or, as JupyterLab does unless told, without."""
        dirty = self.page.evaluate(SAVE, [SAVE_STATE, widget_state])
        assert not dirty, "the notebook was not saved"
        return self

    def reopen(self, trusted: bool) -> LabPage:
        """Another day: the kernel is gone, the saved notebook is opened again, signed by this user or by nobody."""
        self.page.evaluate(CLOSE)
        self.server.trust(self.notebook, trusted)
        return self.open(self.notebook)

    def shot(self, suffix: str = "", of: Locator | None = None) -> Path:
        """A picture of the page, or of one thing in it, in build/screenshots, named after the test."""
        return screenshot(of or self.page, f"{self.name}-{suffix}" if suffix else self.name)

    def restart(self) -> LabPage:
        self.page.evaluate(RESTART)
        return self

    def close(self) -> None:
        """Ends the kernel, so that kernels do not pile up on a small machine."""
        self.page.evaluate(SHUTDOWN)
