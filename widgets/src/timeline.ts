/**
 * The stage timeline: where the time of a run went, from the whole run down to the choosing of one token.
 *
 * Joins its parts: times.ts (when), visible.ts (which part), timeline_layout.ts (where on the page), timeline_paint.ts
 * (colour). Keys, wheel and pointer move the visible part; a click picks a token.
 */
import { choice, makeCard } from "./card";
import { flag, h, refill, say } from "./dom";
import { count, median, oneLine, percent, time } from "./format";
import type { Run } from "./store";
import { type Box, HEIGHT, type Layout, LEFT, layOut, type Phases } from "./timeline_layout";
import {
  type Ink,
  LEGEND,
  measureWith,
  OVERVIEW_HEIGHT,
  paintKey,
  paintLayout,
  paintOverview,
  readInk,
  surface,
} from "./timeline_paint";
import { type RunTimes, shareOf, stageWords, type TokenTime, timesOf } from "./times";
import { byHand, firstTokenMs, LATENCY_WORDS, nameAt, originWords, placeInAnswer, runName, shortAt } from "./tokens";
import type { MakeView } from "./view";
import { type Preset, Visible } from "./visible";

const PRESETS: readonly (readonly [Preset, string])[] = [
  ["run", "Whole run"],
  ["first", "First token"],
  ["token", "This token"],
  ["choose", "Choosing it"],
];

function phasesOf(run: Run): Phases {
  const { prompt_tokens, cached_tokens, parent, forced } = run.info;
  const later = ["decode: one token at a time", "decode"];
  const many = (n: number) => `${count(n)} ${n === 1 ? "token" : "tokens"}`;
  const kept = cached_tokens > 0 ? `; ${many(cached_tokens)} before it kept in the cache` : "";
  if (parent !== null && forced !== null) {
    const again = prompt_tokens - cached_tokens;
    const what = again > 0 ? `reads your token and ${count(again)} before it` : "reads your token";
    return { first: [`${what}${kept}`, what, "your token", "yours"], later, flag: null };
  }
  const fresh = prompt_tokens - cached_tokens;
  const all =
    cached_tokens > 0
      ? `prefill: reads ${many(fresh)} of the prompt${kept}`
      : `prefill: reads all ${count(prompt_tokens)} prompt tokens at once`;
  return { first: [all, "prefill: reads the prompt", "prefill"], later, flag: "first token after" };
}

/** Times, medians and totals of every stage, for the table. */
function stageSheet(times: RunTimes | null) {
  const groups = new Map<string, number[]>();
  const add = (key: string, ms: number) => groups.set(key, [...(groups.get(key) ?? []), ms]);
  for (const s of times?.before ?? []) add(`before: ${stageWords(s.name)[0]}`, s.to - s.from);
  for (const t of times?.tokens ?? [])
    for (const s of t.stages)
      add(`${t.index > (times?.prompt ?? 0) ? "decode" : "first token"}: ${stageWords(s.name)[0]}`, s.to - s.from);
  return {
    head: ["stage", "times", "median", "total"],
    numeric: [false, true, true, true],
    rows: [...groups].map(([k, v]) => [k, v.length, time(median(v)), time(v.reduce((a, b) => a + b, 0))]),
  };
}

