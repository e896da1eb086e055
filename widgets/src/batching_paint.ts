/**
 * Painting the batching timeline: takes a layout and puts it on a canvas, in the hues of the owners. The legend is drawn by
 * the same `paintMark`.
 *
 * Decides nothing about places; those come from batching_layout.ts.
 */
import type { Event, Lane } from "./batching_lanes";
import { type Box, INSET, isWide, type Layout, type Panel, stepWidth, TOP, xOf } from "./batching_layout";
import { letters } from "./engine_data";
import { oneLine } from "./format";
import { type Range, shorten } from "./timeline_layout";
import { type Ink, readInk } from "./timeline_paint";

type Brush = CanvasRenderingContext2D;

/** Fill, edge and letter colour of an owner. */
export type Hue = Record<"fill" | "edge" | "letter", string>;

export interface BatchInk extends Ink {
  owners: Hue[];
  focus: string;
}

export function readBatchInk(root: Element): BatchInk {
  const style = getComputedStyle(root);
  const colour = (name: string) => style.getPropertyValue(`--gl-${name}`).trim();
  const owners = [..."ABCDEFGH"].map((k) => ({
    fill: colour(`o${k}`),
    edge: colour(`e${k}`),
    letter: colour(`t${k}`),
  }));
  return { ...readInk(root), owners, focus: colour("focus") };
}

export const hueOf = (ink: BatchInk, request: number): Hue => ink.owners[request % ink.owners.length];

function font(g: Brush, { family }: Ink, px: number, weight = 400): void {
  g.font = `${weight} ${px}px ${family}`;
}

function rect(g: Brush, colour: string, x: number, y: number, w: number, h: number): void {
  g.fillStyle = colour;
  g.fillRect(x, y, w, h);
}

function outline(g: Brush, colour: string, x: number, y: number, w: number, h: number, dash: number[] = []): void {
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.setLineDash(dash);
  g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  g.setLineDash([]);
}

function path(g: Brush, colour: string, width: number, ...points: [number, number][]): void {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.beginPath();
  for (let i = 0; i < points.length; i += 2) {
    g.moveTo(...points[i]);
    g.lineTo(...points[i + 1]);
  }
  g.stroke();
}

/** A square with a cross around a middle: its place is lost (dashed), or it can never run. */
function cross(g: Brush, { tones }: Ink, x: number, y: number, half: number, dash: number[]): void {
  const q = half / 2;
  rect(g, tones.surface, x - half, y - half, 2 * half, 2 * half);
  outline(g, tones.mark, x - half, y - half, 2 * half, 2 * half, dash);
  path(g, tones.mark, 2, [x - q, y - q], [x + q, y + q], [x + q, y - q], [x - q, y + q]);
}

/** One kind of mark in the box (x, y, w, h); `step` is the width of one step in it. A hit ends at x, a ring stands on it. */
export function paintMark(
  g: Brush,
  ink: BatchInk,
  kind: Event,
  hue: Hue,
  x: number,
  y: number,
  w: number,
  h: number,
  step = w,
): void {
  const middle = y + h / 2;
  const { tones } = ink;
  if (kind === "wait") {
    const each = Math.max(5, step);
    for (let at = x; at < x + w; at += each)
      rect(g, tones.edge, at, middle - 0.75, Math.min(each * 0.55, x + w - at), 1.5);
  } else if (kind === "decode") {
    const low = Math.round(h / 3) + 2;
    rect(g, hue.fill, x, middle - low / 2, w, low);
    rect(g, hue.edge, x, middle - low / 2, w, 1);
    rect(g, hue.edge, x, middle + low / 2 - 1, w, 1);
    if (step > 6)
      for (let at = x + step; at < x + w - 1; at += step) rect(g, hue.edge, at - 0.5, middle - low / 2, 0.5, low);
  } else if (kind === "prefill") {
    const wide = w > 3;
    rect(g, hue.fill, x, y, w - (wide ? 0.6 : 0), h);
    if (wide) outline(g, hue.edge, x, y, w - 0.6, h);
    else for (const at of [y, y + h - 1]) rect(g, hue.edge, x, at, w, 1);
  } else if (kind === "hit") {
    rect(g, tones.surface, x - 8, y, 8, h);
    outline(g, hue.edge, x - 8, y, 9, h);
    for (let at = y + 6; at < y + h + 5; at += 4)
      path(g, hue.edge, 1, [x - 7, Math.min(at, y + h - 1)], [x, Math.max(y + 1, at - 6)]);
  } else if (kind === "finish") {
    for (const [r, width] of [
      [4, 2],
      [0.8, 1.6],
    ]) {
      g.fillStyle = tones.surface;
      g.strokeStyle = hue.edge;
      g.lineWidth = width;
      g.beginPath();
      g.arc(x, middle, r, 0, 7);
      g.fill();
      g.stroke();
    }
  } else cross(g, ink, x + w / 2, middle, h / 2, kind === "preempt" ? [2, 2] : []);
}

