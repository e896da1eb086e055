/**
 * Where everything of the timeline goes: boxes, labels, grid lines, in CSS pixels. Pure: the canvas only paints the result.
 *
 * Rules: a label that does not fit is cut or dropped, labels never overlap, marks narrower than a pixel are merged.
 */
import { time } from "./format";
import { choosing, type Kind, type RunTimes, type StageTime, stageWords, type TokenTime } from "./times";

export interface Range {
  from: number;
  to: number;
}

export type Fill = Kind | "token" | "bar" | "picked";

export interface Box {
  lane: keyof typeof LANES;
  x: number;
  y: number;
  w: number;
  h: number;
  fill: Fill;
  /** Index of the token it belongs to. */
  token: number;
  /** What it is (empty: the token itself) and how long it took, for the read-out. */
  name: string;
  ms: number;
  /** Share of the tint, for a token's box. */
  tint: number;
}

export interface Label {
  text: string;
  x: number;
  y: number;
  w: number;
  strong: boolean;
  tone: "ink" | "ink-2" | "ink-3" | "on-run";
  /** Whether a hatch lies under it that must be cleared. */
  clear: boolean;
}

export interface Layout {
  boxes: Box[];
  labels: Label[];
  ticks: number[];
  /** x of the end of the first token, of the selected token's end; null when outside. */
  firstToken: number | null;
  playhead: number | null;
  picked: { x: number; w: number } | null;
  typicalY: number | null;
}

/** Top and height of each lane. */
export const LANES = {
  phase: [30, 16],
  token: [52, 22],
  stage: [80, 22],
  choosing: [108, 22],
  recorder: [136, 8],
  bars: [156, 42],
} as const;
export const HEIGHT = 224;
export const LEFT = 98;
/** Where the bars stand. */
export const BASE = LANES.bars[0] + LANES.bars[1];
const TEXT_HEIGHT = 12;

export type Measure = (text: string, strong: boolean) => number;
export interface Words {
  text: (token: TokenTime) => string;
  tint: (token: TokenTime) => number;
}

interface Canvas {
  view: Range;
  width: number;
  measure: Measure;
  x: (ms: number) => number;
}

class Page {
  boxes: Box[] = [];
  labels: Label[] = [];
  private filled = new Map<string, number>();

  constructor(private c: Canvas) {}

  /** A box for [from, to]; merged into its left neighbour when both would be narrower than a pixel. */
  box(
    lane: Box["lane"],
    from: number,
    to: number,
    more: Pick<Box, "fill" | "token" | "name"> & Partial<Box>,
  ): Box | null {
    const { view, x } = this.c;
    if (to < view.from || from > view.to) return null;
    const [y, h] = LANES[lane];
    const left = x(from);
    const right = Math.max(left + 1, x(to));
    const key = `${lane}${more.fill}`;
    if (right <= (this.filled.get(key) ?? -1) + 0.99) return null;
    this.filled.set(key, right);
    const made = { lane, x: left, y, w: right - left, h, ms: to - from, tint: 0, ...more };
    this.boxes.push(made);
    return made;
  }

  /** The first of `texts` that fits into the visible part of a box; the last may be cut, if `cut` says so. */
  inside(box: Box | null, texts: string[], tone: Label["tone"], cut = false, strong = false): void {
    if (!box) return;
    const { width, measure } = this.c;
    const from = Math.max(box.x, LEFT) + 5;
    const room = Math.min(box.x + box.w, width) - from - 5;
    if (room < 8) return;
    let text = texts.find((t) => measure(t, strong) <= room) ?? "";
    if (!text && cut) text = shorten(texts[texts.length - 1], room, (t) => measure(t, strong));
    if (text) this.add(text, from, box.y + box.h / 2 + 4, tone, strong, box.fill === "prep" || box.fill === "recorder");
  }

  add(text: string, x: number, y: number, tone: Label["tone"], strong = false, clear = false): void {
    this.labels.push({ text, x, y, w: this.c.measure(text, strong), strong, tone, clear });
  }
}

export function shorten(text: string, room: number, measure: (t: string) => number): string {
  const letters = [...text];
  const cut = (n: number) => `${letters.slice(0, n).join("")}…`;
  let low = 1;
  let high = letters.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(cut(middle)) <= room) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? cut(low) : "";
}

/** A round step so that neighbouring tick labels keep clear of each other. */
export function tickStep(span: number, room: number, widest: number): number {
  const least = (span * (widest + 14)) / Math.max(1, room);
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= least) ?? 10 * power;
}

const tickText = (ms: number, step: number, relative: boolean): string => {
  const v = Math.abs(ms) < step / 2 ? 0 : ms;
  const big = step >= 1000;
  const digits = Math.max(0, -Math.floor(Math.log10(big ? step / 1000 : step) + 1e-9));
  const number = (big ? v / 1000 : v).toFixed(digits).replace("-", "−");
  return `${relative && v > 0 ? "+" : ""}${number} ${big ? "s" : "ms"}`;
};

function axis(page: Page, c: Canvas, origin: number): number[] {
  const span = c.view.to - c.view.from;
  const step = tickStep(span, c.width - LEFT, c.measure("+000.00 ms", false));
  const out: number[] = [];
  for (let k = Math.ceil((c.view.from - origin) / step - 1e-9); origin + k * step <= c.view.to; k++) {
    const x = c.x(origin + k * step);
    const text = tickText(k * step, step, origin !== 0);
    out.push(x);
    if (x + 4 + c.measure(text, false) <= c.width) page.add(text, x + 3, HEIGHT - 4, "ink-3");
  }
  return out;
}

