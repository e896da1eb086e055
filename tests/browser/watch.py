"""Watches a page for what must not happen: a script that throws, a request that leaves the machine."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Page

LOCAL_SCHEMES = {"about", "blob", "data", "file", "chrome-error"}
LOCAL_HOSTS = {"127.0.0.1", "localhost", "::1"}


def leaves_the_machine(url: str) -> bool:
    """Whether asking for this URL would reach beyond this machine."""
    parts = urlsplit(url)
    return parts.scheme not in LOCAL_SCHEMES and parts.hostname not in LOCAL_HOSTS


class PageWatch:
    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        self.outside: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(f"{error.message}\n{error.stack or ''}"))
        page.on("request", lambda request: self._note(request.url))
        page.on("websocket", lambda socket: self._note(socket.url))

    def _note(self, url: str) -> None:
        if leaves_the_machine(url):
            self.outside.append(url)

    def verify(self) -> None:
        """Fails with every script error and every outside address that was seen."""
        assert not self.errors, "scripts in the page failed:\n" + "\n".join(self.errors)
        assert not self.outside, f"the page asked for addresses outside this machine: {self.outside}"
