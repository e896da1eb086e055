/**
 * Where everything of the batching timeline goes, in CSS pixels: what is visible, what is merged, what lies under a point. Pure.
 *
 * Requests are lines, steps are columns. Below them the tokens of each step against the budget, and the answers among them
 * on a scale of their own, since one token each hardly shows beside a budget of hundreds.
 */
import { firstWhere, type Kind, type Lanes, type Part } from "./batching_lanes";
import type { Range } from "./timeline_layout";

export interface Box {
  kind: Kind;
  lane: number;
  /** The step it stands for: of several in one pixel, the most remarkable. */
  step: number;
  /** How many steps wide. */
  steps: number;
  x: number;
  y: number;
  w: number;
}

export interface Mark {
  kind: "hit" | "finish";
  lane: number;
  step: number;
  x: number;
  y: number;
}

/** A piece of a column: whose, and how tall. */
export interface Piece {
  lane: number;
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Panel {
  y: number;
  h: number;
  most: number;
}

/** The picture's measures: fixed by its width and the number of requests. */
export interface Frame {
  width: number;
  left: number;
  row: number;
  /** Height of all lines, and of the part of them that is on screen. */
  all: number;
  seen: number;
  work: Panel;
  answers: Panel | null;
  axis: number;
  height: number;
}

export interface Layout {
  frame: Frame;
  boxes: Box[];
  marks: Mark[];
  pieces: Piece[];
  budget: { x: number; y: number }[];
  ticks: number[];
}

export const TOP = 14;
export const INSET = 3;
const RIGHT = 14;
const MOST_SEEN = 400;
const WIDEST_STEP = 28;
const LEAST_STEPS = 8;
const RANK: Record<Kind, number> = { decode: 0, wait: 1, prefill: 2, reject: 3, preempt: 3 };
const MARK_GAP = 5;

export const isWide = (width: number): boolean => width > 700;

export function frameOf(width: number, lanes: Pick<Lanes, "list" | "budget" | "answers">): Frame {
  const wide = isWide(width);
  const row = lanes.list.length > 12 ? 16 : 22;
  const all = lanes.list.length * row;
  const seen = Math.min(all, Math.floor(MOST_SEEN / row) * row);
  const gap = wide ? 18 : 26;
  const work = { y: TOP + seen + gap, h: 44, most: Math.max(1, lanes.budget) };
  const bottom = work.y + work.h;
  const magnify = lanes.answers > 0 && lanes.answers * 3 <= lanes.budget;
  const answers = magnify ? { y: bottom + gap - 4, h: 32, most: lanes.answers } : null;
  const axis = answers ? answers.y + answers.h : bottom;
  return { width, left: wide ? 176 : 44, row, all, seen, work, answers, axis, height: axis + 32 };
}

/** How wide a step is; few steps do not fill the whole width. */
export const stepWidth = ({ width, left }: Frame, view: Range): number =>
  Math.min(WIDEST_STEP, (width - left - RIGHT) / Math.max(1, view.to - view.from));

export const xOf = (f: Frame, view: Range, step: number): number => f.left + (step - view.from) * stepWidth(f, view);

/** A range of at least eight steps inside [0, steps]. */
export function clampView(from: number, to: number, steps: number): Range {
  const span = Math.min(Math.max(LEAST_STEPS, to - from), Math.max(1, steps));
  const left = Math.max(0, Math.min(steps - span, from));
  return { from: left, to: left + span };
}

/** Lines that are on screen when the list is scrolled down by `scroll` pixels: [first, last). */
function linesOf(f: Frame, scroll: number, count: number): [number, number] {
  return [Math.max(0, Math.floor(scroll / f.row)), Math.min(count, Math.ceil((scroll + f.seen) / f.row))];
}

function boxesOf(lanes: Lanes, lane: number, y: number, f: Frame, view: Range): Box[] {
  const { stretches } = lanes.list[lane];
  const out: Box[] = [];
  let small: Box | undefined;
  for (let i = firstWhere(stretches, (s) => s.to > view.from); i < stretches.length; i++) {
    const s = stretches[i];
    if (s.from >= view.to) break;
    const x = xOf(f, view, Math.max(s.from, view.from));
    const w = xOf(f, view, Math.min(s.to, view.to)) - x;
    const box: Box = { kind: s.kind, lane, step: s.from, steps: s.to - s.from, x, y, w };
    if (w >= 1) {
      out.push(box);
      continue;
    }
    const pixel = Math.floor(x);
    if (small && small.x === pixel) {
      if (RANK[s.kind] > RANK[small.kind]) Object.assign(small, { kind: s.kind, step: s.from });
    } else {
      small = { ...box, steps: 1, x: pixel, w: 1 };
      out.push(small);
    }
  }
  return out;
}

function marksOf(lanes: Lanes, lane: number, y: number, f: Frame, view: Range): Mark[] {
  const out: Mark[] = [];
  const taken: Record<string, number> = {};
  const { hits, ends } = lanes.list[lane];
  for (const { kind, at } of [...hits, ...ends]) {
    if (at + 1 < view.from || at >= view.to) continue;
    const x = xOf(f, view, kind === "finish" ? at + 1 : at);
    if (x < f.left - 1 || x - (taken[kind] ?? -MARK_GAP) < MARK_GAP) continue;
    taken[kind] = x;
    out.push({ kind, lane, step: at, x, y });
  }
  return out;
}

/** One column for each step, or for several of them the fullest one when they share a pixel. */
export function columnsOf(lanes: Lanes, f: Frame, view: Range): { step: number; x: number; w: number }[] {
  const cw = stepWidth(f, view);
  const each = Math.max(1, Math.ceil(1 / cw));
  const out = [];
  for (let i = Math.floor(view.from / each) * each; i < Math.min(view.to, lanes.steps); i += each) {
    let step = i;
    for (let j = i + 1; j < Math.min(i + each, lanes.steps); j++) if (lanes.total(j) > lanes.total(step)) step = j;
    const x = Math.max(f.left, xOf(f, view, i));
    out.push({ step, x, w: Math.max(1, xOf(f, view, i + each) - x - (cw > 4 ? 0.8 : 0)) });
  }
  return out;
}

/** Parts on top of each other, from the panel's floor up; what is thinner than a pixel joins its neighbour. */
function stack(parts: readonly Part[], panel: Panel, x: number, w: number): Piece[] {
  const out: Piece[] = [];
  let sum = 0;
  let y = panel.y + panel.h;
  for (const [i, { lane, tokens }] of parts.entries()) {
    sum += tokens;
    const top = panel.y + panel.h * (1 - sum / panel.most);
    if (y - top < 1 && i < parts.length - 1) continue;
    out.push({ lane, x, y: top, w, h: y - top });
    y = top;
  }
  return out;
}

/** Round step numbers far enough apart for their labels. */
export function ticksOf(f: Frame, view: Range, first: number): number[] {
  const least = 74 / stepWidth(f, view);
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  const every = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= least) ?? 10 * power;
  const out = [];
  for (let n = Math.ceil((view.from + first) / every) * every; n - first < view.to; n += every) out.push(n - first);
  return out;
}

