/**
 * The batching timeline: which request is served in which step of the engine, and why not.
 *
 * Joins its parts: batching_lanes.ts (what happened), batching_layout.ts (where), batching_paint.ts (colour),
 * batching_words.ts (why). Picks a step and a request; the playhead is that of all pictures.
 */
import { type Event, Lanes, sumOf } from "./batching_lanes";
import { clampView, frameOf, hitTest, type Layout, layOut, type Spot } from "./batching_layout";
import { paintLines, paintMark, paintNames, paintPointers, paintSteps } from "./batching_paint";
import { answerOf, headingOf, KEY_WORDS, KINDS, PLAY_WORDS, plural, splitRequests, stepWords } from "./batching_words";
import { makeCard } from "./card";
import { flag, h, refill, say } from "./dom";
import { type EngineInk, readEngineInk } from "./engine_ink";
import { letters } from "./engine_words";
import { count } from "./format";
import { ownerMark } from "./playhead";
import type { Range } from "./timeline_layout";
import { surface } from "./timeline_paint";
import { originWords } from "./tokens";
import type { MakeView } from "./view";

const NOWHERE: Spot = { step: undefined, lane: undefined };
export const makeBatching: MakeView = ({ store, root }) => {
  const { engine } = store;
  const lanes = new Lanes();
  /** null: the whole recording, also while it grows. */
  let zoomed: Range | null = null;
  let layout: Layout | undefined;
  let still: HTMLCanvasElement | undefined;
  let stillKey = "";
  let ink: EngineInk | undefined;
  let hover = NOWHERE;
  let jumped: Event = "wait";
  let followed = "";
  let drag = false;

  const view = () => zoomed ?? clampView(0, lanes.steps, lanes.steps);
  const at = () => ({ step: Math.min(store.at.step, lanes.steps - 1), lane: lanes.index(store.at.request) });

  const card = makeCard(() => {
    const { step } = at();
    return {
      head: ["request", `in step ${engine.stepAt(step).step}`, "tokens", "why"],
      numeric: [false, false, true, false],
      rows: engine
        .decisions(step)
        .map((d) => [`${letters(d.request)} (${d.request})`, headingOf(d.verdict), d.tokens, d.why]),
    };
  });
  card.element.classList.add("gl-batch");
  card.title(
    "Who is served in which step?",
    "Many requests share one model. In each step, answers under way get one token; what is left of the budget reads new prompts.",
  );

  // ---------------------------------------------------------------- moving

  const pick = (step: number, lane: number | undefined): void => {
    const request = lanes.list[lane ?? -1]?.request ?? store.at.request;
    store.pick({ step: Math.max(0, Math.min(lanes.steps - 1, step)), request });
  };
  const jump = (kind: Event, back: boolean): void => {
    jumped = kind;
    hover = NOWHERE;
    const { step, lane = -1 } = at();
    const found = lanes.next(kind, { step, lane }, back);
    if (found) pick(found.step, found.lane);
  };
  const show = (from: number, to: number): void => {
    zoomed = to - from < lanes.steps ? clampView(from, to, lanes.steps) : null;
  };
  const zoom = (factor: number, about = at().step + 0.5): void => {
    const { from, to } = view();
    const mid = about >= from && about <= to ? about : (from + to) / 2;
    show(mid - (mid - from) * factor, mid + (to - mid) * factor);
  };
  const pan = (share: number): void => {
    const { from, to } = view();
    const d = (to - from) * share;
    if (zoomed) show(from + d, to + d);
  };
  const around = (step: number): void => {
    const half = zoomed ? (zoomed.to - zoomed.from) / 2 : 30;
    show(step + 0.5 - half, step + 0.5 + half);
  };
  const move = (action: () => void): void => {
    action();
    paint();
  };
  /** A pick made elsewhere comes into sight. */
  const follow = (): void => {
    const { step, lane } = at();
    if (followed === `${step} ${lane}`) return;
    followed = `${step} ${lane}`;
    if (zoomed && (step < zoomed.from || step >= zoomed.to)) around(step);
    if (lane === undefined || !layout) return;
    const y = lane * layout.row;
    box.scrollTop = Math.max(y + layout.row - layout.seen, Math.min(y, box.scrollTop));
  };

  const spotAt = (e: MouseEvent): Spot => {
    const r = canvas.getBoundingClientRect();
    return layout ? hitTest(layout, lanes, e.clientX - r.left, e.clientY - r.top) : NOWHERE;
  };
  const point = (spot: Spot): void => {
    if (spot.step === hover.step && spot.lane === hover.lane) return;
    hover = spot;
    paint();
    tell();
  };
  const onWheel = (e: WheelEvent): void => {
    const zooms = e.ctrlKey || e.metaKey;
    if (!layout || !(zooms || Math.abs(e.deltaX) > Math.abs(e.deltaY))) return;
    e.preventDefault();
    const { from, left, step } = layout;
    const about = from + (e.clientX - canvas.getBoundingClientRect().left - left) / step;
    move(() => (zooms ? zoom(e.deltaY > 0 ? 1.25 : 0.8, about) : pan(e.deltaX / canvas.clientWidth)));
  };

  const by = (steps: number) => () => pick(at().step + steps, at().lane);
  const line = (d: number) => () => pick(at().step, Math.max(0, Math.min(lanes.list.length - 1, (at().lane ?? 0) + d)));
  const KEYS: Record<string, () => void> = {
    ArrowRight: by(1),
    ArrowLeft: by(-1),
    "+ArrowRight": by(10),
    "+ArrowLeft": by(-10),
    ArrowDown: line(1),
    ArrowUp: line(-1),
    Home: by(-1e9),
    End: by(1e9),
    n: () => jump(jumped, false),
    b: () => jump(jumped, true),
    w: () => zoom(0.7),
    s: () => zoom(1.4),
    a: () => pan(-0.2),
    d: () => pan(0.2),
    f: () => around(at().step),
    "0": () => show(0, lanes.steps),
  };
  const onKey = (e: KeyboardEvent): void => {
    const action = e.ctrlKey || e.metaKey || e.altKey ? undefined : KEYS[`${e.shiftKey ? "+" : ""}${e.key}`];
    if (!action) return;
    hover = NOWHERE;
    move(action);
    e.preventDefault();
    e.stopPropagation();
  };

  // ---------------------------------------------------------------- parts of the page

  const keys = KINDS.map(([kind, word]) => {
    const mark = h("canvas", { "aria-hidden": true });
    const number = h("b");
    const button = h(
      "button",
      {
        class: "gl-btn gl-jump",
        type: "button",
        "data-kind": kind,
        title: "Go to the next one (with Shift: the one before)",
        onclick: (e: MouseEvent) => jump(kind, e.shiftKey),
      },
      mark,
      word,
      number,
    );
    return { kind, mark, number, button };
  });
  const tool = (name: string, sign: string, action: () => void) =>
    h("button", { class: "gl-btn", type: "button", "aria-label": name, onclick: () => move(action) }, sign);
  const tools = h(
    "div",
    { class: "gl-tools" },
    h("div", { class: "gl-runs", role: "group", "aria-label": "Go to the next" }, ...keys.map((k) => k.button)),
    h(
      "div",
      { class: "gl-seg", role: "group", "aria-label": "Zoom" },
      tool("Whole run", "All", () => show(0, lanes.steps)),
      tool("Zoom in", "+", () => zoom(0.5)),
      tool("Zoom out", "−", () => zoom(2)),
    ),
  );
  const keyWords = root.dataset.kind === "batching" ? KEY_WORDS : [...KEY_WORDS, ...PLAY_WORDS];
  const canvas = h("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label": "Requests over steps",
    "aria-description": `Keys, after a click: ${keyWords.map((k) => k.join(" ")).join("; ")}`,
    onpointerdown: (e: PointerEvent) => {
      const { step, lane } = spotAt(e);
      canvas.setPointerCapture(e.pointerId);
      drag = step !== undefined;
      if (drag || lane !== undefined) pick(step ?? at().step, lane);
    },
    onpointermove: (e: PointerEvent) => {
      const spot = spotAt(e);
      if (!drag) point(spot);
      else if (spot.step !== undefined) pick(spot.step, at().lane);
    },
    onlostpointercapture: () => {
      drag = false;
    },
    onpointerleave: () => point(NOWHERE),
    onwheel: onWheel,
    onkeydown: onKey,
  });
  const room = h("div", {}, canvas);
  const box = h("div", { class: "gl-lanes", tabindex: -1, onscroll: () => paint() }, room);
  const part = h("b");
  const hint = h(
    "div",
    { class: "gl-words gl-keys-line" },
    part,
    "Keys, after a click:",
    ...keyWords.map(([key, words]) => h("span", {}, h("b", {}, key), words)),
  );
  const read = h("div", { class: "gl-read" });
  const head = h("h3");
  const text = h("p");
  const facts = h("table");
  const why = h("div", { class: "gl-why", "aria-live": "polite" }, h("div", {}, head, text), facts);
  const empty = h("div", { class: "gl-empty" });
  card.body.append(tools, box, hint, read, why, empty);

  // ---------------------------------------------------------------- painting

  const drawKeys = (): void => {
    for (const { kind, mark, button, number } of keys) {
      const n = lanes.events(kind).length;
      button.hidden = !n;
      say(number, count(n));
      const made = n ? surface(mark, 16) : null;
      const w = { hit: 9, prefill: 16 }[kind as string] ?? 22;
      if (made && ink) paintMark(made[0], ink, kind, 1, { x: 11 - w / 2, y: 0, w, h: 16 }, kind === "wait" ? 9 : w);
    }
  };

  /** The steps are painted once and kept; a pick or the pointer only paints over them. */
  const paint = (): void => {
    if (!lanes.steps || !canvas.clientWidth) return;
    ink ??= readEngineInk(root);
    const f = frameOf(canvas.clientWidth, lanes, view(), box.scrollTop);
    canvas.style.height = `${f.height}px`;
    box.style.height = `${f.height + 1}px`;
    room.style.height = `${f.height + f.all - f.seen}px`;
    const made = surface(canvas, f.height);
    if (!made) return;
    const [g, width] = made;
    const key = [Object.values(f), canvas.width, lanes.steps, root.dataset.theme].join();
    if (key !== stillKey || !layout || !still) {
      stillKey = key;
      layout = layOut(lanes, f, (i) => engine.stepAt(i));
      still = h("canvas", { width: canvas.width, height: canvas.height });
      const s = still.getContext("2d");
      s?.setTransform(g.getTransform());
      if (s) paintSteps(s, layout, lanes.list, ink);
    }
    const now = at();
    paintLines(g, layout, lanes.list, now.lane, ink);
    g.drawImage(still, 0, 0, width, f.height);
    paintPointers(g, layout, now, hover, ink);
    paintNames(g, layout, ink);
    sayPart();
  };

  /** Steps out of sight look like steps that never were. */
  const sayPart = (): void => {
    const { from, to } = view();
    const [first, end] = [Math.floor(from), Math.min(lanes.steps, Math.ceil(to))];
    const number = (i: number) => count(engine.stepAt(i).step);
    say(
      part,
      `Steps ${number(first)} to ${number(end - 1)} are shown, ${count(end - first)} of ${count(lanes.steps)}; 0 shows all.`,
    );
    part.hidden = !zoomed;
  };

  /** A request in the text is a question that can be asked. */
  const asked = (request: number): HTMLElement =>
    h(
      "button",
      { class: "gl-lnk", type: "button", title: "Why? In the same step", onclick: () => store.pick({ request }) },
      `request ${letters(request)}`,
    );
  const tell = (): void => {
    const { step, lane } = at();
    const over = { step: hover.step ?? step, lane: hover.lane ?? -1 };
    if (hover.step !== undefined && hover.lane !== undefined) {
      const answer = answerOf(engine, lanes, over);
      refill(read, h("b", {}, answer.head), `. ${answer.text}`);
    } else
      refill(read, h("b", {}, `Step ${engine.stepAt(over.step).step}`), `: ${stepWords(engine, lanes, over.step)}`);
    why.hidden = lane === undefined;
    if (lane === undefined) return;
    flag(why, "aria-live", store.running ? "off" : "polite");
    const answer = answerOf(engine, lanes, { step, lane });
    const { request } = lanes.list[lane];
    const other = (name: string) =>
      lanes.list.find((l) => l.request !== request && letters(l.request) === name)?.request;
    refill(head, ownerMark(request), answer.head);
    refill(text, ...splitRequests(answer.text, other).map((part) => (typeof part === "string" ? part : asked(part))));
    refill(facts, ...answer.facts.map(([name, n]) => h("tr", {}, h("td", {}, name), h("td", { class: "gl-n" }, n))));
  };

  // ---------------------------------------------------------------- drawing

  const draw = (change: string): void => {
    if (change === "theme") ink = undefined;
    if (change !== "select" || !lanes.steps) lanes.update(engine);
    if (change === "data") stillKey = "";
    const some = lanes.steps > 0;
    for (const shown of [tools, box, hint, read, why]) shown.hidden = !some;
    empty.hidden = some;
    card.element.classList.toggle("gl-blank", !some);
    let about = originWords(store);
    if (some) {
      const { step } = at();
      const s = engine.stepAt(step);
      card.number(
        `${count(sumOf(lanes.parts[step]))} of ${count(s.budget)}`,
        `tokens of work in step ${s.step}, for ${plural(lanes.parts[step].length, "request")}`,
      );
      about += ` ${plural(lanes.list.length, "request")}, ${plural(lanes.steps, "step")}.`;
      follow();
      paint();
      tell();
      if (change !== "select") drawKeys();
      if (layout && layout.step < 1) about += " Steps that share a pixel show the fullest of them.";
      card.refreshTable();
    } else {
      say(empty, store.ready ? "No step of an engine was recorded. The first brings the first picture." : "Reading …");
      card.number("–", "tokens of work in a step");
    }
    card.caption("measured", about);
  };

  return { element: card.element, draw };
};
