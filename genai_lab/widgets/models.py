"""The three kinds of widget: one hidden runtime with the code, one model per trace, any number of views.

Receives a trace. Returns widgets that a notebook shows. What cannot be answered from the trace (continue, stop) is
handed to a `Driver`; this room knows no generator and no model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol
from weakref import WeakSet

import anywidget
import ipywidgets
import traitlets

from genai_lab import analysis
from genai_lab.errors import ArgumentError
from genai_lab.tracing import Recording
from genai_lab.widgets.codec import ChunkEncoder
from genai_lab.widgets.engine_still import ENGINE_KINDS, picture
from genai_lab.widgets.shown import Stills, in_notebook, publish

STATIC = Path(__file__).parent / "static"
WHOLE_EVERY = 1.0  # seconds between two whole chunks for a page that has not yet said that it listens
KINDS = ("all", "ribbon", "pipeline", "timeline", "engine", "batching", "blocks")
NO_DRIVER = (
    "This trace is for reading only. To continue its answers, show it with a model: "
    "genai_lab.Trace(trace.recording).show(model=model)."
)

# anywidget gives a host to `render` only, so the first view makes the trace's store and all views share it
TRACE_MODULE = """export default{initialize({model,signal}){let s;return{store:r=>s??=r.createStore(model,signal)}}}"""
# a picture of an empty trace that becomes an engine's run gets the other code: `rt` changes
VIEW_MODULE = """export default{async render({model,el,host,signal}){let e;const d=async()=>{\
const[r,t]=await Promise.all(["rt","trace"].map(k=>host.getWidget(model.get(k))));\
e?.();e=r.exports.mount(model.get("kind"),{el,signal},t.exports.store(r.exports))};\
model.on("change:rt",d);await d();return()=>{model.off("change:rt",d);e?.()}}}"""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the kernel side can do for a trace right now."""

    busy: bool = False
    branch: bool = False
    stop: bool = False
    why: str = NO_DRIVER  # when it cannot branch


class Driver(Protocol):
    """Whoever can continue a trace's runs."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while the trace's recorder is written or read."""

    @property
    def running(self) -> frozenset[int]:
        """The runs that are being written at this moment."""

    @property
    def abilities(self) -> Abilities: ...

    def command(self, message: Mapping[str, Any]) -> None:
        """Do what a person asked for in the page: stop, branch, again. Returns at once."""

    def show_in(self, picture: TraceModel) -> None:
        """Tell this picture what is new from now on."""


class ReadOnly:
    """The driver of a trace that nobody can continue."""

    lock: AbstractContextManager[Any] = threading.RLock()
    running: frozenset[int] = frozenset()
    abilities = Abilities()

    def command(self, message: Mapping[str, Any]) -> None:
        """Nothing to do: the page was told so, and its buttons are off."""

    def show_in(self, picture: TraceModel) -> None:
        """Nothing new will come."""


BUNDLES = {"answers": "genai_lab.js", "engine": "genai_lab_engine.js"}
"""The code comes in two modules, so that a notebook without an engine does not carry the engine's pictures."""


def bundle_of(kind: str, recording: Recording) -> str:
    """Which of BUNDLES has the pictures of a kind of view: "all" is what the recording is about."""
    is_engine = kind in ENGINE_KINDS or (kind == "all" and recording.tables["steps"]["step"].size > 0)
    return "engine" if is_engine else "answers"


@cache
def bundle(name: str) -> str:
    """The code of one of BUNDLES, an ES module with its styles inside."""
    return (STATIC / BUNDLES[name]).read_text(encoding="utf-8")


class Runtime(anywidget.AnyWidget):
    """Carries the code of one bundle, once per kernel; never shown."""

    _shared: ClassVar[dict[str, Runtime]] = {}
    _esm = traitlets.Unicode().tag(sync=True)

    @classmethod
    def shared(cls, name: str = "answers") -> Runtime:
        """The kernel's one runtime of a bundle, made when it is first needed or after somebody closed it."""
        runtime = cls._shared.get(name)
        if runtime is None or runtime.comm is None:
            runtime = cls._shared[name] = cls(_esm=bundle(name), layout=_layout())
        return runtime


_layouts: list[ipywidgets.Layout] = []


def _layout() -> ipywidgets.Layout:
    """One layout for every widget of ours: a saved notebook holds it once."""
    if not _layouts or _layouts[0].comm is None:
        _layouts[:] = [ipywidgets.Layout()]
    return _layouts[0]


