/**
 * Where everything of the batching timeline goes, in CSS pixels: what is visible, what is merged, what lies under a point. Pure.
 *
 * Requests are lines, steps are columns. Below them the tokens of each step against the budget, and the answers among them
 * on a scale of their own, since one token each hardly shows beside a budget of hundreds.
 */
import { type Cell, type Event, firstWhere, type Lanes, type Part, type Stretch, sumOf } from "./batching_lanes";
import { type Range, tickStep } from "./timeline_layout";

export interface Box {
  kind: Event;
  lane: number;
  /** The step it stands for: of several in one pixel, the most remarkable. */
  step: number;
  /** Its width is that of a sign, or of a pixel that several steps share: it stands for its own step only. */
  single: boolean;
  x: number;
  y: number;
  w: number;
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

/** The picture's measures. */
export interface Frame extends Range {
  wide: boolean;
  width: number;
  left: number;
  /** Height of a line, of all lines, and of the part of them that is on screen; how far they are scrolled. */
  row: number;
  all: number;
  seen: number;
  scroll: number;
  work: Panel;
  answers: Panel | null;
  axis: number;
  height: number;
  /** Width of a step. */
  step: number;
}

export interface Layout extends Frame {
  boxes: Box[];
  pieces: Piece[];
  /** The budget as a line. */
  budget: [number, number][];
  ticks: { x: number; text: string }[];
}

export const TOP = 14;
const MOST_SEEN = 400;
const WIDEST_STEP = 28;
const LEAST_STEPS = 8;
/** Which of several marks in one pixel is shown. */
const RANK = ["decode", "wait", "prefill"];
/** Signs of a fixed width, and where they begin: in the middle of their step, before it, at its end. */
const SIGNS: Partial<Record<Event, (x: number, step: number) => [number, number]>> = {
  preempt: (x, step) => [x + step / 2 - 8, 16],
  reject: (x, step) => [x + step / 2 - 8, 16],
  hit: (x) => [x - 8, 9],
  finish: (x, step) => [x + step - 5, 10],
};

/** A range of at least eight steps inside [0, steps]. */
export function clampView(from: number, to: number, steps: number): Range {
  const span = Math.min(Math.max(LEAST_STEPS, to - from), Math.max(1, steps));
  const left = Math.max(0, Math.min(steps - span, from));
  return { from: left, to: left + span };
}

export function frameOf(width: number, lanes: Lanes, { from, to }: Range, scroll: number): Frame {
  const wide = width > 700;
  const n = lanes.list.length;
  const row = n > 12 ? 16 : 22;
  const seen = Math.min(n * row, Math.floor(MOST_SEEN / row) * row);
  const gap = wide ? 18 : 26;
  const work = { y: TOP + seen + gap, h: 44, most: lanes.budget };
  let axis = work.y + work.h;
  const magnify = lanes.answers > 0 && lanes.answers * 3 <= lanes.budget;
  const answers = magnify ? { y: axis + gap - 4, h: 32, most: lanes.answers } : null;
  if (answers) axis = answers.y + answers.h;
  const left = wide ? 196 : 44;
  // few steps do not fill the whole width
  const step = Math.min(WIDEST_STEP, (width - left - 14) / (to - from));
  return { from, to, wide, width, left, row, all: n * row, seen, scroll, work, answers, axis, height: axis + 20, step };
}

export const xOf = (f: Frame, step: number): number => f.left + (step - f.from) * f.step;
export const yOf = (f: Frame, lane: number): number => TOP + lane * f.row - f.scroll;

function boxesOf(f: Frame, lane: number, stretches: readonly Stretch[]): Box[] {
  const out: Box[] = [];
  const y = yOf(f, lane);
  for (let i = firstWhere(stretches, (s) => s.to > f.from); i < stretches.length; i++) {
    const { kind, from, to } = stretches[i];
    if (from >= f.to) break;
    const x = xOf(f, Math.max(from, f.from));
    const w = xOf(f, Math.min(to, f.to)) - x;
    const sign = SIGNS[kind]?.(x, w);
    const last = out.at(-1);
    const near = sign ? last?.kind === kind && sign[0] < last.x + 5 : w < 1 && last?.single && x < last.x + 1;
    if (near && last) {
      if (!sign && RANK.indexOf(kind) > RANK.indexOf(last.kind)) Object.assign(last, { kind, step: from });
    } else {
      const [left, wide] = sign ?? [w < 1 ? Math.floor(x) : x, Math.max(1, w)];
      out.push({ kind, lane, step: from, single: !!sign || w < 1, x: left, y, w: wide });
    }
  }
  return out;
}

/** One column for each step, or for several of them the fullest one when they share a pixel. */
function columnsOf(lanes: Lanes, f: Frame): { i: number; x: number; w: number }[] {
  const each = Math.max(1, Math.ceil(1 / f.step));
  const out = [];
  for (let from = Math.floor(f.from / each) * each; from < Math.min(f.to, lanes.steps); from += each) {
    let i = from;
    for (let j = i + 1; j < Math.min(from + each, lanes.steps); j++)
      if (sumOf(lanes.parts[j]) > sumOf(lanes.parts[i])) i = j;
    const x = Math.max(f.left, xOf(f, from));
    out.push({ i, x, w: Math.max(1, xOf(f, from + each) - x - (f.step > 4 ? 0.8 : 0)) });
  }
  return out;
}

/** Parts on top of each other, from the panel's floor up; what is thinner than a pixel joins its neighbour. */
function stack(parts: readonly Part[], panel: Panel, x: number, w: number): Piece[] {
  const out: Piece[] = [];
  let sum = 0;
  let y = panel.y + panel.h;
  parts.forEach(({ lane, tokens }, i) => {
    sum += tokens;
    const top = panel.y + panel.h * (1 - sum / panel.most);
    if (y - top < 1 && i < parts.length - 1) return;
    out.push({ lane, x, y: top, w, h: y - top });
    y = top;
  });
  return out;
}

/** @param numberOf the engine's own number of a step, and its budget. */
export function layOut(lanes: Lanes, f: Frame, numberOf: (i: number) => { step: number; budget: number }): Layout {
  const [boxes, signs, pieces, budget, ticks]: [Box[], Box[], Piece[], Layout["budget"], Layout["ticks"]] = [
    [],
    [],
    [],
    [],
    [],
  ];
  lanes.list.forEach(({ stretches, hits, ends }, lane) => {
    const y = yOf(f, lane);
    if (y <= TOP - f.row || y >= TOP + f.seen) return;
    for (const list of [hits, ends, stretches])
      for (const box of boxesOf(f, lane, list)) (SIGNS[box.kind] ? signs : boxes).push(box);
  });
  let key = "";
  let last: Piece[] = [];
  for (const { i, x, w } of columnsOf(lanes, f)) {
    const parts = lanes.parts[i];
    const now = String(parts.map((p) => [p.lane, p.tokens]));
    if (now === key && f.step <= 4) for (const piece of last) piece.w = x + w - piece.x;
    else {
      last = stack(parts, f.work, x, w);
      const answers = parts.filter((p) => p.answer);
      if (f.answers) last.push(...stack(answers, f.answers, x, w));
      pieces.push(...last);
    }
    key = now;
    const y = Math.round(f.work.y + f.work.h * (1 - numberOf(i).budget / f.work.most)) + 0.5;
    budget.push([x, y], [x + w, y]);
  }
  const first = numberOf(0).step;
  const every = Math.max(1, tickStep(f.to - f.from, f.step * (f.to - f.from), 60));
  for (let n = Math.ceil((f.from + first) / every) * every; n - first < f.to; n += every)
    ticks.push({ x: xOf(f, n - first), text: `step ${numberOf(n - first).step}` });
  return { ...f, boxes: [...boxes, ...signs], pieces, budget, ticks };
}

/** What lies under a point: a step and a request, or one of them. */
export type Spot = Record<keyof Cell, number | undefined>;

export function hitTest(l: Layout, lanes: Lanes, x: number, y: number): Spot {
  const line = Math.floor((y - yOf(l, 0)) / l.row);
  const lane = y >= TOP && y < TOP + l.seen && line < lanes.list.length ? line : undefined;
  const box = l.boxes.findLast((b) => b.lane === lane && x >= b.x && x < b.x + b.w);
  const at = Math.floor(l.from + (x - l.left) / l.step);
  if (box?.single) return { lane, step: box.step };
  return x < l.left || at >= Math.min(l.to, lanes.steps) ? { lane, step: undefined } : { lane, step: at };
}
