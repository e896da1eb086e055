/**
 * Painting the batching timeline: takes a layout and puts it on a canvas, in the hues of the owners. The legend is drawn by
 * the same `paintMark`.
 *
 * Decides nothing about places; those come from batching_layout.ts.
 */
import type { Event, Lane } from "./batching_lanes";
import { type Layout, type Panel, type Spot, TOP, xOf, yOf } from "./batching_layout";
import { type EngineInk, hueOf } from "./engine_ink";
import { letters } from "./engine_words";
import { oneLine } from "./format";
import { shorten } from "./timeline_layout";
import { type Brush, hatch, type Ink, line } from "./timeline_paint";

function font(g: Brush, { family }: Ink, px = 11, weight = 400): void {
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

/** One kind of mark in a box; `step` is the width of one step in it. */
export function paintMark(
  g: Brush,
  ink: EngineInk,
  kind: Event,
  owner: number,
  { x, y, w, h }: Record<"x" | "y" | "w" | "h", number>,
  step = w,
): void {
  const [cx, cy] = [x + w / 2, y + h / 2];
  const { tones } = ink;
  const { fill, edge } = hueOf(ink, owner);
  if (kind === "wait") {
    const each = Math.max(5, step);
    for (let at = x; at < x + w; at += each) rect(g, tones.edge, at, cy - 0.75, Math.min(each * 0.55, x + w - at), 1.5);
  } else if (kind === "decode") {
    const low = Math.round(h / 3) + 2;
    const top = cy - low / 2;
    rect(g, fill, x, top, w, low);
    for (const at of [top, top + low - 1]) rect(g, edge, x, at, w, 1);
    if (step > 6) for (let at = x + step; at < x + w - 1; at += step) rect(g, edge, at - 0.5, top, 0.5, low);
  } else if (kind === "prefill") {
    rect(g, fill, x, y, w - (w > 3 ? 0.6 : 0), h);
    if (w > 3) outline(g, edge, x, y, w - 0.6, h);
  } else if (kind === "hit") {
    rect(g, tones.surface, x, y, w, h);
    hatch(g, { x, y, w, h }, edge);
    outline(g, edge, x, y, w, h);
  } else if (kind === "finish") {
    g.fillStyle = tones.surface;
    g.strokeStyle = edge;
    for (const [r, width] of [
      [4, 2],
      [0.8, 1.6],
    ]) {
      g.lineWidth = width;
      g.beginPath();
      g.arc(cx, cy, r, 0, 7);
      g.fill();
      g.stroke();
    }
  } else {
    const [half, q] = [h / 2, h / 4];
    rect(g, tones.surface, cx - half, y, h, h);
    outline(g, tones.mark, cx - half, y, h, h, kind === "preempt" ? [2, 2] : []);
    g.lineWidth = 2;
    for (const d of [q, -q]) line(g, cx - q, cy - d, cx + q, cy + d);
  }
}

/** Marks and columns: everything that neither the pick nor the pointer changes. */
export function paintSteps(g: Brush, l: Layout, lanes: readonly Lane[], ink: EngineInk): void {
  g.save();
  g.beginPath();
  g.rect(l.left - 9, TOP, l.width, l.seen);
  g.clip();
  for (const b of l.boxes) paintMark(g, ink, b.kind, lanes[b.lane].request, { ...b, y: b.y + 3, h: l.row - 6 }, l.step);
  g.restore();
  for (const { lane, x, y, w, h } of l.pieces) {
    const { fill, edge } = hueOf(ink, lanes[lane].request);
    rect(g, fill, x, y, w, h);
    if (h > 3) rect(g, edge, x, y, w, 1);
  }
}

/** The panels below the lanes, and what they show in two parts. */
function panelsOf({ work, answers }: Layout): [Panel, string, string][] {
  const all: [Panel, string, string] = [work, "tokens in the step", "the budget dashed"];
  return answers ? [all, [answers, "the same, answers only", "on a scale of their own"]] : [all];
}

/** Names, lines, scales and ticks; the picked line is set off. */
export function paintLines(
  g: Brush,
  l: Layout,
  lanes: readonly Lane[],
  picked: number | undefined,
  ink: EngineInk,
): void {
  const c = ink.tones;
  const measure = (t: string) => g.measureText(t).width;
  const write = (text: string, x: number, y: number, colour: string) => {
    g.fillStyle = colour;
    g.fillText(text, x, y);
  };
  g.save();
  g.beginPath();
  g.rect(0, TOP, l.width, l.seen);
  g.clip();
  lanes.forEach(({ request, label }, i) => {
    const y = yOf(l, i);
    if (i === picked) rect(g, c.sunken, 0, y, l.width, l.row);
    if (i) rect(g, c.line, l.left, y, l.width, 1);
    const { fill, edge, letter } = hueOf(ink, request);
    const name = letters(request);
    const w = name.length > 1 ? 24 : 18;
    g.fillStyle = fill;
    g.strokeStyle = edge;
    g.lineWidth = 1;
    g.beginPath();
    g.roundRect(2.5, y + 2.5, w - 1, l.row - 5, 3);
    g.fill();
    g.stroke();
    font(g, ink, 11, 650);
    write(name, 2 + (w - measure(name)) / 2, y + l.row / 2 + 4, letter);
    if (!l.wide) return;
    font(g, ink, 12, i === picked ? 650 : 400);
    const text = label ? `${request} · ${oneLine(label, 60)}` : `request ${request}`;
    const room = l.left - 46;
    write(
      measure(text) > room ? shorten(text, room, measure) : text,
      31,
      y + l.row / 2 + 4,
      i === picked ? c.ink : c["ink-2"],
    );
  });
  g.restore();
  font(g, ink);
  const below = lanes.length - Math.floor((l.scroll + l.seen) / l.row);
  if (below > 0) write(l.wide ? `▾ ${below} more below, scroll` : `▾ ${below}`, 0, TOP + l.seen + 13, c["ink-3"]);
  const panel = ({ y, h, most }: Panel, first: string, second: string) => {
    rect(g, c.edge, l.left, y + h, l.width, 1);
    if (l.wide) {
      write(`${first},`, 0, y + 12, c["ink-2"]);
      write(second, 0, y + 27, c["ink-2"]);
    }
    write(String(most), l.left - 5 - measure(String(most)), y + 8, c["ink-3"]);
    write("0", l.left - 11, y + h + 3, c["ink-3"]);
  };
  for (const [place, ...words] of panelsOf(l)) panel(place, ...words);
  for (const { x, text } of l.ticks) {
    rect(g, c.edge, x, l.axis, 1, 4);
    if (x + 4 + measure(text) < l.width) write(text, x + 3, l.axis + 14, c["ink-3"]);
  }
  g.strokeStyle = c["ink-2"];
  g.lineWidth = 1;
  g.setLineDash([4, 3]);
  g.beginPath();
  for (const point of l.budget) g.lineTo(...point);
  g.stroke();
  g.setLineDash([]);
}

/** Where there is no room beside the panels, their names stand above them, in the playhead's way: it passes behind. */
export function paintNames(g: Brush, l: Layout, ink: EngineInk): void {
  if (l.wide) return;
  font(g, ink);
  for (const [{ y }, first, second] of panelsOf(l)) {
    const text = `${first}, ${second}`;
    rect(g, ink.tones.surface, l.left, y - 18, g.measureText(text).width + 4, 16);
    g.fillStyle = ink.tones["ink-2"];
    g.fillText(text, l.left, y - 6);
  }
}

/** The playhead, the ring around the picked cell, and a hairline around the one under the pointer. */
export function paintPointers(g: Brush, l: Layout, at: Spot & { step: number }, hover: Spot, ink: EngineInk): void {
  /** Around a cell, or around the sign that stands for it; nothing while its line is not on screen. */
  const around = ({ step, lane }: Spot): [number, number, number, number] | undefined => {
    const y = lane === undefined ? -1 : yOf(l, lane);
    if (step === undefined || y <= TOP - l.row / 2 || y >= TOP + l.seen - l.row / 2) return undefined;
    const sign = l.boxes.findLast((b) => b.lane === lane && b.step === step && b.w === 16);
    const half = Math.max(l.step / 2, sign ? 8 : 4) + 1;
    return [xOf(l, step + 0.5) - half, y + 1, 2 * half, l.row - 2];
  };
  const over = around(hover);
  if (over) outline(g, ink.tones.edge, ...over);
  const x = xOf(l, at.step + 0.5);
  if (x < l.left || x > l.width) return;
  const ring = around(at);
  g.strokeStyle = ink.tones.mark;
  g.fillStyle = ink.tones.mark;
  g.lineWidth = 1.5;
  line(g, x, 6, x, ring?.[1] ?? l.axis);
  if (ring) line(g, x, ring[1] + l.row - 2, x, l.axis);
  g.beginPath();
  g.moveTo(x - 5, 0);
  g.lineTo(x + 5, 0);
  g.lineTo(x, 8);
  g.fill();
  g.lineWidth = 2;
  if (ring) g.strokeRect(...ring);
}