export function layOut(
  lanes: Lanes,
  view: Range,
  f: Frame,
  scroll: number,
  first: number,
  budgetAt: (step: number) => number,
): Layout {
  const boxes: Box[] = [];
  const marks: Mark[] = [];
  const [top, bottom] = linesOf(f, scroll, lanes.list.length);
  for (let lane = top; lane < bottom; lane++) {
    const y = TOP + lane * f.row - scroll;
    boxes.push(...boxesOf(lanes, lane, y, f, view));
    marks.push(...marksOf(lanes, lane, y, f, view));
  }
  const pieces: Piece[] = [];
  const budget: Layout["budget"] = [];
  for (const { step, x, w } of columnsOf(lanes, f, view)) {
    const parts = lanes.parts[step];
    pieces.push(...stack(parts, f.work, x, w));
    const answers = parts.filter((p) => p.answer);
    if (f.answers) pieces.push(...stack(answers, f.answers, x, w));
    const y = f.work.y + f.work.h * (1 - budgetAt(step) / f.work.most);
    if (budget.at(-1)?.y !== y) budget.push({ x, y });
  }
  budget.push({ x: xOf(f, view, Math.min(view.to, lanes.steps)), y: budget.at(-1)?.y ?? 0 });
  return { frame: f, boxes, marks, pieces, budget, ticks: ticksOf(f, view, first) };
}

export interface Hit {
  /** Null beside the steps, or below the requests. */
  step: number | null;
  lane: number | null;
}

/** What lies under a point: a mark or a merged box stands for its own step. */
export function hitTest(l: Layout, view: Range, lanes: Lanes, scroll: number, x: number, y: number): Hit {
  const { frame: f } = l;
  const inLines = y >= TOP && y < TOP + f.seen;
  const line = Math.floor((y - TOP + scroll) / f.row);
  const lane = inLines && line < lanes.list.length ? line : null;
  if (x < f.left - 9) return { lane, step: null };
  const half = (k: string) => (k === "preempt" ? 8 : 0);
  const mark = l.marks.findLast(
    (m) => m.lane === lane && (m.kind === "hit" ? x >= m.x - 9 && x < m.x : Math.abs(x - m.x) < 6),
  );
  const box = l.boxes.findLast((b) => b.lane === lane && x >= b.x - half(b.kind) && x < b.x + b.w + half(b.kind));
  const at = Math.floor(view.from + (x - f.left) / stepWidth(f, view));
  const own = box && (box.w <= 1 || box.kind === "preempt") ? box.step : undefined;
  const step = mark?.step ?? own ?? at;
  return { lane, step: step < 0 || step >= lanes.steps || (at >= view.to + 1 && !mark) ? null : step };
}
