/**
 * The stage timeline: where the time of a run went, from the whole run down to the choosing of one token.
 *
 * Paints what timeline_layout.ts says on a canvas; keys, wheel and pointer move the visible range.
 */
import { choice, makeCard } from "./card";
import { flag, h, refill, say } from "./dom";
import { count, median, percent, time } from "./format";
import type { Run } from "./store";
import {
  type Box,
  type Fill,
  HEIGHT,
  LANES,
  type Layout,
  LEFT,
  layOut,
  type Phases,
  type Range,
} from "./timeline_layout";
import { type Kind, type RunTimes, shareOf, stageWords, type TokenTime, timesOf } from "./times";
import { brief, originWords, placeInAnswer } from "./tokens";
import type { MakeView } from "./view";

type Mode = "run" | "first" | "token" | "choose" | "";

const MODES = [
  ["run", "Whole run"],
  ["first", "First token"],
  ["token", "This token"],
  ["choose", "Choosing it"],
] as const;
const TONES = [
  "surface",
  "sunken",
  "line",
  "edge",
  "ink",
  "ink-2",
  "ink-3",
  "mark",
  "p0",
  "p1",
  "s-run",
  "s-prep",
  "s-choose",
  "s-out",
  "on-run",
] as const;
type Tones = Record<(typeof TONES)[number], string>;
const FILLS: Record<Kind, keyof Tones> = {
  run: "s-run",
  prep: "s-prep",
  choose: "s-choose",
  out: "s-out",
  recorder: "s-out",
};
const OVERVIEW = 16;
const LEAST_MS = 0.05;

function phasesOf(run: Run): Phases {
  const { prompt_tokens, cached_tokens, parent, forced } = run.info;
  const later = ["decode: one token at a time", "decode"];
  if (parent !== null && forced !== null) {
    const long = "the token you chose goes in; everything before it was kept in the cache";
    return { first: [long, "your token goes in", "your token", "yours"], later, flag: null };
  }
  const fresh = prompt_tokens - cached_tokens;
  const all =
    cached_tokens > 0
      ? `prefill: reads ${count(fresh)} new tokens, ${count(cached_tokens)} were in the cache`
      : `prefill: reads all ${count(prompt_tokens)} prompt tokens at once`;
  return { first: [all, "prefill: reads the prompt", "prefill"], later, flag: "first token after" };
}

/** A canvas sized for the screen's pixels, cleared. Null while it is not on screen. */
function surface(canvas: HTMLCanvasElement, height: number): [CanvasRenderingContext2D, number] | null {
  const width = canvas.clientWidth;
  const g = canvas.getContext("2d");
  if (!width || !g) return null;
  const dpr = devicePixelRatio || 1;
  const [w, hh] = [Math.round(width * dpr), Math.round(height * dpr)];
  if (canvas.width !== w || canvas.height !== hh) Object.assign(canvas, { width: w, height: hh });
  g.setTransform(dpr, 0, 0, dpr, 0, 0);
  g.clearRect(0, 0, width, height);
  return [g, width];
}

function hatch(g: CanvasRenderingContext2D, { x, y, w, h }: Pick<Box, "x" | "y" | "w" | "h">, colour: string): void {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  for (let i = -h; i < w + h; i += 5) {
    g.moveTo(x + i, y + h);
    g.lineTo(x + i + h, y);
  }
  g.stroke();
  g.restore();
}

const mix = (a: string, b: string, t: number): string => `color-mix(in srgb, ${b} ${Math.round(t * 100)}%, ${a})`;