/** The owner's letter on its hue. */
export function paintChip(g: Brush, ink: BatchInk, request: number, x: number, y: number, w: number, h: number): void {
  const hue = hueOf(ink, request);
  g.fillStyle = hue.fill;
  g.beginPath();
  g.roundRect(x, y, w, h, 3);
  g.fill();
  g.strokeStyle = hue.edge;
  g.lineWidth = 1;
  g.stroke();
  font(g, ink, 11, 650);
  g.fillStyle = hue.letter;
  const letter = letters(request);
  g.fillText(letter, x + (w - g.measureText(letter).width) / 2, y + h / 2 + 4);
}

/** Everything that neither the pick nor the pointer changes. */
export function paintSteps(g: Brush, l: Layout, view: Range, lanes: readonly Lane[], ink: BatchInk): void {
  const { frame: f } = l;
  const [tall, step] = [f.row - 2 * INSET, stepWidth(f, view)];
  const hue = (lane: number) => hueOf(ink, lanes[lane].request);
  g.save();
  g.beginPath();
  g.rect(f.left - 9, TOP, f.width - f.left + 9, f.seen);
  g.clip();
  const late = (b: Box) => b.kind === "preempt" || b.kind === "reject";
  for (const b of [...l.boxes.filter((b) => !late(b)), ...l.boxes.filter(late)])
    paintMark(g, ink, b.kind, hue(b.lane), b.x, b.y + INSET, b.w, tall, step);
  for (const m of l.marks) paintMark(g, ink, m.kind, hue(m.lane), m.x, m.y + INSET, 0, tall);
  g.restore();
  for (const p of l.pieces) {
    rect(g, hue(p.lane).fill, p.x, p.y, p.w, p.h);
    if (p.h > 3) rect(g, hue(p.lane).edge, p.x, p.y, p.w, 1);
  }
  paintScales(g, l, ink);
}

function paintScales(g: Brush, l: Layout, ink: BatchInk): void {
  const { frame: f } = l;
  const c = ink.tones;
  const wide = isWide(f.width);
  const words = (panel: Panel, [first, second]: string[], narrow: string) => {
    rect(g, c.edge, f.left, panel.y + panel.h, f.width - f.left, 1);
    font(g, ink, 11);
    g.fillStyle = c["ink-2"];
    if (wide) {
      g.fillText(first, 0, panel.y + 12);
      g.fillText(second, 0, panel.y + 27);
    } else g.fillText(narrow, f.left, panel.y - 6);
    const most = String(panel.most);
    g.fillStyle = c["ink-3"];
    g.fillText(most, f.left - 5 - g.measureText(most).width, panel.y + 8);
    g.fillText("0", f.left - 11, panel.y + panel.h + 3);
  };
  words(
    f.work,
    ["tokens in the step,", `budget ${f.work.most} (dashed)`],
    "tokens in each step; the budget is the dashed line",
  );
  if (f.answers) {
    const larger = Math.round((f.answers.h / f.answers.most / (f.work.h / f.work.most)) * 10) / 10;
    words(
      f.answers,
      ["of these, answers,", `drawn ${larger} × as tall`],
      `of these, answers, drawn ${larger} × as tall`,
    );
  }
  g.setLineDash([4, 3]);
  l.budget.forEach(({ x, y }, i) => {
    const end = l.budget[i + 1]?.x;
    if (end !== undefined) path(g, c["ink-2"], 1, [x, Math.round(y) + 0.5], [end, Math.round(y) + 0.5]);
  });
  g.setLineDash([]);
}

