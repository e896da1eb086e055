/**
 * The batching timeline: which request is served in which step of the engine, and why not.
 *
 * Joins its parts: batching_lanes.ts (what happened), batching_layout.ts (where), batching_paint.ts (colour),
 * batching_words.ts (why). Picks a step and a request; the playhead is that of all pictures.
 */
import { type Event, Lanes } from "./batching_lanes";
import { clampView, type Frame, frameOf, type Hit, hitTest, type Layout, layOut, stepWidth } from "./batching_layout";
import {
  type BatchInk,
  hueOf,
  paintLines,
  paintMark,
  paintPointers,
  paintSteps,
  paintStrip,
  readBatchInk,
} from "./batching_paint";
import { answerOf, headingOf, KINDS, plural, splitRequests, stepWords } from "./batching_words";
import { makeCard } from "./card";
import { flag, h, refill, say } from "./dom";
import { letters } from "./engine_data";
import { count } from "./format";
import type { Range } from "./timeline_layout";
import { surface } from "./timeline_paint";
import { originWords } from "./tokens";
import type { MakeView } from "./view";

const KEY_WIDTH = 22;

export const makeBatching: MakeView = ({ store, root }) => {
  const lanes = new Lanes();
  /** null: the whole recording, also while it grows. */
  let zoomed: Range | null = null;
  let layout: Layout | null = null;
  let still: HTMLCanvasElement | null = null;
  let stillKey = "";
  let ink: BatchInk | null = null;
  let hover: Hit | null = null;
  let jumped: Event = "wait";
  let seenPick = "";

  const view = (): Range => zoomed ?? clampView(0, lanes.steps, lanes.steps);
  const at = () => ({ step: Math.min(store.at.step, lanes.steps - 1), lane: lanes.index(store.at.request) });
  const first = () => (lanes.steps ? store.engine.stepAt(0).step : 0);

  const card = makeCard(() => {
    const { step } = at();
    const rows = lanes.steps ? store.engine.decisions(step) : [];
    return {
      head: ["request", `in step ${rows.length ? store.engine.stepAt(step).step : "–"}`, "tokens", "why"],
      numeric: [false, false, true, false],
      rows: rows.map((d) => {
        const lane = lanes.index(d.request);
        const kind = lane === undefined ? undefined : lanes.at(lane, step)?.kind;
        return [`${letters(d.request)} (${d.request})`, kind ? headingOf(kind) : d.verdict, d.tokens, d.why];
      }),
    };
  });
  card.element.classList.add("gl-batch");
  card.title(
    "Who is served in which step?",
    "Many requests share one model. In each step, answers under way get one token; what is left of the budget reads new prompts.",
  );

  // ---------------------------------------------------------------- parts of the page

  const jump = (kind: Event, back = false): void => {
    jumped = kind;
    const { step, lane = -1 } = at();
    const found = lanes.next(kind, { step, lane }, back);
    if (found) pick(found.step, found.lane);
  };
  const keys = KINDS.map(([kind, word]) => {
    const mark = h("canvas", { class: "gl-keymark", "aria-hidden": true });
    const number = h("b");
    const button = h(
      "button",
      {
        class: "gl-btn gl-jump",
        type: "button",
        "data-kind": kind,
        title: "Go to the next one (with Shift: to the one before)",
        onclick: (e: MouseEvent) => jump(kind, e.shiftKey),
      },
      mark,
      word,
      number,
    );
    return { kind, word, mark, number, button };
  });
  const tool = (name: string, sign: string, action: () => void) =>
    h("button", { class: "gl-btn", type: "button", "aria-label": name, onclick: () => move(action) }, sign);
  const zoom = h(
    "div",
    { class: "gl-seg", role: "group", "aria-label": "Zoom" },
    tool("Whole run", "All", () => show(null)),
    tool("Zoom in", "+", () => zoomBy(0.5)),
    tool("Zoom out", "−", () => zoomBy(2)),
  );
  const legend = h(
    "div",
    { class: "gl-tools" },
    h("div", { class: "gl-keys", role: "group", "aria-label": "Go to the next" }, ...keys.map((k) => k.button)),
    zoom,
  );
  const canvas = h("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label":
      "Requests over steps. Left and right move by step, with Shift by ten, up and down by request, Home and End to the " +
      "ends; N and B go to the next and the one before of a kind; W and S zoom, A and D pan, F shows this step, 0 the whole run",
  });
  const room = h("div", {}, canvas);
  const box = h("div", { class: "gl-lanes" }, room);
  const read = h("div", { class: "gl-read", "aria-live": "polite" });
  const head = h("h3");
  const text = h("p");
  const facts = h("table");
  const why = h("div", { class: "gl-why", "aria-live": "polite" }, h("div", {}, head, text), facts);
  const empty = h("div", { class: "gl-empty" });
  card.body.append(legend, box, read, why, empty);

  // ---------------------------------------------------------------- painting

  const drawKeys = (): void => {
    if (!ink) return;
    for (const { kind, mark, button, number, word } of keys) {
      const n = lanes.events(kind).length;
      button.hidden = n === 0;
      say(number, count(n));
      flag(button, "aria-label", `Next of ${n}: ${word}`);
      const made = button.hidden ? null : surface(mark, 16);
      if (!made) continue;
      const hue = hueOf(ink, 1);
      if (kind === "hit") paintMark(made[0], ink, kind, hue, 15, 0, 0, 16);
      else if (kind === "finish") paintMark(made[0], ink, kind, hue, KEY_WIDTH / 2, 0, 0, 16);
      else if (kind === "prefill") paintMark(made[0], ink, kind, hue, 2, 0, 16, 16);
      else paintMark(made[0], ink, kind, hue, 0, 0, KEY_WIDTH, 16, kind === "wait" ? 9 : KEY_WIDTH);
    }
  };

  /** The steps are painted once and kept; a pick or the pointer only paints over them. */
  const paint = (): void => {
    if (!lanes.steps || !canvas.clientWidth) return;
    ink ??= readBatchInk(root);
    const f: Frame = frameOf(canvas.clientWidth, lanes);
    const style = { canvas: `${f.height}px`, box: `${f.height + 1}px`, room: `${f.height + f.all - f.seen}px` };
    if (canvas.style.height !== style.canvas) canvas.style.height = style.canvas;
    if (box.style.height !== style.box) box.style.height = style.box;
    if (room.style.height !== style.room) room.style.height = style.room;
    const scroll = box.scrollTop;
    const v = view();
    const made = surface(canvas, f.height);
    if (!made) return;
    const [g, width] = made;
    const key = [width, canvas.width, scroll, v.from, v.to, lanes.steps, lanes.list.length, root.dataset.theme].join();
    if (key !== stillKey || !layout || !still) {
      layout = layOut(lanes, v, f, scroll, first(), (step) => store.engine.stepAt(step).budget);
      still = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
      const s = still.getContext("2d") as CanvasRenderingContext2D;
      s.setTransform(g.getTransform());
      paintSteps(s, layout, v, lanes.list, ink);
      paintStrip(s, layout, v, lanes.steps, ink);
      stillKey = key;
    }
    const { step, lane } = at();
    paintLines(g, layout, v, lanes.list, lane ?? -1, scroll, first(), ink);
    g.drawImage(still, 0, 0, width, f.height);
    const over = hover?.step != null && hover.lane !== null ? { step: hover.step, lane: hover.lane } : null;
    paintPointers(g, layout, v, { step, lane, hover: over }, scroll, ink);
  };

  const tell = (): void => {
    const now = at();
    flag(read, "aria-live", store.running ? "off" : "polite");
    flag(why, "aria-live", store.running ? "off" : "polite");
    const step = hover?.step ?? now.step;
    const number = store.engine.stepAt(step).step;
    if (hover?.step != null && hover.lane !== null) {
      const { head, text } = answerOf(store.engine, lanes, hover.lane, step);
      refill(read, h("b", {}, head), `. ${text}`);
    } else refill(read, h("b", {}, `Step ${number}`), `: ${stepWords(store.engine, lanes, step)}`);
    say(head, "");
    why.hidden = now.lane === undefined;
    if (now.lane === undefined) return;
    const answer = answerOf(store.engine, lanes, now.lane, now.step);
    const { request } = lanes.list[now.lane];
    const other = (name: string) =>
      lanes.list.find((l) => l.request !== request && letters(l.request) === name)?.request;
    refill(head, h("span", { class: "gl-chip", style: chipStyle(request) }, letters(request)), answer.head);
    refill(
      text,
      ...splitRequests(answer.text, other).map((part) =>
        typeof part === "string"
          ? part
          : h(
              "button",
              {
                class: "gl-lnk",
                type: "button",
                title: `Why? Request ${letters(part)} in this step`,
                onclick: () => store.pick({ step: now.step, request: part }),
              },
              `request ${letters(part)}`,
            ),
      ),
    );
    refill(
      facts,
      ...answer.facts.map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", { class: "gl-n" }, value))),
    );
  };
  const chipStyle = (request: number): string => {
    const k = "ABCDEFGH"[request % 8];
    return `background:var(--gl-o${k});border-color:var(--gl-e${k});color:var(--gl-t${k})`;
  };

  // ---------------------------------------------------------------- moving

  const pick = (step: number, lane: number | undefined): void => {
    const { step: now } = at();
    const to = Math.max(0, Math.min(lanes.steps - 1, step));
    const request = lane === undefined ? store.at.request : lanes.list[lane].request;
    if (to !== now || request !== store.at.request) store.pick({ step: to, request });
  };
  const show = (range: Range | null): void => {
    zoomed = range && clampView(range.from, range.to, lanes.steps);
    if (zoomed && zoomed.to - zoomed.from >= lanes.steps) zoomed = null;
  };
  const zoomBy = (factor: number, about = at().step + 0.5): void => {
    const { from, to } = view();
    const mid = about >= from && about <= to ? about : (from + to) / 2;
    show({ from: mid - (mid - from) * factor, to: mid + (to - mid) * factor });
  };
  const pan = (share: number): void => {
    const { from, to } = view();
    show({ from: from + (to - from) * share, to: to + (to - from) * share });
  };
  const around = (step: number): void => {
    const half = zoomed ? (zoomed.to - zoomed.from) / 2 : 30;
    show({ from: step + 0.5 - half, to: step + 0.5 + half });
  };
  const move = (action: () => void): void => {
    action();
    paint();
  };
  /** A pick made elsewhere comes into sight. */
  const follow = (): void => {
    const { step, lane } = at();
    const key = `${step}:${lane}`;
    if (key === seenPick) return;
    seenPick = key;
    if (zoomed && (step < zoomed.from || step >= zoomed.to)) around(step);
    if (lane === undefined || !layout) return;
    const { row, seen } = layout.frame;
    const y = lane * row;
    if (y < box.scrollTop) box.scrollTop = y;
    else if (y + row > box.scrollTop + seen) box.scrollTop = y + row - seen;
  };

  const hitAt = (e: MouseEvent): Hit | null => {
    const r = canvas.getBoundingClientRect();
    return layout && hitTest(layout, view(), lanes, box.scrollTop, e.clientX - r.left, e.clientY - r.top);
  };
  const stepsPerPixel = () => (layout ? 1 / stepWidth(layout.frame, view()) : 0);
  let drag: "scrub" | "strip" | null = null;
  const slide = (e: MouseEvent): void => {
    if (!layout) return;
    const { left, width } = layout.frame;
    around(((e.clientX - canvas.getBoundingClientRect().left - left) / (width - left)) * lanes.steps);
  };
  canvas.addEventListener("pointerdown", (e) => {
    const hit = hitAt(e);
    if (!hit || !layout) return;
    canvas.setPointerCapture(e.pointerId);
    const y = e.clientY - canvas.getBoundingClientRect().top;
    drag = zoomed && y > layout.frame.height - 12 ? "strip" : "scrub";
    if (drag === "strip") move(() => slide(e));
    else if (hit.step !== null || hit.lane !== null) pick(hit.step ?? at().step, hit.lane ?? undefined);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (drag === "strip") move(() => slide(e));
    else if (drag) {
      const step = hitAt(e)?.step;
      if (step != null) pick(step, at().lane);
    } else {
      const hit = hitAt(e);
      if (hit?.step === hover?.step && hit?.lane === hover?.lane) return;
      hover = hit;
      paint();
      tell();
    }
  });
  const drop = () => {
    drag = null;
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", drop);
  canvas.addEventListener("pointerleave", () => {
    hover = null;
    paint();
    if (lanes.steps) tell();
  });
  canvas.addEventListener(
    "wheel",
    (e) => {
      const zooms = e.ctrlKey || e.metaKey;
      if (!zooms && Math.abs(e.deltaX) <= Math.abs(e.deltaY)) return;
      e.preventDefault();
      const x = e.clientX - canvas.getBoundingClientRect().left - (layout?.frame.left ?? 0);
      const about = view().from + x * stepsPerPixel();
      move(() => (zooms ? zoomBy(e.deltaY > 0 ? 1.25 : 0.8, about) : pan(e.deltaX / canvas.clientWidth)));
    },
    { passive: false },
  );
  box.addEventListener("scroll", paint);

  const by = (steps: number) => () => pick(at().step + steps, at().lane);
  const line = (d: number) => () =>
    pick(at().step, Math.max(0, Math.min(lanes.list.length - 1, (at().lane ?? (d > 0 ? -1 : 1)) + d)));
  const KEYS: Record<string, () => void> = {
    ArrowRight: by(1),
    ArrowLeft: by(-1),
    "shift+ArrowRight": by(10),
    "shift+ArrowLeft": by(-10),
    ArrowDown: line(1),
    ArrowUp: line(-1),
    Home: () => pick(0, at().lane),
    End: () => pick(lanes.steps - 1, at().lane),
    n: () => jump(jumped),
    b: () => jump(jumped, true),
    w: () => zoomBy(0.7),
    "+": () => zoomBy(0.7),
    s: () => zoomBy(1.4),
    "-": () => zoomBy(1.4),
    a: () => pan(-0.2),
    d: () => pan(0.2),
    f: () => around(at().step),
    "0": () => show(null),
  };
  canvas.addEventListener("keydown", (e) => {
    const action = e.ctrlKey || e.metaKey || e.altKey ? undefined : KEYS[e.shiftKey ? `shift+${e.key}` : e.key];
    if (!action) return;
    move(action);
    e.preventDefault();
    e.stopPropagation();
  });

  // ---------------------------------------------------------------- drawing

  const draw = (change: string): void => {
    if (change === "theme") ink = null;
    if (change !== "select") lanes.update(store.engine);
    if (change === "data") stillKey = "";
    const some = lanes.steps > 0;
    for (const part of [legend, box, read, why]) part.hidden = !some;
    empty.hidden = some;
    card.element.classList.toggle("gl-blank", !some);
    if (!some) {
      say(
        empty,
        store.ready
          ? "No step of an engine has been recorded. The first one brings the first picture."
          : "Reading the recording …",
      );
      card.number("–", "tokens of work in a step");
      card.caption("measured", originWords(store));
      return;
    }
    const { step } = at();
    const s = store.engine.stepAt(step);
    card.number(
      `${count(lanes.total(step))} of ${count(s.budget)}`,
      `tokens of work in step ${s.step}, for ${plural(lanes.parts[step].length, "request")}`,
    );
    card.caption(
      "measured",
      `${originWords(store)} ${plural(lanes.list.length, "request")}, ${plural(lanes.steps, "step")}; a step's budget is ` +
        `${count(s.budget)} tokens, the cache has ${count(s.blocksUsed + s.blocksCached + s.blocksFree)} blocks. ` +
        "Steps of one pixel share a column: it shows the fullest, and the rarest mark.",
    );
    follow();
    paint();
    tell();
    if (change !== "select") drawKeys();
    card.refreshTable();
  };

  return { element: card.element, draw };
};
