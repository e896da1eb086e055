"""Still pictures in a notebook's outputs, that change when a run ends while the live picture beside them stays.

Changing an output draws it again, and a live picture would lose what was zoomed and picked in it. So the still one has
an output of its own. A page that can show widgets hides that output: it also holds a widget without a name, which
JupyterLab's widget manager hides. Everybody else (an untrusted notebook, a code host, a converter) shows its HTML.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from typing import Any

NO_WIDGET = {"version_major": 2, "version_minor": 0, "model_id": ""}
MOST = 16  # outputs of one trace that are kept up to date: the newest ones


class Stills:
    """The outputs that hold a trace's still pictures."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}  # display id -> kind of picture

    def show(self, kind: str, html: str, text: str) -> None:
        """Put a new one into the output of the cell that runs."""
        name = secrets.token_hex(8)
        self._kinds[name] = kind
        for old in list(self._kinds)[:-MOST]:
            del self._kinds[old]
        publish(as_data(html, text), {}, name)

    def refresh(self, draw: Callable[[str], str], text: str) -> None:
        """Draw all of them again. Any thread may do it."""
        drawn: dict[str, str] = {}
        for name, kind in list(self._kinds.items()):
            html = drawn[kind] = drawn.get(kind) or draw(kind)
            publish(as_data(html, text), {}, name, update=True)


def as_data(html: str, text: str) -> dict[str, Any]:
    """What an output holds: HTML, or text for a terminal, and for who can show widgets, nothing."""
    return {"application/vnd.jupyter.widget-view+json": NO_WIDGET, "text/html": html, "text/plain": text}


def publish(data: dict[str, Any], metadata: dict[str, Any], name: str | None = None, update: bool = False) -> None:
    """Make an output, or change the one with this display id. Outside a notebook, nothing."""
    shell = shell_of_notebook()
    if shell is not None:
        transient = {} if name is None else {"display_id": name}
        shell.display_pub.publish(data=data, metadata=metadata, transient=transient, update=update)


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, and not a terminal."""
    return shell_of_notebook() is not None


def shell_of_notebook() -> Any:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None