export const makeTimeline: MakeView = ({ store, root }) => {
  let mode: Mode = "run";
  let view: Range = { from: 0, to: 1 };
  let times: RunTimes | null = null;
  let timesKey = "";
  let layout: Layout | null = null;
  let hover: Box | null = null;
  let tones: Tones | null = null;
  let fontFamily = "sans-serif";
  let lastPick = "";

  const card = makeCard(() => {
    const groups = new Map<string, number[]>();
    const add = (key: string, ms: number) => groups.set(key, [...(groups.get(key) ?? []), ms]);
    for (const s of times?.before ?? []) add(`before: ${stageWords(s.name)[0]}`, s.to - s.from);
    for (const t of times?.tokens ?? [])
      for (const s of t.stages) add(`${t.index ? "decode" : "first token"}: ${stageWords(s.name)[0]}`, s.to - s.from);
    return {
      head: ["stage", "times", "median", "total"],
      numeric: [false, true, true, true],
      rows: [...groups].map(([k, v]) => [k, v.length, time(median(v)), time(v.reduce((a, b) => a + b, 0))]),
    };
  });
  card.title(
    "Where does the time go?",
    "First the whole prompt is read, then tokens come one by one. Zoom in to see the stages inside one token.",
  );
  const [modes, showMode] = choice("Zoom", MODES, (m) => setMode(m));
  const zoomIn = h(
    "button",
    { class: "gl-btn", type: "button", "aria-label": "Zoom in", onclick: () => zoom(0.5) },
    "+",
  );
  const zoomOut = h(
    "button",
    { class: "gl-btn", type: "button", "aria-label": "Zoom out", onclick: () => zoom(2) },
    "−",
  );
  modes.append(zoomIn, zoomOut);
  const hint = h("span", { class: "gl-hint" }, "drag to pan, Ctrl and wheel to zoom");
  const tools = h("div", { class: "gl-tools" }, modes, hint);
  const overview = h("canvas", { class: "gl-overview", "aria-hidden": true, style: `height:${OVERVIEW}px` });
  const canvas = h("canvas", {
    tabindex: 0,
    role: "application",
    style: `height:${HEIGHT}px`,
    "aria-label":
      "Timeline of the stages. Left and right move by token, W and S zoom, A and D pan, F shows this token, 0 the whole run",
  });
  const read = h("div", { class: "gl-read", "aria-live": "polite" });
  const empty = h("div", { class: "gl-empty" });
  card.body.append(tools, overview, canvas, read, empty);

  // ---------------------------------------------------------------- the visible range

  const ranges: Record<Exclude<Mode, "">, () => Range | null> = {
    run: () => times && { from: times.from, to: times.to },
    first: () => {
      const t = times?.tokens[0];
      return t && times ? { from: times.from, to: times.from + (t.to - times.from) * 1.12 } : null;
    },
    token: () => {
      const t = times?.tokens[store.selected.token];
      return t ? { from: t.from - (t.to - t.from) * 0.02, to: t.to + (t.to - t.from) * 0.02 } : null;
    },
    choose: () => {
      const t = times?.tokens[store.selected.token];
      const at = t?.stages.find((s) => s.kind === "choose")?.from;
      return t && at !== undefined ? { from: at - (t.to - at) * 0.08, to: t.to + (t.to - at) * 0.08 } : null;
    },
  };

  const setRange = (from: number, to: number, next: Mode = ""): void => {
    if (!times) return;
    const span = Math.max(LEAST_MS, Math.min(times.to - times.from, to - from));
    const left = Math.max(times.from, Math.min(times.to - span, from));
    view = { from: left, to: left + span };
    mode = next;
    paint();
  };

  const setMode = (next: Exclude<Mode, "">): void => {
    const range = ranges[next]();
    if (range) setRange(range.from, range.to, next);
  };

  const zoom = (factor: number, at = (view.from + view.to) / 2): void =>
    setRange(at - (at - view.from) * factor, at + (view.to - at) * factor);

  const pan = (share: number): void => {
    const d = (view.to - view.from) * share;
    setRange(view.from + d, view.to + d);
  };

  /** A token picked elsewhere comes into view. */
  const keepInView = (): void => {
    const at = store.selected;
    const key = `${at.run}:${at.token}`;
    const t = times?.tokens[at.token];
    if (key !== lastPick && t && mode === "" && (t.to < view.from || t.from > view.to)) {
      const half = (view.to - view.from) / 2;
      view = { from: t.to - half, to: t.to + half };
    }
    lastPick = key;
  };

  // ---------------------------------------------------------------- painting

  const readTones = (): Tones => {
    const style = getComputedStyle(root);
    fontFamily = style.fontFamily;
    return Object.fromEntries(TONES.map((t) => [t, style.getPropertyValue(`--gl-${t}`).trim()])) as Tones;
  };

  const font = (g: CanvasRenderingContext2D, strong: boolean) => {
    g.font = `${strong ? 600 : 400} 11px ${fontFamily}`;
  };

  const paintOverview = (c: Tones): void => {
    const made = surface(overview, OVERVIEW);
    if (!made || !times) return;
    const [g, w] = made;
    const { from, to, tokens } = times;
    const x = (ms: number) => LEFT + ((ms - from) / (to - from || 1)) * (w - LEFT - 1);
    g.fillStyle = c.sunken;
    g.fillRect(LEFT, 2, w - LEFT, 12);
    let filled = -1;
    for (const t of tokens) {
      const right = Math.max(x(t.from) + 1, x(t.to) - 1);
      if (right <= filled + 0.5) continue;
      g.fillStyle = t.index ? c["s-choose"] : c["s-run"];
      g.fillRect(x(t.index ? t.from : from), 5, right - x(t.index ? t.from : from), 6);
      filled = right;
    }
    const a = x(view.from);
    const b = Math.max(x(view.to), a + 4);
    g.strokeStyle = c.mark;
    g.lineWidth = 1.5;
    g.beginPath();
    g.roundRect(a + 0.75, 1.75, b - a - 1.5, 12.5, 2);
    g.stroke();
    font(g, false);
    g.fillStyle = c["ink-2"];
    g.fillText("whole run", 0, 12);
  };

  const paintBox = (g: CanvasRenderingContext2D, c: Tones, box: Box): void => {
    const gap = box.w > 4 ? 1 : 0;
    const fills: Partial<Record<Fill, string>> = {
      token: mix(c.p0, c.p1, box.tint),
      picked: c.mark,
      bar: c["s-choose"],
    };
    g.fillStyle = fills[box.fill] ?? c[FILLS[box.fill as Kind]];
    g.fillRect(box.x, box.y, box.w - gap, box.h);
    const hatched = box.fill === "recorder" || (box.fill === "prep" && box.lane === "stage");
    if (hatched && box.w > 3) hatch(g, { ...box, w: box.w - gap }, c["ink-3"]);
    if (box.fill === "recorder" && box.w <= 4) {
      g.fillStyle = c.edge;
      g.fillRect(box.x, box.y, box.w, box.h);
    }
    if ((box.fill === "token" || box.fill === "recorder") && box.w > 4) {
      g.strokeStyle = c.edge;
      g.lineWidth = 1;
      g.strokeRect(box.x + 0.5, box.y + 0.5, box.w - 2, box.h - 1);
    }
  };

  const line = (g: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number, dash: number[] = []) => {
    g.setLineDash(dash);
    g.beginPath();
    g.moveTo(x0, y0);
    g.lineTo(x1, y1);
    g.stroke();
    g.setLineDash([]);
  };

  const paintMarks = (g: CanvasRenderingContext2D, c: Tones, l: Layout, w: number, base: number): void => {
    g.fillStyle = c.edge;
    g.fillRect(LEFT, base, w - LEFT, 1);
    if (l.typicalY !== null) {
      g.strokeStyle = c["ink-3"];
      g.lineWidth = 1;
      line(g, LEFT, Math.round(l.typicalY) + 0.5, w, Math.round(l.typicalY) + 0.5, [1, 3]);
    }
    g.strokeStyle = c.mark;
    if (l.firstToken !== null) {
      g.lineWidth = 1.5;
      line(g, Math.round(l.firstToken) + 0.5, 18, Math.round(l.firstToken) + 0.5, base, [4, 3]);
    }
    g.lineWidth = 2;
    if (l.picked) g.strokeRect(l.picked.x, LANES.token[0] - 1, l.picked.w, LANES.token[1] + 2);
    if (l.playhead === null) return;
    const x = Math.min(l.playhead, w - 1);
    line(g, x, LANES.token[0] - 2, x, base + 6);
    g.fillStyle = c.mark;
    g.beginPath();
    g.moveTo(x - 5, 4);
    g.lineTo(Math.min(x + 5, w), 4);
    g.lineTo(x, 13);
    g.fill();
  };

  const nameOf = (row: number): string => brief(store, store.tokens.get("token", row));
  const words = {
    text: ({ row }: TokenTime) => nameOf(row),
    tint: ({ row }: TokenTime) => store.tokens.get("prob", row),
  };

  const paint = (): void => {
    const run = store.run(store.selected.run);
    tones ??= readTones();
    showMode(mode);
    if (!times || !run) return;
    paintOverview(tones);
    const made = surface(canvas, HEIGHT);
    if (!made) return;
    const [g, w] = made;
    const c = tones;
    const measure = (text: string, strong: boolean) => {
      font(g, strong);
      return g.measureText(text).width;
    };
    const l = layOut(times, view, store.selected.token, w, measure, words, phasesOf(run));
    layout = l;
    const base = LANES.bars[0] + LANES.bars[1];
    g.save();
    g.beginPath();
    g.rect(LEFT - 1, 0, w - LEFT + 1, HEIGHT);
    g.clip();
    g.strokeStyle = c.line;
    g.lineWidth = 1;
    for (const x of l.ticks) line(g, Math.round(x) + 0.5, 18, Math.round(x) + 0.5, base + 6);
    for (const box of l.boxes) paintBox(g, c, box);
    paintMarks(g, c, l, w, base);
    g.restore();
    for (const label of l.labels) {
      font(g, label.strong);
      if (label.clear) {
        g.fillStyle = c["s-prep"];
        g.fillRect(label.x - 2, label.y - 10, label.w + 4, 14);
      }
      g.fillStyle = c[label.tone];
      g.fillText(label.text, label.x, label.y);
    }
    tell();
  };

  // ---------------------------------------------------------------- words

  const tell = (): void => {
    const at = store.selected;
    const t = times?.tokens[at.token];
    flag(read, "aria-live", store.running ? "off" : "polite");
    if (hover) {
      const place = placeInAnswer(store, { ...at, token: hover.token }) + 1;
      const row = store.rowAt({ ...at, token: hover.token });
      const what = hover.name || (row === undefined ? "" : `“${nameOf(row)}”`);
      say(read, `${what}, token ${place}: ${time(hover.ms)}`);
      return;
    }
    if (!t) {
      say(read, "");
      return;
    }
    const { total, model, choose, rest, recorder } = shareOf(t);
    const name = nameOf(t.row);
    refill(
      read,
      `Token ${placeInAnswer(store, at) + 1} `,
      h("b", {}, `“${name}”`),
      ` took ${time(total)}: ${time(model)} in the model${total > 0 ? ` (${percent(Math.min(1, model / total))})` : ""}, ${time(choose)} choosing the token, ${time(rest)} for everything else.`,
      recorder > 0 && ` Recording it took ${time(recorder)}, not counted.`,
    );
  };

  // ---------------------------------------------------------------- hands

  const pointAt = (e: MouseEvent): [number, number] => {
    const r = canvas.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  };
  const boxAt = (e: MouseEvent): Box | null => {
    const [x, y] = pointAt(e);
    const hits = layout?.boxes.filter((b) => x >= b.x - 1 && x <= b.x + Math.max(b.w, 3) && y >= b.y && y <= b.y + b.h);
    return hits?.at(-1) ?? null;
  };
  const msPerPixel = () => (view.to - view.from) / Math.max(1, canvas.clientWidth - LEFT);
  let drag: { x: number; view: Range; moved: boolean } | null = null;
  canvas.addEventListener("pointerdown", (e) => {
    drag = { x: e.clientX, view, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag) {
      hover = boxAt(e);
      return tell();
    }
    if (Math.abs(drag.x - e.clientX) > 3) drag.moved = true;
    const d = (drag.x - e.clientX) * msPerPixel();
    if (drag.moved) setRange(drag.view.from + d, drag.view.to + d);
    return undefined;
  });
  canvas.addEventListener("pointerup", (e) => {
    const hit = drag?.moved === false ? boxAt(e) : null;
    drag = null;
    if (hit) store.select(store.selected.run, hit.token);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => {
    hover = null;
    tell();
  });
  canvas.addEventListener("dblclick", () => setMode("token"));
  canvas.addEventListener(
    "wheel",
    (e) => {
      const zooms = e.ctrlKey || e.metaKey;
      if (!zooms && Math.abs(e.deltaX) <= Math.abs(e.deltaY)) return;
      e.preventDefault();
      if (zooms) zoom(e.deltaY > 0 ? 1.25 : 0.8, view.from + (pointAt(e)[0] - LEFT) * msPerPixel());
      else pan(e.deltaX / canvas.clientWidth);
    },
    { passive: false },
  );
  overview.addEventListener("pointerdown", (e) => {
    if (!times) return;
    const r = overview.getBoundingClientRect();
    const at = times.from + ((e.clientX - r.left - LEFT) / (r.width - LEFT)) * (times.to - times.from);
    const half = (view.to - view.from) / 2;
    setRange(at - half, at + half);
  });
  const move = (d: number) => store.select(store.selected.run, store.selected.token + d);
  const KEYS: Record<string, () => void> = {
    arrowright: () => move(1),
    arrowleft: () => move(-1),
    w: () => zoom(0.7),
    "+": () => zoom(0.7),
    "=": () => zoom(0.7),
    s: () => zoom(1.4),
    "-": () => zoom(1.4),
    a: () => pan(-0.2),
    d: () => pan(0.2),
    f: () => setMode("token"),
    "0": () => setMode("run"),
    home: () => move(-1e9),
    end: () => move(1e9),
  };
  canvas.addEventListener("keydown", (e) => {
    const action = e.ctrlKey || e.metaKey || e.altKey ? undefined : KEYS[e.key.toLowerCase()];
    if (!action) return;
    action();
    e.preventDefault();
    e.stopPropagation();
  });

  // ---------------------------------------------------------------- drawing

  const headline = (): [string, string] => {
    const first = times?.tokens[0];
    if (!first || !times) return ["–", "until the first token"];
    const each = Number.isFinite(times.typical) ? `, then ${time(times.typical)} each` : "";
    const info = store.run(store.selected.run)?.info;
    if (info && info.parent !== null && info.forced !== null)
      return [time(times.typical), "a token in this branch (median)"];
    return [time(first.to), `until the first token${each}`];
  };

  const draw = (change: string): void => {
    const run = store.run(store.selected.run);
    if (change === "theme") tones = null;
    const key = `${run?.info.run} ${store.tokens.rows} ${store.stages.rows}`;
    if (key !== timesKey) {
      if (`${run?.info.run}` !== timesKey.split(" ")[0]) mode = "run";
      times = run?.rows.length ? timesOf(store, run) : null;
      timesKey = key;
      hover = null;
      card.refreshTable();
    }
    for (const part of [tools, overview, canvas, read]) part.hidden = !times;
    empty.hidden = !!times;
    card.element.classList.toggle("gl-blank", !times);
    if (!times)
      say(
        empty,
        store.ready
          ? "No stage has been timed yet. The first token brings the first picture."
          : "Reading the recording …",
      );
    card.number(...headline());
    card.caption(
      "measured",
      `${originWords(store)} Wall clock of this one run; a noisy machine shows. The recorder's own work stands in a lane of its own.`,
    );
    keepInView();
    const range = mode === "" ? null : ranges[mode]();
    if (range && mode) setRange(range.from, range.to, mode);
    else paint();
  };

  return { element: card.element, draw };
};