/** Names, lines and ticks; the picked line is set off. */
export function paintLines(
  g: Brush,
  l: Layout,
  view: Range,
  lanes: readonly Lane[],
  picked: number,
  scroll: number,
  first: number,
  ink: BatchInk,
): void {
  const { frame: f } = l;
  const c = ink.tones;
  const wide = isWide(f.width);
  g.save();
  g.beginPath();
  g.rect(0, TOP, f.width, f.seen);
  g.clip();
  lanes.forEach(({ request, label: question }, i) => {
    const y = TOP + i * f.row - scroll;
    if (y < TOP - f.row || y > TOP + f.seen) return;
    if (i === picked) rect(g, c.sunken, 0, y, f.width, f.row);
    if (i) rect(g, c.line, f.left, y, f.width - f.left, 1);
    paintChip(g, ink, request, 2.5, y + 2.5, letters(request).length > 1 ? 24 : 18, f.row - 5);
    if (!wide) return;
    font(g, ink, 12, i === picked ? 650 : 400);
    g.fillStyle = i === picked ? c.ink : c["ink-2"];
    const label = question ? `${request} · ${oneLine(question, 60)}` : `request ${request}`;
    const room = f.left - 46;
    const measure = (t: string) => g.measureText(t).width;
    g.fillText(measure(label) <= room ? label : shorten(label, room, measure), 31, y + f.row / 2 + 4);
  });
  g.restore();
  font(g, ink, 11);
  const below = lanes.length - Math.floor((scroll + f.seen) / f.row);
  g.fillStyle = c["ink-3"];
  if (below > 0) g.fillText(wide ? `▾ ${below} more below, scroll` : `▾ ${below}`, 0, TOP + f.seen + 13);
  for (const step of l.ticks) {
    const x = Math.max(f.left, xOf(f, view, step));
    rect(g, c.edge, x, f.axis, 1, 4);
    g.fillStyle = c["ink-3"];
    const text = `step ${step + first}`;
    if (x + 4 + g.measureText(text).width < f.width) g.fillText(text, x + 3, f.axis + 14);
  }
}

export interface Pointers {
  step: number;
  lane: number | undefined;
  hover: { step: number; lane: number } | null;
}

/** The playhead, the ring around the picked cell, and a hairline around the one under the pointer. */
export function paintPointers(g: Brush, l: Layout, view: Range, at: Pointers, scroll: number, ink: BatchInk): void {
  const { frame: f } = l;
  const step = stepWidth(f, view);
  const middle = (i: number) => xOf(f, view, i + 0.5);
  const top = (lane: number) => TOP + lane * f.row - scroll;
  const shown = (lane: number) => top(lane) > TOP - f.row / 2 && top(lane) < TOP + f.seen - f.row / 2;
  const half = Math.max(step / 2, f.row / 2 - 2) + 1;
  if (at.hover && shown(at.hover.lane))
    outline(g, ink.tones.edge, middle(at.hover.step) - half, top(at.hover.lane) + 1, 2 * half, f.row - 2);
  const x = middle(at.step);
  if (x < f.left || x > f.width) return;
  const cell = at.lane !== undefined && shown(at.lane) ? top(at.lane) : null;
  const line: [number, number][] = [[x, 6]];
  if (cell !== null) line.push([x, cell + 1], [x, cell + f.row - 1]);
  line.push([x, f.axis]);
  path(g, ink.tones.mark, 1.5, ...line);
  g.fillStyle = ink.tones.mark;
  g.beginPath();
  g.moveTo(x - 5, 0);
  g.lineTo(x + 5, 0);
  g.lineTo(x, 8);
  g.fill();
  if (cell === null) return;
  g.lineWidth = 2;
  g.strokeRect(x - half, cell + 1, 2 * half, f.row - 2);
}

/** Which part of the recording is shown, under the steps. */
export function paintStrip(g: Brush, l: Layout, view: Range, steps: number, ink: BatchInk): void {
  const { left, width, height } = l.frame;
  const share = (width - left) / Math.max(1, steps);
  if (view.to - view.from >= steps) return;
  rect(g, ink.tones.line, left, height - 6, width - left, 3);
  rect(g, ink.tones.edge, left + view.from * share, height - 7, Math.max(6, (view.to - view.from) * share), 5);
}