class TraceModel(anywidget.AnyWidget):
    """One trace as the browser knows it; every view of the trace shares it, so picking a token in one picks it in all.

    Args:
        trace: what is shown.
        driver: who continues its runs when asked to.
    """

    _esm = traitlets.Unicode(TRACE_MODULE).tag(sync=True)
    chunk = traitlets.Bytes(b"").tag(sync=True)
    selected = traitlets.Dict({"run": 0, "token": -1}).tag(sync=True)
    at = traitlets.Dict({"step": -1, "request": -1, "block": None}).tag(sync=True)

    def __init__(self, trace: analysis.Trace, driver: Driver) -> None:
        self._trace, self._driver = trace, driver
        with self._driver.lock:
            recording = trace.recording
            self._encoder = ChunkEncoder(recording.dropped["tokens"])
            self._base = dict(recording.dropped)
            self._settled = self._state()
            self._stills = Stills()
            self._greeted = False  # what is told before a page listens is lost on it
            self._next_whole = 0.0
            self._views: WeakSet[View] = WeakSet()
            chunk = self._encoder.everything(recording, self._driver.running)
        super().__init__(chunk=chunk, layout=_layout())
        self.on_msg(lambda _widget, content, _buffers: self.hear(content))

    @property
    def outgrown(self) -> bool:
        """Whether the recorder has dropped rows since, so that they can no longer be told from the start."""
        recorder = self._trace.recorder
        return recorder is not None and recorder.dropped != self._base

    def hear(self, message: object) -> None:
        """A message from the page. It may say anything; what is not in the protocol is ignored."""
        if not isinstance(message, dict):
            return
        kind = message.get("type")
        if kind == "hello":
            self._greeted = True
            self.tell_state()
            self.tell_everything()
        elif kind in ("stop", "branch", "again"):
            self._driver.command(message)

    def tell_state(self) -> None:
        """Say what can be done now."""
        now = self._driver.abilities
        can = {"branch": now.branch, "stop": now.stop}
        self.send({"type": "state", "busy": now.busy, "can": can, "why": "" if now.branch else now.why})

    def tell_everything(self) -> None:
        """Send all rows, for a page that has none or has lost some."""
        with self._driver.lock:
            self._tell(self._encoder.everything(self._trace.recording, self._driver.running))

    def tell_news(self) -> None:
        """Send the rows and changes since the last time. While no page has said hello (it may be loading, and a busy
        kernel may not hear it), everything instead, now and then: whichever of these it hears first is enough."""
        recorder = self._trace.recorder
        if recorder is None or self.outgrown:
            return
        self._renew_code()
        if not self._greeted:
            if time.monotonic() >= self._next_whole:
                self.tell_everything()
                self._next_whole = time.monotonic() + WHOLE_EVERY
            return
        with self._driver.lock:
            begin = self._encoder.next
            first_token = begin.tokens + self._base["tokens"]
            first_stage, first_step = begin.stages + self._base["stages"], begin.steps + self._base["steps"]
            fresh = recorder.snapshot(first_token, first_stage, first_step, owned_only=True)
            before = self._encoder.seq - 1
            self._tell(self._encoder.news(fresh, self._driver.running), after=before)

    def settle(self) -> None:
        """Put everything into the `chunk` trait, which a saved notebook keeps."""
        if self.outgrown:
            return
        self._renew_code()
        with self._driver.lock:
            self._settled = self._state()
            self.chunk = self._encoder.everything(self._trace.recording, self._driver.running)
        self.renew_stills()

    def refresh(self) -> None:
        """Settle again if something was recorded since; while a driver writes, it tells by itself."""
        if not self._driver.running and self._settled != self._state():
            self.settle()

    def show_still(self, kind: str) -> None:
        """Put a still picture into the output of the cell that runs; it changes whenever the model settles."""
        self._stills.show(kind, self.still(kind), repr(self._trace))

    def renew_stills(self) -> None:
        """Bring the still pictures in the notebook's outputs up to date."""
        self._stills.refresh(self.still, repr(self._trace))

    def bundle_of(self, kind: str) -> str:
        """Which bundle has the pictures of a kind of view of this trace."""
        with self._driver.lock:
            return bundle_of(kind, self._trace.recording)

    def shows(self, view: View) -> None:
        """Remember a view, whose code may have to change when the trace becomes an engine's run."""
        self._views.add(view)

    def _renew_code(self) -> None:
        """Views of everything that were made before the engine's first step get the engine's pictures."""
        recorder = self._trace.recorder
        if recorder is None or not recorder.counts["steps"]:
            return
        for view in [view for view in self._views if view.kind == "all"]:
            if view.rt is not Runtime.shared("engine"):
                view.rt = Runtime.shared("engine")

    def still(self, kind: str) -> str:
        """The still picture of what is known now."""
        with self._driver.lock:
            return picture(self._trace.recording, kind)

    def _state(self) -> object:
        recorder = self._trace.recorder
        return recorder and (recorder.counts, [(run.status, run.finish) for run in recorder.runs])

    def _tell(self, chunk: bytes, **facts: int) -> None:
        self.send({"type": "chunk", "seq": self._encoder.seq - 1, **facts}, buffers=[chunk])


class View(anywidget.AnyWidget):
    """One picture of a trace.

    Args:
        model: the trace's model.
        kind: "all", "ribbon", "pipeline", "timeline"; of an engine's run also "engine", "batching", "blocks".

    Raises:
        ArgumentError: no such kind.
    """

    _esm = traitlets.Unicode(VIEW_MODULE).tag(sync=True)
    rt = anywidget.WidgetTrait().tag(sync=True)
    trace = anywidget.WidgetTrait().tag(sync=True)
    kind = traitlets.Unicode("all").tag(sync=True)

    def __init__(self, model: TraceModel, kind: str = "all") -> None:
        if kind not in KINDS:
            raise ArgumentError(f"kind={kind!r}: there is no such view; allowed are {', '.join(KINDS)}")
        self._still: Callable[[], str] = lambda: model.still(kind)
        self._show_still: Callable[[], None] = lambda: model.show_still(kind)
        super().__init__(rt=Runtime.shared(model.bundle_of(kind)), trace=model, kind=kind, layout=model.layout)
        model.shows(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is not None:
            bundle[0]["text/html"] = self._still()
        return bundle

    def _ipython_display_(self, text: str = "") -> None:
        """Show it. In a notebook, the still picture is an output of its own, which can change without the live one
        being drawn again."""
        bundle = super()._repr_mimebundle_()
        if bundle is None or not in_notebook():
            print(text or repr(self))
            return
        publish(bundle[0] | {"text/plain": ""}, bundle[1])  # the words are beside the still picture
        self._show_still()

    def __repr__(self) -> str:
        return f"<genai_lab view: {self.kind}>"