export const makeTimeline: MakeView = ({ store, root }) => {
  const visible = new Visible();
  let times: RunTimes | null = null;
  let timesKey = "";
  let layout: Layout | null = null;
  let hover: Box | null = null;
  let ink: Ink | null = null;

  const card = makeCard(() => stageSheet(times));
  card.title(
    "Where does the time go?",
    "First the whole prompt is read (prefill), then tokens come one by one (decode). Zoom in to see the stages inside one token.",
  );
  const [presets, showPreset] = choice("Zoom", PRESETS, (preset) => move(() => visible.follow(preset)));
  const zoomIn = h(
    "button",
    { class: "gl-btn", type: "button", "aria-label": "Zoom in", onclick: () => move(() => visible.zoom(0.5)) },
    "+",
  );
  const zoomOut = h(
    "button",
    { class: "gl-btn", type: "button", "aria-label": "Zoom out", onclick: () => move(() => visible.zoom(2)) },
    "−",
  );
  presets.append(zoomIn, zoomOut);
  const hint = h("span", { class: "gl-hint" }, "drag to pan, Ctrl and wheel to zoom");
  const tools = h("div", { class: "gl-tools" }, presets, hint);
  const overview = h("canvas", { class: "gl-overview", "aria-hidden": true, style: `height:${OVERVIEW_HEIGHT}px` });
  const canvas = h("canvas", {
    tabindex: 0,
    role: "application",
    style: `height:${HEIGHT}px`,
    "aria-label":
      "Timeline of the stages. Left and right move by token, W and S zoom, A and D pan, F shows this token, 0 the whole run",
  });
  const read = h("div", { class: "gl-read", "aria-live": "polite" });
  const keys = LEGEND.map((key) => [key, h("canvas", { class: "gl-key", "aria-hidden": true })] as const);
  const legend = h(
    "div",
    { class: "gl-words gl-keys-line" },
    ...keys.map(([{ words }, swatch]) => h("span", {}, swatch, words)),
  );
  const empty = h("div", { class: "gl-empty" });
  card.body.append(tools, overview, canvas, read, legend, empty);

  // ---------------------------------------------------------------- painting

  const nameOf = (token: number): string => oneLine(nameAt(store, { ...store.selected, token }), 32);
  const words = {
    text: ({ index }: TokenTime) => oneLine(shortAt(store, { ...store.selected, token: index }), 32),
    tint: ({ row }: TokenTime) => store.tokens.get("prob", row),
  };

  const paint = (): void => {
    const run = store.run(store.selected.run);
    showPreset(visible.preset ?? "");
    if (!times || !run) return;
    ink ??= readInk(root);
    paintOverview(overview, times, visible.range, ink);
    for (const [{ fill }, swatch] of keys) paintKey(swatch, fill, ink);
    const made = surface(canvas, HEIGHT);
    if (!made) return;
    const [g, w] = made;
    layout = layOut(times, visible.range, store.selected.token, w, measureWith(g, ink), words, phasesOf(run));
    paintLayout(g, w, layout, ink);
    tell();
  };

  const move = (action: () => void): void => {
    action();
    paint();
  };

  const tell = (): void => {
    const at = store.selected;
    const t = times?.tokens[at.token];
    flag(read, "aria-live", store.running ? "off" : "polite");
    if (hover) {
      const place = placeInAnswer(store, { ...at, token: hover.token }) + 1;
      say(read, `${hover.name || `“${nameOf(hover.token)}”`}, token ${place}: ${time(hover.ms)}`);
      return;
    }
    if (!t) {
      say(read, "");
      return;
    }
    const { total, model, choose, rest, recorder } = shareOf(t);
    const name = nameOf(at.token);
    if (byHand(store, t.row)) {
      refill(
        read,
        `Token ${placeInAnswer(store, at) + 1} `,
        h("b", {}, `“${name}”`),
        " was put here by hand: nothing was computed to choose it. The token after it waited for it to be read.",
      );
      return;
    }
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
  const msPerPixel = () => (visible.range.to - visible.range.from) / Math.max(1, canvas.clientWidth - LEFT);
  const point = (box: Box | null) => {
    hover = box;
    tell();
  };

  let drag: { x: number; from: number; to: number; moved: boolean } | null = null;
  canvas.addEventListener("pointerdown", (e) => {
    drag = { x: e.clientX, ...visible.range, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag) {
      point(boxAt(e));
      return;
    }
    const { x, from, to } = drag;
    const d = (x - e.clientX) * msPerPixel();
    drag.moved ||= Math.abs(x - e.clientX) > 3;
    if (drag.moved) move(() => visible.show(from + d, to + d));
  });
  canvas.addEventListener("pointerup", (e) => {
    const hit = drag?.moved === false ? boxAt(e) : null;
    drag = null;
    if (hit) store.select(store.selected.run, hit.token);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("dblclick", () => move(() => visible.follow("token")));
  const onWheel = (e: WheelEvent) => {
    const zooms = e.ctrlKey || e.metaKey;
    if (!zooms && Math.abs(e.deltaX) <= Math.abs(e.deltaY)) return;
    e.preventDefault();
    const at = visible.range.from + (pointAt(e)[0] - LEFT) * msPerPixel();
    move(() => (zooms ? visible.zoom(e.deltaY > 0 ? 1.25 : 0.8, at) : visible.pan(e.deltaX / canvas.clientWidth)));
  };
  canvas.addEventListener("wheel", onWheel, { passive: false });
  overview.addEventListener("pointerdown", (e) => {
    if (!times) return;
    const r = overview.getBoundingClientRect();
    const at = times.from + ((e.clientX - r.left - LEFT) / (r.width - LEFT)) * (times.to - times.from);
    const half = (visible.range.to - visible.range.from) / 2;
    move(() => visible.show(at - half, at + half));
  });
  const pick = (d: number) => store.select(store.selected.run, store.selected.token + d);
  const KEYS: Record<string, () => void> = {
    arrowright: () => pick(1),
    arrowleft: () => pick(-1),
    home: () => pick(-1e9),
    end: () => pick(1e9),
    w: () => visible.zoom(0.7),
    "+": () => visible.zoom(0.7),
    "=": () => visible.zoom(0.7),
    s: () => visible.zoom(1.4),
    "-": () => visible.zoom(1.4),
    a: () => visible.pan(-0.2),
    d: () => visible.pan(0.2),
    f: () => visible.follow("token"),
    "0": () => visible.follow("run"),
  };
  canvas.addEventListener("keydown", (e) => {
    const action = e.ctrlKey || e.metaKey || e.altKey ? undefined : KEYS[e.key.toLowerCase()];
    if (!action) return;
    move(action);
    e.preventDefault();
    e.stopPropagation();
  });

  // ---------------------------------------------------------------- drawing

  const headline = (): [string, string] => {
    const run = store.run(store.selected.run);
    if (!run || !times) return ["–", "until the first token"];
    const each = Number.isFinite(times.typical) ? `, then ${time(times.typical)} each (median)` : "";
    if (times.prompt !== 0) return [time(times.typical), `for a typical token of ${runName(store, run)} (median)`];
    return [time(firstTokenMs(store, run)), `from question to first token${each}`];
  };

  const draw = (change: string): void => {
    const run = store.run(store.selected.run);
    if (change === "theme") ink = null;
    const key = `${run?.info.run} ${store.tokens.rows} ${store.stages.rows}`;
    if (key !== timesKey) {
      if (`${run?.info.run}` !== timesKey.split(" ")[0]) visible.preset = "run";
      times = run?.rows.length ? timesOf(store, run) : null;
      timesKey = key;
      hover = null;
      card.refreshTable();
    }
    for (const part of [tools, overview, canvas, read, legend]) part.hidden = !times;
    empty.hidden = !!times;
    card.element.classList.toggle("gl-blank", !times);
    const waiting = store.ready
      ? "No stage has been timed yet. The first token brings the first picture."
      : "Reading the recording …";
    say(empty, times ? "" : waiting);
    card.number(...headline());
    card.caption(
      "measured",
      `${originWords(store)} Wall clock of this one run; a noisy machine shows. ${LATENCY_WORDS} The recorder's own work comes after it and stands in a lane of its own.`,
    );
    if (times) visible.update(times, store.selected.token);
    paint();
  };

  return { element: card.element, draw };
};