/** Tokens that touch the range; they are in the order of time. */
export function visibleTokens(tokens: readonly TokenTime[], { from, to }: Range): TokenTime[] {
  const search = (test: (t: TokenTime) => boolean) => {
    let lo = 0;
    let hi = tokens.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (test(tokens[mid])) hi = mid;
      else lo = mid + 1;
    }
    return lo;
  };
  const first = Math.max(0, search((t) => t.to >= from) - 1);
  return tokens.slice(
    first,
    search((t) => t.from > to),
  );
}

function stageBoxes(page: Page, stages: readonly StageTime[], token: number): void {
  for (const s of stages) {
    const words = stageWords(s.name);
    const about = { fill: s.kind, token, name: words[0] };
    if (s.kind === "recorder") page.box("recorder", s.from, s.to, about);
    else if (s.kind === "choose") page.inside(page.box("choosing", s.from, s.to, about), words, "ink");
    else page.inside(page.box("stage", s.from, s.to, about), words, s.kind === "run" ? "on-run" : "ink");
  }
  for (const [from, to] of choosing(stages))
    page.inside(page.box("stage", from, to, { fill: "choose", token, name: "choosing the token" }), ["choose"], "ink");
}

function laneNames(page: Page, typical: number): void {
  for (const [name, [y, h]] of Object.entries(LANES)) if (name !== "bars") page.add(name, 0, y + h / 2 + 4, "ink-2");
  page.add("latency", 0, LANES.bars[0] + 16, "ink-2");
  if (Number.isFinite(typical)) page.add(`median ${time(typical)}`, 0, LANES.bars[0] + 31, "ink-3");
}

export interface Phases {
  /** Words before the time of the first token; null when there is no such moment. */
  flag: string | null;
  /** Reading what was there before, up to the first token that the model writes. */
  first: string[];
  later: string[];
}

export function layOut(
  times: RunTimes,
  view: Range,
  selected: number,
  width: number,
  measure: Measure,
  words: Words,
  phases: Phases,
): Layout {
  const room = width - LEFT - 1;
  const x = (ms: number) => LEFT + ((ms - view.from) / (view.to - view.from)) * room;
  const c: Canvas = { view, width, measure, x };
  const page = new Page(c);
  const { tokens, typical, prompt } = times;
  const first = tokens[prompt];
  const chosen = tokens[selected];
  laneNames(page, typical);

  // near a token, times count from it; a view that shows the run's beginning counts from there
  const near = view.from > times.from && view.to - view.from < Math.max(100, 6 * typical);
  const ticks = axis(page, c, near && chosen && selected > 0 ? chosen.from : 0);

  const read = { fill: "run", token: prompt, name: phases.first[0] } as const;
  if (first) page.inside(page.box("phase", times.from, first.to, read), phases.first, "on-run");
  const last = tokens.at(-1);
  const decode = { fill: "prep", token: Math.max(0, prompt + 1), name: phases.later[0] } as const;
  if (last && last !== first)
    page.inside(page.box("phase", first?.to ?? times.from, last.to, decode), phases.later, "ink");
  stageBoxes(page, times.before, 0);

  const most = tokens.slice(prompt + 1).reduce((m, t) => Math.max(m, t.to - t.from), 0);
  const high = (ms: number) => (most > 0 ? (ms / most) * LANES.bars[1] : 0);
  for (const token of visibleTokens(tokens, view)) {
    const about = { token: token.index, name: "" };
    const box = page.box("token", token.from, token.to, { ...about, fill: "token", tint: words.tint(token) });
    if (box && box.w > 16) page.inside(box, [words.text(token)], "ink", true, true);
    stageBoxes(page, token.stages, token.index);
    if (token.index <= prompt) continue; // reading a prompt would dwarf all others
    const h = high(token.to - token.from);
    const fill = token.index === selected ? "picked" : "bar";
    const bar = page.box("bars", token.from, token.to, { ...about, fill });
    if (bar) Object.assign(bar, { y: BASE - h, h });
  }

  const inView = (ms: number) => ms >= view.from && ms <= view.to;
  const flag = first && phases.flag && inView(first.to) ? x(first.to) : null;
  if (flag !== null && first) {
    const text = `${phases.flag} ${time(first.to)}`;
    const w = measure(text, true);
    const right = flag + 6 + w <= width;
    if (right || flag - 6 - w >= LEFT) page.add(text, right ? flag + 5 : flag - 5 - w, 26, "ink", true);
  }
  return {
    boxes: page.boxes,
    labels: page.labels,
    ticks,
    firstToken: flag,
    playhead: chosen && inView(chosen.to) ? x(chosen.to) : null,
    picked:
      chosen && chosen.to >= view.from && chosen.from <= view.to
        ? { x: x(chosen.from), w: Math.max(2, x(chosen.to) - x(chosen.from)) }
        : null,
    typicalY: Number.isFinite(typical) ? BASE - high(typical) : null,
  };
}

/** The rectangle of a label, for tests and for hit testing. */
export const labelBox = (l: Label) => ({ x: l.x, y: l.y - TEXT_HEIGHT + 2, w: l.w, h: TEXT_HEIGHT });
